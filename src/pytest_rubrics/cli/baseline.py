"""The subcommand that writes what later runs are compared with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.cli.command import argument, command, find_workspace, say

if TYPE_CHECKING:
    from pytest_rubrics.baselines import Baseline


@command(
    "baseline",
    "write the scores of a run, task by task and without texts, as a small file to commit and to name in a gate",
    argument("run", metavar="RUN", type=Path, help="folder of a finished or merged run"),
    argument("--out", metavar="FILE", type=Path, help="default: baselines/BENCHMARK-MODEL.json in the workspace"),
    argument("--model", metavar="NAME", help="of several models, the one to take; all, a file each, if not given"),
)
def baseline(options: argparse.Namespace) -> None:
    """Write the baseline file of each benchmark and model of a run."""
    from pytest_rubrics.baselines import to_text
    from pytest_rubrics.faults import Fault, FaultsError
    from pytest_rubrics.rebuilding import scores_in
    from pytest_rubrics.records import replace_text
    from pytest_rubrics.redaction import redact

    found = scores_in(options.run)
    known = [scores.model for scores in found]
    chosen = [scores for scores in found if options.model in {None, scores.model}]
    if not chosen:
        message = f"has no grade of {options.model or 'any model'}."
        raise FaultsError([Fault(str(options.run), message, fix=f"It has {', '.join(known) or 'none'}.")])
    if options.out and len(chosen) > 1:
        message = f"cannot hold several: {', '.join(f'{scores.benchmark} of {scores.model}' for scores in chosen)}."
        raise FaultsError([Fault("--out", message, fix="Name one with --model, or leave --out away.")])
    folder = find_workspace().root / "baselines"
    for scores in chosen:
        path = options.out or folder / f"{scores.benchmark}-{scores.model}.json"
        replace_text(path, redact(to_text(scores)))
        _report(scores, path)


def _report(scores: Baseline, path: Path) -> None:
    graded = sum(task.score is not None for task in scores.tasks.values())
    say(f"{path}: {scores.model} on {graded} of {len(scores.tasks)} tasks of {scores.benchmark}")
    for name, value in scores.fingerprints.items():
        say(f"  {name} fingerprint {value}")
    if scores.selected < scores.whole:
        say(
            f"  PARTIAL: {scores.selected} of {scores.whole} grades were selected; a gate for the whole needs them all."
        )
    if graded < len(scores.tasks):
        say("  INCOMPLETE: what was excluded cannot be compared.")
