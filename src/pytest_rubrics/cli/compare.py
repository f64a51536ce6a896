"""The subcommand that compares runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.cli.command import argument, command, complain, say

if TYPE_CHECKING:
    from pytest_rubrics.baselines import Baseline
    from pytest_rubrics.faults import Fault
    from pytest_rubrics.reference_rows import ReferenceRow

NOT_COMPARABLE = 12  # the code of a gate for the same


@command(
    "compare",
    "compare runs task by task with the first one: differences, intervals, and the tasks that changed",
    argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run, or a baseline file; the first is A"),
    argument("--model", metavar="NAME", help="of several models in the first run, the one to compare with"),
    argument("--force", action="store_true", help="show it even where judge, prompts, data or scoring differ"),
    argument("--changed", metavar="N", type=int, default=10, help="how many changed tasks to list (10)"),
    argument("--paper", metavar="FILE", type=Path, help="CSV file of published results to set beside the runs"),
)
def compare(options: argparse.Namespace) -> int:
    """Compare each model of the later runs with the one of the first run that has its name, or is the only one."""
    from pytest_rubrics.faults import Fault, FaultsError
    from pytest_rubrics.rebuilding import scores_in
    from pytest_rubrics.reference_rows import load_reference

    rows = load_reference(options.paper) if options.paper else None
    first, *others = [scores_in(path) for path in options.runs]
    pairs = _pairs(first, others, options.model)
    if not pairs and rows is None:
        fix = "Name a second run, or published results with --paper."
        raise FaultsError([Fault("rubrics compare", "there is nothing to compare with.", fix=fix)])
    refused = [pair for pair in pairs if not _show(*pair, options)]
    if rows is not None:
        _show_reference(options.runs, rows)
    return NOT_COMPARABLE if refused else 0


def _pairs(
    first: Sequence[Baseline], others: Sequence[Sequence[Baseline]], model: str | None
) -> list[tuple[Baseline, Baseline]]:
    """A and B of each comparison; a single run is compared in itself, all its models with the first one.

    Raises:
        FaultsError: Which model of the first run is meant is not clear.
    """
    from pytest_rubrics.faults import FaultsError, gather

    pairs: list[tuple[Baseline, Baseline]] = []
    faults: list[Fault] = []
    for candidate in [scores for run in others for scores in run] if others else first:
        same = [scores for scores in first if scores.benchmark == candidate.benchmark]
        with gather(faults):
            found = _counterpart(candidate, same, model or (candidate.model if others else same[0].model), model)
            if found is not candidate:
                pairs.append((found, candidate))
    if faults:
        raise FaultsError(list(dict.fromkeys(faults)))
    return pairs


def _counterpart(candidate: Baseline, same: Sequence[Baseline], name: str, asked: str | None) -> Baseline:
    """The model of the first run that has this name, or is the only one."""
    from pytest_rubrics.faults import Fault, FaultsError

    named = [scores for scores in same if scores.model == name]
    if named:
        return named[0]
    if len(same) == 1 and asked is None:
        return same[0]
    if not same:
        message = f"the first run has no {candidate.benchmark}, which a later one has."
        raise FaultsError([Fault("rubrics compare", message, fix="Compare runs of the same benchmark.")])
    message = f"which model of the first run is meant is not clear: {', '.join(scores.model for scores in same)}."
    raise FaultsError([Fault("rubrics compare", message, fix="Name it with --model.")])


def _show(baseline: Baseline, candidate: Baseline, options: argparse.Namespace) -> bool:
    """Print one comparison; whether it was allowed."""
    from pytest_rubrics.comparing import obstacles
    from pytest_rubrics.reporting.comparison import comparison_lines

    reasons = obstacles(baseline, candidate)
    title = f"{candidate.benchmark}: {candidate.model} against {baseline.model}"
    say(f" {title} ".center(80, "="))
    if reasons and not options.force:
        complain(f"{title}: not comparable, because {'; '.join(reasons)}. --force shows it all the same.")
        return False
    if reasons:
        say(f"NOT COMPARABLE, shown by --force: {'; '.join(reasons)}")
    for line in comparison_lines(baseline, candidate, options.changed):
        say(line)
    return True


def _show_reference(paths: Sequence[Path], rows: Sequence[ReferenceRow]) -> None:
    from pytest_rubrics.rebuilding import evidence_of, open_run
    from pytest_rubrics.reporting.comparison import reference_lines

    parts = []
    for run in [open_run(path) for path in paths if path.is_dir()]:
        parts += [(str(run.manifest["run"]), part) for part in evidence_of(run).parts.values() if part["tracks"]]
    say(" published results ".center(80, "="))
    for line in reference_lines(parts, rows):
        say(line)
