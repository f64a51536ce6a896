"""How long the answers of earlier runs took: a small file beside the cache, so that long tasks can start first."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_rubrics.grades import Grade

FILE = "latencies.json"
KEPT = 20_000  # tasks over all models; beyond it the model that ran longest ago is forgotten

Table = dict[str, float]


@dataclass(slots=True, repr=False)
class Latencies:
    """Seconds that answers took.

    Attributes:
        tables: Seconds by task id, for each ``benchmark/model``; the one that ran last stands last.
    """

    tables: dict[str, Table] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Latencies:
        """What earlier runs with this cache left; a missing or damaged file is as good as none."""
        try:
            content = json.loads((directory / FILE).read_text(encoding="utf-8"))
            return cls({name: _checked(table) for name, table in content.items()})
        except (OSError, ValueError, TypeError, AttributeError):
            return cls()

    def write(self, directory: Path) -> None:
        """Replace the file; what cannot be written is not missed."""
        with suppress(OSError), tempfile.TemporaryDirectory(prefix="latencies-", dir=directory) as made:
            file = Path(made) / FILE
            file.write_text(json.dumps(self.tables), encoding="utf-8")
            file.replace(directory / FILE)

    def expected(self, benchmark: str, model: str) -> Mapping[str, float]:
        """Seconds to expect, by task id: this model's own, else what others took relative to their median.

        Tasks that nobody has answered are missing.
        """
        own = self.tables.get(f"{benchmark}/{model}", {})
        others = [table for name, table in self.tables.items() if name.startswith(f"{benchmark}/") and table]
        relative: dict[str, list[float]] = {}
        for table in others:
            middle = median(table.values())
            for task, seconds in table.items():
                relative.setdefault(task, []).append(seconds / middle)
        scale = median(own.values()) if own else median(median(table.values()) for table in others or [{"": 1.0}])
        return {task: own.get(task, scale * fmean(ratios)) for task, ratios in relative.items()}

    def add(self, other: Observed) -> bool:
        """Take in what a run has seen.

        Returns:
            Whether it told anything new: a replay does not.
        """
        news = False
        for name, seen in other.fresh.items():
            table = self.tables[name] = self.tables.pop(name, {})  # moves to the end
            for task, seconds in seen.items():
                table[task] = round(fmean([table[task], seconds] if task in table else [seconds]), 3)
                news = True
        for name, seen in other.replayed.items():
            table = self.tables.setdefault(name, {})
            news |= not seen.keys() <= table.keys()
            self.tables[name] = seen | table
        while sum(map(len, self.tables.values())) > KEPT and len(self.tables) > 1:
            del self.tables[next(iter(self.tables))]
        return news


@dataclass(slots=True, repr=False)
class Observed:
    """Seconds that the answers of this run took.

    Attributes:
        fresh: Of answers that this run asked for.
        replayed: Of stored ones; they tell something only where nothing is known, such as after a killed run.
    """

    fresh: dict[str, Table] = field(default_factory=dict)
    replayed: dict[str, Table] = field(default_factory=dict)

    def note(self, grade: Grade) -> None:
        """Take the seconds of one grade."""
        seconds = grade.seconds.get("answer", 0.0)
        if seconds > 0:  # ready answers take none
            tables = self.replayed if grade.cached.get("answer") else self.fresh
            tables.setdefault(f"{grade.benchmark}/{grade.model}", {})[grade.task_id] = seconds

    def save(self, directory: Path) -> None:
        """Add them to the file beside the cache."""
        known = Latencies.read(directory)
        if known.add(self):
            known.write(directory)


def _checked(table: Mapping[str, float]) -> Table:
    return {task: float(seconds) for task, seconds in table.items() if float(seconds) > 0}
