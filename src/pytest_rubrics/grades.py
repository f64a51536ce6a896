"""Grades: what one answer was worth, in one of three states."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wcwidth import wcswidth

State = Literal["scored", "failed", "excluded"]

SCHEMA = 1
SHOWN_CRITERIA = 3
SHOWN_COLUMNS = 60  # of a criterion's text, so that its line fits into 80


@dataclass(frozen=True, slots=True)
class GradeId:
    """What a grade is a grade of; in a folder used twice the last grade of an id counts."""

    benchmark: str
    task_id: str
    model: str
    judge: str
    repeat: int


@dataclass(slots=True)
class Grade:
    """One line of ``results.jsonl``.

    Attributes:
        benchmark, task_id, key, subset, model, track, judge, repeat: What was graded by whom.
        state: ``scored``; ``failed``, the model's own fault, which counts 0; ``excluded``, which counts nowhere.
        reason: Reason code of a failure or exclusion.
        error: Text of the error, without secrets.
        metrics: Name of the metric to its value; None when excluded.
        passed: Whether the pass mark was reached; None without one and when excluded.
        verdicts: One mapping a criterion: id, weight, tag, hit, justification.
        keys, usage, cost_usd, cached, seconds, served_model: Of the ``answer`` and of the ``judge``.
        spent_usd: What this run paid for it.
        finished_at: UTC time in ISO 8601.
        trajectory: What an agent did, step by step; in the record of an agent only.
    """

    benchmark: str
    task_id: str
    key: str
    subset: str
    model: str
    track: str
    judge: str
    repeat: int
    state: State
    reason: str | None = None
    error: str | None = None
    truncated: bool = False
    finish_reason: str | None = None
    metrics: dict[str, float] | None = None
    passed: bool | None = None
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    answer: str | None = None
    served_model: dict[str, str | None] = field(default_factory=lambda: {"answer": None, "judge": None})
    keys: dict[str, list[str]] = field(default_factory=lambda: {"answer": [], "judge": []})
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    cost_usd: dict[str, float | None] = field(default_factory=lambda: {"answer": 0.0, "judge": 0.0})
    spent_usd: float | None = 0.0
    cached: dict[str, bool] = field(default_factory=lambda: {"answer": False, "judge": False})
    seconds: dict[str, float] = field(default_factory=lambda: {"answer": 0.0, "judge": 0.0})
    finished_at: str = ""
    trajectory: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> GradeId:
        """What it is a grade of."""
        return GradeId(self.benchmark, self.task_id, self.model, self.judge, self.repeat)

    @property
    def score(self) -> float | None:
        """The metric's value; None when excluded."""
        return None if self.metrics is None else next(iter(self.metrics.values()))

    def to_record(self) -> dict[str, Any]:
        """The grade as plain JSON types, in the order of the fixed format."""
        record = {"schema": SCHEMA, **{name: getattr(self, name) for name in self.__slots__}}
        if not self.trajectory:
            del record["trajectory"]
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Grade:
        """Read a record; unknown fields are ignored.

        Raises:
            TypeError: A field that every record has is missing.
        """
        return cls(**{name: record[name] for name in cls.__slots__ if name in record})


def now() -> str:
    """UTC time in ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def explain(grade: Grade, texts: Mapping[str, str], pass_at: float | None) -> str:
    """Say in a few lines why a grade is not a pass: what weighed most, heaviest first.

    Args:
        grade: A scored or failed grade.
        texts: Criterion id to its text.
        pass_at: The pass mark.
    """
    if grade.state == "failed":
        return f"failed ({grade.reason}): {grade.error or 'the model gave no answer'}; counts as 0"
    metric = next(iter(grade.metrics or {}), "score")
    mark = "" if pass_at is None else f" is below the pass mark {pass_at:g}"
    lines = [f"{metric} {grade.score:.4f}{mark}" + (" (the answer was cut off)" if grade.truncated else "")]
    lost = sorted((v for v in grade.verdicts if v["hit"] == (v["weight"] < 0)), key=lambda v: -abs(v["weight"]))
    lines += [_lost_line(verdict, texts) for verdict in lost[:SHOWN_CRITERIA]]
    if len(lost) > SHOWN_CRITERIA:
        lines.append(f"  and {len(lost) - SHOWN_CRITERIA} more")
    return "\n".join(lines)


def _lost_line(verdict: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    word = "violated" if verdict["weight"] < 0 else "missed"
    text = _shortened(" ".join(texts.get(verdict["id"], "").split()), SHOWN_COLUMNS)
    return f"  {word} [{verdict['id']}] {verdict['weight']:+g}: {text}"


def _shortened(text: str, columns: int) -> str:
    """A text that takes no more columns of a terminal; a Chinese character takes two.

    >>> _shortened("引用了相关法条", 8)
    '引用了…'
    """
    if wcswidth(text) <= columns:
        return text
    kept = ""
    for character in text:
        if wcswidth(kept + character) > columns - 1:
            break
        kept += character
    return kept + "…"
