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
        value: 1 when the described thing is present in the answer, 0 when not; 0.5 only on a ternary scale.
        justification: The judge's reason.
    """

    criterion: Criterion
    value: float
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts for one answer.

    Attributes:
        verdicts: In the order of the rubric.
        missing: Criteria that stayed unjudged; not empty only where the judge's settings allow it.
        replies: Paid replies.
        keys: Their cache keys.
    """

    verdicts: Sequence[Verdict]
    replies: Sequence[Reply]
    keys: Sequence[str]
    missing: Sequence[Criterion] = ()


class JudgingError(CallError):
    """Judging ended without all verdicts; what was paid for is kept.

    Attributes:
        partial: What there is.
    """

    def __init__(self, reason: Reason, message: str, partial: Judgement) -> None:
        super().__init__(reason, message)
        self.partial = partial
