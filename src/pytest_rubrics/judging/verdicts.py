"""What judging gives: verdicts, and the replies that were paid for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_rubrics.calls.errors import CallError, Reason
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.tasks import Criterion


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's mark for one criterion.

    Attributes:
        criterion: What was judged.
        hit: Whether the described thing is present in the answer.
        justification: The judge's reason.
    """

    criterion: Criterion
    hit: bool
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts for one answer.

    Attributes:
        verdicts: One for each criterion, in the order of the rubric.
        replies: Paid replies, in the order of the asks.
        keys: Their cache keys.
    """

    verdicts: Sequence[Verdict]
    replies: Sequence[Reply]
    keys: Sequence[str]


class JudgingError(CallError):
    """Judging ended without all verdicts; what was paid for is kept.

    Attributes:
        partial: What there is.
    """

    def __init__(self, reason: Reason, message: str, partial: Judgement) -> None:
        super().__init__(reason, message)
        self.partial = partial
