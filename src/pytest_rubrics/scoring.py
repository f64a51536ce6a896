"""Scores from verdicts: pure formulas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scoring:
    """How verdicts become a score.

    Attributes:
        metric: Name of the score.
        clip: Whether the score is limited to 0..1.
        pass_at: Pass mark on the unrounded score, or None.
    """

    metric: str
    clip: bool
    pass_at: float | None

    def score(self, marks: Iterable[tuple[float, float]]) -> float:
        """Weights hit over the sum of positive weights, S / P, rounded by nothing but the one division.

        Source: $OneMillion-Bench, ``clip(S / P, 0, 1)``; ResearchRubrics, S / P as it is.

        Args:
            marks: Weight and verdict (0 or 1) of every criterion.

        Raises:
            ValueError: No weight is positive.
        """
        positive = hit = 0.0
        for weight, verdict in marks:
            positive += max(weight, 0)
            hit += weight * verdict
        if positive <= 0:
            raise ValueError("a rubric needs a positive weight")
        score = hit / positive
        return min(1.0, max(0.0, score)) if self.clip else score

    def metrics(self, marks: Sequence[tuple[float, float]], *, unjudged: Sequence[float] = ()) -> dict[str, float]:
        """The score under its name; with unjudged criteria the middle of what they allow, and both ends.

        Args:
            marks: Weight and verdict of every judged criterion.
            unjudged: Weights of the others.
        """
        if not unjudged:
            return {self.metric: self.score(marks)}
        low = self.score([*marks, *((weight, float(weight < 0)) for weight in unjudged)])
        high = self.score([*marks, *((weight, float(weight > 0)) for weight in unjudged)])
        return {self.metric: (low + high) / 2, f"{self.metric}_low": low, f"{self.metric}_high": high}

    def passes(self, score: float) -> bool | None:
        """Whether a score reaches the pass mark; None without one."""
        return None if self.pass_at is None else score >= self.pass_at
