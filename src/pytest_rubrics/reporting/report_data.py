"""What a page of one or more runs shows: plain JSON, made from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pytest_rubrics.evidence import Evidence
from pytest_rubrics.figures import figures_of
from pytest_rubrics.grades import Grade
from pytest_rubrics.rebuilding import count_selected, missing_grades, task_from_record
from pytest_rubrics.records import Run
from pytest_rubrics.reporting import charts
from pytest_rubrics.reporting.joint_panels import joint_panels
from pytest_rubrics.sources import SAMPLE
from pytest_rubrics.statistics.comparison import compare, mcnemar
from pytest_rubrics.task_results import TaskResult

MOST_PAIRS = 28  # all pairs of eight models; with more, each is compared with the first
_TITLE = 160  # characters of a prompt in the table of tasks


class ColumnName(NamedTuple):
    """What was measured: one model, judged by one judge, in one run, on one benchmark."""

    run: int
    benchmark: str
    model: str
    judge: str


@dataclass(frozen=True)
class RunView:
    """A run with what follows from it.

    Attributes:
        run: The run.
        summary: Its ``summary.json``.
        known: What it comes to, where it has just ended: every selected grade has its line.
    """

    run: Run
    summary: Mapping[str, Any]
    known: Evidence | None = None

    @cached_property
    def missing(self) -> list[Grade]:
        """Selected grades that have no line, each as excluded."""
        return missing_grades(self.run) if self.known is None else []

    @cached_property
    def evidence(self) -> Evidence:
        """What it comes to."""
        if self.known is not None:
            return self.known
        tasks = {id_: task_from_record(row) for id_, row in self.run.tasks.items()}
        return Evidence(self.run.manifest, tasks, [*self.run.figures, *map(figures_of, self.missing)])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.run.manifest["run"])


@dataclass(frozen=True)
class Page:
    """All that stands on a page but the texts of its tasks.

    Attributes:
        views: The runs, the baseline first.
    """

    views: Sequence[RunView]

    @cached_property
    def columns(self) -> list[ColumnName]:
        """What is measured, benchmark by benchmark and model by model."""
        found = [ColumnName(number, *name) for number, view in enumerate(self.views) for name in view.evidence.parts]
        order = list(dict.fromkeys((name.benchmark, name.model) for name in found))
        benchmarks = list(dict.fromkeys(name.benchmark for name in found))
        return sorted(found, key=lambda name: (benchmarks.index(name.benchmark), order.index(name[1:3])))

    @cached_property
    def benchmarks(self) -> list[str]:
        """The benchmarks that have grades."""
        return list(dict.fromkeys(name.benchmark for name in self.columns))

    @cached_property
    def tasks(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Records of all tasks, those of a benchmark and subset together."""
        merged = {id_: row for view in self.views for id_, row in view.run.tasks.items()}
        return dict(sorted(merged.items(), key=lambda item: (item[0][0], _subset_place(self.views, item[1]))))

    def part(self, name: ColumnName) -> dict[str, Any]:
        """The summary of a column."""
        return self.views[name.run].evidence.parts[name[1:]]

    def results(self, name: ColumnName) -> list[TaskResult]:
        """The tasks of a column."""
        return self.views[name.run].evidence.results[name[1:]]

    def scoring(self, benchmark: str) -> Mapping[str, Any]:
        """Metric, range and pass mark of a benchmark."""
        entries = [view.run.manifest["benchmarks"].get(benchmark) for view in self.views]
        scoring: Mapping[str, Any] = next(entry["scoring"] for entry in entries if entry)
        return scoring

    def subsets(self, benchmark: str) -> list[str]:
        """The subsets that have grades, in the benchmark's own order."""
        entries = [view.run.manifest["benchmarks"].get(benchmark, {"subsets": ()}) for view in self.views]
        known = dict.fromkeys(subset for entry in entries for subset in entry["subsets"])
        parts = [self.part(name)["subsets"] for name in self.columns if name.benchmark == benchmark]
        present = dict.fromkeys(subset for part in parts for subset in part)
        return [
            *(subset for subset in known if subset in present),
            *(subset for subset in present if subset not in known),
        ]

    @cached_property
    def joint_panels(self) -> dict[tuple[str, str], dict[str, Any]]:
        """How far judges of several runs agree, by benchmark and model."""
        return joint_panels([(view.run, view.evidence) for view in self.views])

    def to_plain(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        return {
            "runs": [_run(view) for view in self.views],
            "columns": [self._column(name) for name in self.columns],
            "benchmarks": {name: self._benchmark(name) for name in self.benchmarks},
            "pairs": self.pairs,
        }

    def _column(self, name: ColumnName) -> dict[str, Any]:
        part = {key: value for key, value in self.part(name).items() if key != "repeats"}
        repeats = self.part(name).get("repeats")
        return {
            **part,
            "run": name.run,
            "repeats": repeats and {key: value for key, value in repeats.items() if key != "by_task"},
            "label": self.label(name),
            "qualifiers": self.qualifiers(name),
        }

    def label(self, name: ColumnName) -> str:
        """Short name of a column: what tells it from the others."""
        return " · ".join([name.model, *self.qualifiers(name)])

    def qualifiers(self, name: ColumnName) -> list[str]:
        """Judge and run of a column, where the model alone does not tell it from the others."""
        words = []
        if len({column.judge for column in self.columns}) > 1:
            words.append(name.judge)
        if len({column[1:] for column in self.columns}) < len(self.columns):
            words.append(self.views[name.run].name)
        return words

    def _benchmark(self, benchmark: str) -> dict[str, Any]:
        entry = next(e for view in self.views if (e := view.run.manifest["benchmarks"].get(benchmark)))
        columns = [(n, name) for n, name in enumerate(self.columns) if name.benchmark == benchmark]
        return {
            "title": entry["title"],
            **{key: entry["scoring"].get(key) for key in ("metric", "clip", "pass_at")},
            "subsets": self.subsets(benchmark),
            "charts": self._charts(benchmark, columns),
            "joint_panels": {model: panel for (name, model), panel in self.joint_panels.items() if name == benchmark},
        }

    def _charts(self, benchmark: str, columns: Sequence[tuple[int, ColumnName]]) -> dict[str, Any]:
        scoring = self.scoring(benchmark)
        clip = bool(scoring["clip"])

        def interval_rows(slices: str) -> dict[str, list[charts.Row]]:
            rows: dict[str, list[charts.Row]] = {}
            for n, name in columns:
                part = self.part(name)
                for key, numbers in (part[slices] or {"": part}).items():
                    if numbers["mean"]:
                        rows.setdefault(key, []).append(_row(self.label(name), numbers["mean"], n))
            return rows

        heads, found = interval_rows("tracks"), interval_rows("subsets")
        subsets = {subset: found[subset] for subset in self.subsets(benchmark) if subset in found}
        points = [point for n, name in columns if (point := self._point(n, name))]
        scores = [(n, [r.score for r in self.results(name) if r.score is not None]) for n, name in columns]
        return {
            "models": {key: charts.interval_chart(rows, clip=clip) for key, rows in heads.items()},
            "subsets": charts.interval_chart(list(_titled(subsets)), clip=clip) if len(subsets) > 1 else None,
            "scores": {n: charts.score_chart(values, scoring["pass_at"]) for n, values in scores if values},
            "cost": charts.cost_chart(points) if any(point.cost for point in points) else None,
        }

    def _point(self, number: int, name: ColumnName) -> charts.Point | None:
        part = self.part(name)
        cost, grades = part["cost_usd"]["answer"], part["scored"] + part["failed"]
        if cost is None or part["mean"] is None or grades == 0:
            return None
        return charts.Point(self.label(name), cost / grades, part["mean"]["value"], number)

    @cached_property
    def pairs(self) -> list[dict[str, Any]]:
        """Differences of columns of one benchmark, task by task, in each track.

        Two columns in which both model and judge differ are no pair: the difference would be nobody's.
        """
        found = [
            (a, b)
            for a, first in enumerate(self.columns)
            for b, second in enumerate(self.columns)
            if a < b and first.benchmark == second.benchmark
            if first.model == second.model or first.judge == second.judge
        ]
        if len(found) > MOST_PAIRS:
            heads = {name.benchmark: n for n, name in reversed(list(enumerate(self.columns)))}
            found = [(a, b) for a, b in found if a in heads.values()]
        return [{"a": a, "b": b, "slices": self.differences(self.columns[a], self.columns[b])} for a, b in found]

    def differences(self, first: ColumnName, second: ColumnName) -> list[dict[str, Any]]:
        """Second minus first, task by task, in each track."""
        if (first, second) not in self._compared:
            self._compared[first, second] = self._compare(first, second)
        return self._compared[first, second]

    @cached_property
    def _compared(self) -> dict[tuple[ColumnName, ColumnName], list[dict[str, Any]]]:
        return {}

    def _compare(self, first: ColumnName, second: ColumnName) -> list[dict[str, Any]]:
        after = {result.id: result for result in self.results(second)}
        shared = [(r, after[r.id]) for r in self.results(first) if r.id in after]
        bounds = (0.0, 1.0) if self.scoring(first.benchmark)["clip"] else None
        tracks = list(dict.fromkeys(r.facts.track for r, _ in shared))
        return [
            _difference(track, [pair for pair in shared if pair[0].facts.track == track], bounds) for track in tracks
        ]


def _difference(
    track: str, shared: Sequence[tuple[TaskResult, TaskResult]], bounds: tuple[float, float] | None
) -> dict[str, Any]:
    pairs = [(a, b, a.score, b.score) for a, b in shared if a.score is not None and b.score is not None]
    clusters = [a.facts.cluster for a, *_ in pairs]
    found = compare([x for *_, x, _ in pairs], [y for *_, y in pairs], clusters=clusters, bounds=bounds)
    marks = [(a.passed, b.passed) for a, b, *_ in pairs]
    whole = bool(marks) and all(mark in {0.0, 1.0} for both in marks for mark in both)
    passes = mcnemar([bool(x) for x, _ in marks], [bool(y) for _, y in marks], clusters=clusters) if whole else None
    difference = found.difference
    return {
        "track": track,
        "tasks": len(pairs),
        "value": difference.value,
        "ci95": None if difference.low is None else [difference.low, difference.high],
        "p": found.p_value,
        "better": found.better,
        "worse": found.worse,
        "same": found.same,
        "passes": passes and passes._asdict(),
    }


def _run(view: RunView) -> dict[str, Any]:
    manifest = view.run.manifest
    return {
        "name": view.name,
        **{key: manifest.get(key) for key in ("started_at", "finished_at", "versions", "command", "models", "judge")},
        "options": manifest["options"],
        "benchmarks": {
            name: {key: value for key, value in entry.items() if key != "selected"}
            for name, entry in manifest["benchmarks"].items()
        },
        "gate": view.summary.get("gate"),
        "sample": [name for name, entry in manifest["benchmarks"].items() if entry.get("source") == SAMPLE],
        "selected": count_selected(view.run),
        "missing": len(view.missing),
        "broken": view.run.broken_lines,
    }


def task_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A task in the table of tasks."""
    prompt = " ".join(str(record["prompt"])[: 4 * _TITLE].split())
    return {
        "id": record["task_id"],
        "benchmark": record["benchmark"],
        "key": record["key"],
        "subset": record["subset"],
        "topics": record["topics"],
        "title": prompt[:_TITLE],
        "tags": sorted({c["tag"] for c in record["criteria"] if c["tag"]}),
    }


def _row(name: str, mean: Mapping[str, Any], color: int) -> charts.Row:
    low, high = mean["ci95"] or (None, None)
    return charts.Row(name, mean["value"], low, high, color)


def _titled(subsets: Mapping[str, Sequence[charts.Row]]) -> Iterator[charts.Row]:
    """All rows of the subsets, below the name of each; it is the row's own where there is only one."""
    several = any(len(rows) > 1 for rows in subsets.values())
    for subset, rows in subsets.items():
        if several:
            yield charts.Row(subset, None)
            yield from rows
        else:
            yield from (row._replace(name=subset) for row in rows)


def _subset_place(views: Sequence[RunView], record: Mapping[str, Any]) -> int:
    for view in views:
        entry = view.run.manifest["benchmarks"].get(record["benchmark"])
        if entry and record["subset"] in entry["subsets"]:
            return int(entry["subsets"].index(record["subset"]))
    return 1_000
