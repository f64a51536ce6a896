"""What stands at the end of a run in the terminal, and what ``rubrics report`` prints again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wcwidth import wrap

from pytest_rubrics.judging.families import self_preference
from pytest_rubrics.plan import Plan
from pytest_rubrics.records import MANIFEST
from pytest_rubrics.reporting.judges import judge_lines
from pytest_rubrics.reporting.table import notes_of, render_part
from pytest_rubrics.sources import SAMPLE


def summary_lines(
    plan: Plan, summary: Mapping[str, Any], width: int, *, wraps: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """A title and lines for each benchmark x model x judge of the run that has just ended.

    Args:
        plan: What was run; its manifest is in the run folder.
        summary: The summary.
        width: Columns of the terminal.
        wraps: Whether long notes are wrapped at the width; in a log they stay on one line, which can be searched.
    """
    folder = plan.config.run_dir
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return run_lines(manifest, summary, folder, width, wraps=wraps)


def run_lines(
    manifest: Mapping[str, Any], summary: Mapping[str, Any], folder: Path, width: int, *, wraps: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """A title and lines for each benchmark x model x judge of any run, from its records.

    Args:
        manifest: What was run.
        summary: The summary.
        folder: Where the records are.
        width: Columns of the terminal.
        wraps: Whether long notes are wrapped at the width; in a log they stay on one line, which can be searched.
    """
    parts = summary["parts"]
    for number, part in enumerate(parts, start=1):
        title = f"{part['benchmark']} | model {part['model']} ({part['track']}) | judge {part['judge']}"
        judged = judge_lines(manifest["judge"].get(part["judge"], {}), part)
        notes = [*notes_of(part), *judged, *_warnings(manifest, part)]
        lines = [*render_part(part, width).splitlines(), "", *(_wrapped(notes, width) if wraps else notes)]
        if number == len(parts):
            lines.append(f"records: {folder}")
        yield title, lines


def _wrapped(notes: Sequence[str], width: int) -> Iterator[str]:
    for note in notes:
        yield from wrap(note, width, subsequent_indent="  ", break_on_hyphens=False)


def _warnings(manifest: Mapping[str, Any], part: Mapping[str, Any]) -> list[str]:
    """What must not be overlooked: sample tasks, toy models, scores that mean less than they seem to."""
    lines = []
    entry = manifest["benchmarks"].get(part["benchmark"], {})
    if entry.get("source") == SAMPLE:
        lines.append(f"SAMPLE: these are bundled sample tasks; the scores say nothing about {entry['title']}.")
    if part["failed"] and not entry.get("scoring", {}).get("clip", True):
        lines.append(f"failed grades count 0; {part['metric']} has no lower bound, so a bad report may score lower.")
    if manifest["judge"].get(part["judge"], {}).get("scale") == "ternary":
        lines.append("TERNARY: a criterion met in part counts half; such scores are not comparable to binary ones.")
    for role, settings in (("model", manifest["models"]), ("judge", manifest["judge"])):
        name = part[role]
        if note := settings.get(name, {}).get("note"):
            lines.append(f"{role} {name}: {note}")
    model = {part["model"]: manifest["models"].get(part["model"], {})}
    return [*lines, *self_preference(model, manifest["judge"].get(part["judge"], {}), part["judge"])]
