"""The subcommand that works scores out anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_rubrics.cli.command import argument, command, say

SHOWN_CHANGES = 10


@command(
    "rescore",
    "work out every score of a run anew from its verdicts and weights, into a new folder; nothing is called",
    argument("run", metavar="RUN", type=Path, help="folder of the run; it stays as it is"),
    argument("--into", metavar="DIR", type=Path, help="folder of the new run; default: RUN-rescored"),
)
def rescore(options: argparse.Namespace) -> None:
    """Write the run with its scores, and say which became others."""
    from pytest_rubrics import rescoring
    from pytest_rubrics.rebuilding import open_run

    run = open_run(options.run)
    folder = options.into or options.run.with_name(f"{options.run.resolve().name}-rescored")
    changes = rescoring.rescore(run, folder)
    say(f"{len(changes)} of {len(run.grades)} grades have another score than was recorded.")
    for change in changes[:SHOWN_CHANGES]:
        say(f"  {change.name}: {_shown(change.before)} became {_shown(change.after)}")
    if len(changes) > SHOWN_CHANGES:
        say(f"  and {len(changes) - SHOWN_CHANGES} more")
    say(f"records: {folder}")


def _shown(score: float | None) -> str:
    return "none" if score is None else f"{score:.4f}"
