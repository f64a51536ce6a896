"""Scores from verdicts: pure formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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

    def of_verdicts(
        self, verdicts: Sequence[Mapping[str, Any]], *, unjudged: Sequence[float] = (), averages: bool = False
    ) -> dict[str, float]:
        """`metrics` of verdicts as they stand in a record, and the soft score where all have a probability.

        Args:
            verdicts: Rows of verdicts.
            unjudged: Weights of criteria without one.
            averages: Whether the score is the mean of the scores that each member of a panel gives.
        """
        weights = [verdict["weight"] for verdict in verdicts]
        if averages and verdicts:
            members = [[float(verdict["members"][name]) for verdict in verdicts] for name in verdicts[0]["members"]]
        else:
            members = [[float(verdict.get("value", verdict["hit"])) for verdict in verdicts]]
        found = [self.metrics(list(zip(weights, values, strict=True)), unjudged=unjudged) for values in members]
        metrics = {name: sum(each[name] for each in found) / len(found) for name in found[0]}
        if verdicts and not unjudged and all("p" in verdict for verdict in verdicts):
            metrics[f"{self.metric}_soft"] = self.score([(verdict["weight"], verdict["p"]) for verdict in verdicts])
        return metrics

    def passes(self, score: float) -> bool | None:
        """Whether a score reaches the pass mark; None without one."""
        return None if self.pass_at is None else score >= self.pass_at
