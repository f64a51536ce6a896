"""Several runs as one: the shards of a selection, and runs that each made a part of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.figures import Figures
from pytest_rubrics.grades import Grade, GradeId
from pytest_rubrics.rebuilding import open_run, rebuild_summary, task_from_record
from pytest_rubrics.records import Run, RunWriter

# Settings that are no part of what is asked: they may differ from machine to machine.
_FREE = {"api_key", "max_concurrency", "note", "price", "retry_for", "rpm", "timeout", "tpm", "typical_seconds"}
# What must be the same of a benchmark.
_OF_A_BENCHMARK = ("sha256", "tasks", "scoring", "judging", "prompts_sha256")
_FIX = "Merge runs that were made with the same settings."

Manifest = Mapping[str, Any]


def merge(runs: Sequence[Run], folder: Path) -> Run:
    """Write several runs as one run folder.

    Of the lines of one grade the last counts, in the order of the runs; an excluded one never replaces one that counts
    in a mean.

    Args:
        runs: The runs.
        folder: The new run folder.

    Raises:
        FaultsError: The runs do not belong together, or there is something in the folder.
    """
    faults = disagreements(runs)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        faults.append(Fault(f"--into {folder}", "is not empty.", fix="Name a new folder."))
    if faults:
        raise FaultsError(faults)
    manifest = merged_manifest(runs, folder)
    writer = RunWriter(folder)
    writer.write_tasks(task_from_record(row) for run in runs for row in run.tasks.values())
    for grade in merged_grades(runs, manifest):
        writer.append(grade)
    writer.close()
    writer.write_manifest(manifest)
    merged = open_run(folder)
    writer.write_summary(rebuild_summary(merged))
    return merged


def disagreements(runs: Sequence[Run]) -> list[Fault]:
    """Why runs cannot be merged: each difference from the first run that has the same judge, model or benchmark."""
    known: dict[tuple[str, str], tuple[Run, Mapping[str, Any]]] = {}
    faults = []
    for run in runs:
        for place, settings in settings_of(run.manifest):
            first, expected = known.setdefault(place, (run, settings))
            for key, found, wanted in differences(settings, expected):
                message = f"found {found}, expected {wanted} as in {first.folder}."
                faults.append(Fault(str(run.folder), message, key=f"{' '.join(place)}, {key}", fix=_FIX))
    return faults


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Where settings differ that decide a grade: dotted key, what was found, what was expected."""
    left, right = dict(_decisive(found)), dict(_decisive(expected))
    return [
        (key, _shown(left.get(key)), _shown(right.get(key)))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def merged_grades(runs: Sequence[Run], manifest: Manifest) -> Iterator[Grade]:
    """The grades that count, in the order of benchmarks, models and subsets, read one at a time."""
    chosen: dict[GradeId, tuple[Figures, Run, int]] = {}
    for run in runs:
        for index, figures in enumerate(run.figures):
            former = chosen.get(figures.id)
            if former is None or figures.state != "excluded" or former[0].state == "excluded":
                chosen[figures.id] = figures, run, index
    models, benchmarks = list(manifest["models"]), manifest["benchmarks"]

    def place(choice: tuple[Figures, Run, int]) -> tuple[int, ...]:
        figures = choice[0]
        subsets = benchmarks.get(figures.benchmark, {}).get("subsets", [])
        return _index(benchmarks, figures.benchmark), _index(models, figures.model), _index(subsets, figures.subset)

    return (run.grades[index] for _, run, index in sorted(chosen.values(), key=place))


def merged_manifest(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    """The manifest of runs that belong together, as if one run had selected what they selected."""
    manifests = [run.manifest for run in runs]
    finished = [manifest["finished_at"] for manifest in manifests if manifest["finished_at"]]
    options = {**manifests[0]["options"], "run_dir": str(folder), "shard": None, "gate": None}
    options["repeats"] = max(manifest["options"]["repeats"] for manifest in manifests)
    return {
        **manifests[0],
        "run": "+".join(manifest["run"] for manifest in manifests),
        "started_at": min(manifest["started_at"] for manifest in manifests),
        "finished_at": max(finished, default=None),
        "command": sys.argv[1:],
        "options": options,
        "models": {name: settings for manifest in manifests for name, settings in manifest["models"].items()},
        "benchmarks": _merged_benchmarks(manifests),
        "merged_from": [
            {"run": run.manifest["run"], "folder": str(run.folder), "shard": run.manifest["options"]["shard"]}
            for run in runs
        ],
    }


def missing_shards(runs: Sequence[Run]) -> list[str]:
    """Shards that are not among the runs, such as ``2/4``."""
    given = {tuple(shard) for run in runs if (shard := run.manifest["options"]["shard"])}
    return [f"{i}/{n}" for n in sorted({n for _, n in given}) for i in range(1, n + 1) if (i, n) not in given]


def _merged_benchmarks(manifests: Sequence[Manifest]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name, entry in (item for manifest in manifests for item in manifest["benchmarks"].items()):
        former = merged.get(name, {"tasks": 0, "selected": []})
        selected = list(dict.fromkeys([*former["selected"], *entry["selected"]]))
        merged[name] = {**(former if former["tasks"] else entry), "selected": selected}
    return merged


def settings_of(manifest: Manifest) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """What must be the same in all runs, by kind and name."""
    yield ("run", "settings"), {"judge": ", ".join(manifest["judge"])}
    for kind in ("models", "judge"):
        for name, settings in manifest[kind].items():
            yield (kind.removesuffix("s"), name), settings
    for name, entry in manifest["benchmarks"].items():
        if entry["tasks"]:  # a benchmark that was left out says nothing
            yield ("benchmark", name), {key: entry[key] for key in _OF_A_BENCHMARK}


def _decisive(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings without those that are free, nested ones under dotted keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _decisive(value, f"{above}{key}.")
        elif above or key not in _FREE:
            yield f"{above}{key}", value


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _index(names: Iterable[str], name: str) -> int:
    known = list(names)
    return known.index(name) if name in known else len(known)
