"""Published results to set beside one's own: a CSV file, given by its path."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_rubrics.faults import Fault, FaultsError

COLUMNS = ["table", "subset", "model", "mode", "metric", "value"]
WARNING = (
    "published figures were made with other judges, prompts and settings: they give an order of magnitude, and no "
    "difference from them can be tested"
)


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """A published system.

    Attributes:
        model: Its name.
        mode: How it worked, such as ``vanilla`` or ``search``.
        figures: Published values by (track, metric), scores and rates as published: in percent.
    """

    model: str
    mode: str
    figures: Mapping[tuple[str, str], float]


def load_reference(path: Path) -> list[ReferenceRow]:
    """Read published results, in the order of their first appearance.

    Raises:
        FaultsError: The file is missing or has other columns, or a value is no number.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as content:
            lines = list(csv.reader(content))
    except (OSError, ValueError, csv.Error) as error:
        raise FaultsError([Fault(str(path), f"cannot be read: {error}.")]) from error
    if not lines or lines[0] != COLUMNS:
        found = ",".join(lines[0]) if lines else "nothing"
        raise FaultsError([Fault(str(path), f"found {found}; expected the columns {','.join(COLUMNS)}.", line=1)])
    figures: dict[tuple[str, str], dict[tuple[str, str], float]] = defaultdict(dict)
    faults = []
    for number, line in enumerate(lines[1:], start=2):
        value = _value(line)
        if value is None:
            faults.append(
                Fault(str(path), f"found {','.join(line)}; expected six columns, a number last.", line=number)
            )
        else:
            _, subset, model, mode, metric, _ = line
            figures[model, mode][subset, metric] = value
    if faults:
        raise FaultsError(faults)
    return [ReferenceRow(model, mode, own) for (model, mode), own in figures.items()]


def _value(line: list[str]) -> float | None:
    try:
        value = float(line[5]) if len(line) == len(COLUMNS) else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
