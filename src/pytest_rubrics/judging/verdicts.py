"""What judging gives: verdicts, and the replies that were paid for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_rubrics.calls.errors import CallError, Reason
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.tasks import Criterion


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's mark for one criterion.

    Attributes:
        criterion: What was judged.
        value: 1 when the described thing is present in the answer, 0 when not; 0.5 only on a ternary scale, and a mean
            where a panel averages.
        justification: The judge's reason.
        p: Probability of a hit, from the judge's log-probabilities; None where there are none.
        members: The value that each member of a panel gave, by its name; empty for one judge.
    """

    criterion: Criterion
    value: float
    justification: str = ""
    p: float | None = None
    members: Mapping[str, float] = field(default_factory=dict)

    @property
    def hit(self) -> bool:
        """Whether the described thing is present, fully."""
        return self.value == 1

    def to_row(self) -> dict[str, object]:
        """The verdict as it stands in a record."""
        row: dict[str, object] = {
            "id": self.criterion.id,
            "weight": self.criterion.weight,
            "tag": self.criterion.tag,
            "hit": self.hit,
            "justification": self.justification,
        }
        if self.value not in {0, 1}:
            row["value"] = self.value
        if self.p is not None:
            row["p"] = round(self.p, 6)
        if self.members:
            row["members"] = {name: bool(v) if v in {0, 1} else v for name, v in self.members.items()}
        return row


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
    averages: bool = False


class JudgingError(CallError):
    """Judging ended without all verdicts; what was paid for is kept.

    Attributes:
        partial: What there is.
    """

    def __init__(self, reason: Reason, message: str, partial: Judgement) -> None:
        super().__init__(reason, message)
        self.partial = partial
