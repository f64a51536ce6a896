"""Table of the economic value of tasks: what an expert's work on each would cost."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from pytest_rubrics.faults import Fault, FaultsError

_COLUMNS = ["id", "currency", "value"]


def load_values(path: Path) -> dict[str, tuple[str, float]]:
    """Return currency and value of each task id in a CSV file with the columns id, currency, value.

    Raises:
        FaultsError: The file is missing, or lines in it are wrong; with all of them.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as content:
            lines = list(csv.reader(content))
    except (OSError, ValueError, csv.Error) as error:
        raise FaultsError([Fault(str(path), f"cannot be read: {error}.")]) from error
    if not lines or lines[0] != _COLUMNS:
        found = ",".join(lines[0]) if lines else "nothing"
        raise FaultsError([Fault(str(path), f"found {found}; expected the columns {','.join(_COLUMNS)}.", line=1)])
    values: dict[str, tuple[str, float]] = {}
    faults = []
    for number, line in enumerate(lines[1:], 2):
        value = _value(line)
        if value is None:
            message = f"found {','.join(line)}; expected an id, a currency and a number above 0."
            faults.append(Fault(str(path), message, line=number))
        elif line[0] in values:
            faults.append(Fault(str(path), f"the id {line[0]} stands here a second time.", line=number))
        else:
            values[line[0]] = value
    if faults:
        raise FaultsError(faults)
    return values


def _value(line: list[str]) -> tuple[str, float] | None:
    if len(line) != len(_COLUMNS) or not line[0] or not line[1]:
        return None
    try:
        value = float(line[2])
    except ValueError:
        return None
    return (line[1], value) if math.isfinite(value) and value > 0 else None
