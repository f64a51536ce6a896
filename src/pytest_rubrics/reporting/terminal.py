"""What stands at the end of a run in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_rubrics.plan import Plan
from pytest_rubrics.reporting.table import notes_of, render_part


def summary_lines(plan: Plan, summary: Mapping[str, Any], width: int) -> Iterator[tuple[str, list[str]]]:
    """A title and lines for each benchmark x model x judge.

    Args:
        plan: What was run.
        summary: The summary.
        width: Columns of the terminal.
    """
    parts = summary["parts"]
    for number, part in enumerate(parts, start=1):
        title = f"{part['benchmark']} | model {part['model']} ({part['track']}) | judge {part['judge']}"
        lines = [*render_part(part, width).splitlines(), "", *notes_of(part), *_warnings(plan, part)]
        if number == len(parts):
            lines.append(f"records: {plan.config.run_dir}")
        yield title, lines


def _warnings(plan: Plan, part: Mapping[str, Any]) -> list[str]:
    """What must not be overlooked: sample tasks, toy models."""
    lines = []
    entry = plan.benchmarks.get(part["benchmark"])
    if entry is not None and entry.source == "sample":
        lines.append(
            f"SAMPLE: these are bundled sample tasks; the scores say nothing about {entry.benchmark.spec.title}."
        )
    named = {model.name: getattr(model.config, "note", None) for model in plan.models}
    for role, name, note in (
        ("model", part["model"], named.get(part["model"])),
        ("judge", part["judge"], plan.judge.config.note),
    ):
        if note:
            lines.append(f"{role} {name}: {note}")
    return lines
