"""Verdicts of people on answers, from a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.judging import vocabulary
from pytest_rubrics.suggestions import did_you_mean
from pytest_rubrics.tasks import Task

Labels: TypeAlias = Mapping[tuple[str, str], bool]
"""Whether a criterion is hit, by task id and criterion id."""

COLUMNS = ("task", "criterion", "label")
SHOWN_FAULTS = 50


def read_labels(path: Path, tasks: Sequence[Task]) -> dict[tuple[str, str], bool]:
    """Read labels with the columns task (id or key), criterion (id) and label (yes or no, 1 or 0, 是 or 否, ...).

    Raises:
        FaultsError: Every line that names no task, no criterion or no verdict, or labels a criterion again.
    """
    if not path.is_file():
        raise FaultsError([Fault(str(path), "there is no such file.")])
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            message = f"lacks the columns {', '.join(missing)}; found {', '.join(reader.fieldnames or ()) or 'none'}."
            raise FaultsError([Fault(str(path), message, line=1, fix=f"The first line is {','.join(COLUMNS)}.")])
        rows = [(reader.line_num, row) for row in reader]
    owners: dict[str, list[Task]] = {}
    for task in tasks:
        for name in {task.id, task.key, f"{task.subset}-{task.key}"}:
            owners.setdefault(name, []).append(task)
    labels: dict[tuple[str, str], bool] = {}
    faults = []
    for line, row in rows:
        try:
            place, label = _label(row, owners)
            if place in labels:
                raise ValueError("is labelled a second time.")
            labels[place] = label
        except ValueError as error:
            faults.append(Fault(str(path), str(error), line=line))
    if not rows:
        faults.append(Fault(str(path), "holds no labels."))
    if faults:
        raise FaultsError(faults)
    return labels


def _label(row: Mapping[str, str | None], owners: Mapping[str, Sequence[Task]]) -> tuple[tuple[str, str], bool]:
    name, criterion, text = ((row[column] or "").strip() for column in COLUMNS)
    found = owners.get(name, ())
    if len(found) != 1:
        hint = "Write its id." if found else did_you_mean(name, owners) or ""
        raise ValueError(
            f"{len(found) or 'no'} task{'s have' if found else ' has'} the id or key {name!r}. {hint}".strip()
        )
    known = [each.id for each in found[0].criteria]
    if criterion not in known:
        raise ValueError(f"task {name} has no criterion {criterion!r}; it has {', '.join(known[:30])}.")
    hit = vocabulary.hit(text)
    if hit is None:
        raise ValueError(f"the label is {text!r}, expected yes or no.")
    return (found[0].id, criterion), hit
