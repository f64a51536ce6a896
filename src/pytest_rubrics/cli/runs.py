"""Subcommands about run folders: nothing is called, and the pytest run itself is not needed."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rubrics.cli.command import argument, command, complain, find_workspace, say

if TYPE_CHECKING:
    from pytest_rubrics.records import Run

_LOG_WIDTH = 120  # columns where the output is no terminal, as in a run


@command(
    "report",
    "print the table of a run again, and rebuild its summary and reports, also while it is going",
    argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run"),
    argument("--into", metavar="DIR", type=Path, help="one report of all, side by side; the first is the baseline"),
)
def report(options: argparse.Namespace) -> None:
    """Rebuild summary and reports of each run from its records, and print what stood in the terminal."""
    from pytest_rubrics.rebuilding import gate_sentence, open_run
    from pytest_rubrics.reporting.files import write_reports

    made = []
    for run in [open_run(folder) for folder in options.runs]:
        summary = _rebuild(run)
        made.append((run, summary))
        if options.into is None:
            say(f"report: {write_reports(made[-1:], run.folder)[0]}")
        if summary["gate"]:
            say(gate_sentence(summary["gate"]))
    if options.into is not None:
        say(f"report: {write_reports(made, options.into)[0]}")


@command(
    "merge",
    "make one run of shards and of runs that each made a part",
    argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run; the line of a later one counts"),
    argument("--into", metavar="DIR", required=True, type=Path, help="folder of the merged run"),
)
def merge(options: argparse.Namespace) -> None:
    """Write the merged run with its reports, and print its table."""
    from pytest_rubrics import merging
    from pytest_rubrics.rebuilding import open_run
    from pytest_rubrics.reporting.files import write_reports_of
    from pytest_rubrics.reporting.report_data import RunView

    runs = [open_run(folder) for folder in options.runs]
    merged = merging.merge(runs, options.into)
    summary = _rebuild(merged)
    # A gate follows in the same step of CI, and shows the report with its decision.
    say(write_reports_of(merged.folder, lambda: RunView(merged, summary), in_step_summary=False))
    if missing := merging.missing_shards(runs):
        say(f"MISSING: of the shards, {', '.join(missing)} is not among the runs.")


@command(
    "gate",
    "decide a finished or merged run: exit code 0, 1, 10, 11 or 12",
    argument("run", metavar="RUN", type=Path, help="folder of the run"),
    argument("--gate", metavar="NAME", required=True, help="configs/gates/NAME.yaml or a path"),
)
def gate(options: argparse.Namespace) -> int:
    """Decide a run, note the decision in its summary and reports, and return the gate's exit code."""
    from pytest_rubrics.gates import load_gate
    from pytest_rubrics.rebuilding import decide, gate_entry, gate_sentence, open_run
    from pytest_rubrics.reporting.files import write_reports_of
    from pytest_rubrics.reporting.report_data import RunView

    run = open_run(options.run)
    rule = load_gate(options.gate, find_workspace(), Path.cwd())
    decision = decide(rule, run)
    entry = gate_entry(rule, decision)
    summary = _write_summary(run, gate=entry)
    for note in _notes(run):
        say(note)
    say(write_reports_of(run.folder, lambda: RunView(run, summary)))
    say(gate_sentence(entry))
    return decision.verdict.value


def _rebuild(run: Run) -> Mapping[str, Any]:
    """Print the table of a run and write its summary."""
    from pytest_rubrics.reporting.terminal import run_lines

    summary = _write_summary(run)
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else _LOG_WIDTH
    for title, lines in run_lines(run.manifest, summary, run.folder, width, wraps=is_terminal):
        say(f" {title} ".center(width, "="))
        say("\n".join(lines))
    for note in _notes(run):
        say(note)
    return summary


def _write_summary(run: Run, gate: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Rebuild the summary; a folder that cannot be written still gives its table and its verdict."""
    from pytest_rubrics.rebuilding import rebuild_summary
    from pytest_rubrics.records import RunWriter

    summary = rebuild_summary(run, gate)
    try:
        RunWriter(run.folder).write_summary(summary)
    except OSError as error:
        complain(f"summary.json was not written: {error}")
    return summary


def _notes(run: Run) -> list[str]:
    """What a reader of the table must know of the records."""
    from pytest_rubrics.rebuilding import count_selected, count_without_line

    notes = []
    if missing := count_without_line(run):
        notes.append(
            f"INCOMPLETE: {missing} of {count_selected(run)} selected grades have no line: the run is still going, or "
            "was killed. They count as excluded."
        )
    if run.broken_lines:
        notes.append(f"{run.broken_lines} lines of results.jsonl could not be read and are left out.")
    return notes
