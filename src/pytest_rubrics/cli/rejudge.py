"""The subcommand that judges stored answers anew."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.cli.command import argument, command, complain, find_benchmark, find_workspace, say

if TYPE_CHECKING:
    from pytest_rubrics.progress import ProgressLine, Snapshot

# Options of a run that matter here, too.
_OPTIONS = ("judge", "run_dir", "cache_dir", "cache_mode", "concurrency", "max_cost", "retry")


@command(
    "rejudge",
    "judge the stored answers of a run anew, into a new run folder; nothing is generated",
    argument("run", metavar="RUN", type=Path, help="folder of the run; it stays as it is"),
    argument("--judge", metavar="NAME", required=True, help="judges/NAME.yaml, a path, or a LiteLLM string"),
    argument("--run-dir", metavar="DIR", help="folder of the new run"),
    argument("--max-cost", metavar="USD", help="launch no call that could take the run past this many USD"),
    argument("--concurrency", metavar="N", help="calls in flight (32)"),
    argument("--cache-dir", metavar="DIR", help="folder of the paid replies, shared by runs"),
    argument("--cache-mode", metavar="MODE", help="rw, offline, refresh or off, as for pytest"),
    argument("--retry", metavar="WHAT", help="excluded, failed or all: ask anew, as for pytest"),
)
def rejudge(options: argparse.Namespace) -> None:
    """Judge every answer, showing the progress, then print the table of the new run."""
    from pytest_rubrics.cli.runs import report
    from pytest_rubrics.config import load_judge
    from pytest_rubrics.options import read_options
    from pytest_rubrics.rebuilding import open_run
    from pytest_rubrics.rejudging import Rejudging

    workspace, here = find_workspace(), Path.cwd()
    run = open_run(options.run)
    given = {name: getattr(options, name) for name in _OPTIONS}
    config = read_options(given, os.environ, workspace.root, here)
    names = [name for name, entry in run.manifest["benchmarks"].items() if entry["tasks"]]
    work = Rejudging(
        run,
        load_judge(config.judge, workspace, here),
        {name: find_benchmark(name, workspace) for name in names},
        workspace,
        config,
    )
    line = _progress(len(run.grades))

    def tick(snapshot: Snapshot) -> None:
        line.update("main", snapshot)
        line.tick()

    for _ in work.grades(complain, tick):
        line.done += 1
    if line.live:
        line.rewrite("")
    report.run(argparse.Namespace(runs=[config.run_dir], into=None))


def _progress(total: int) -> ProgressLine:
    """A line that is drawn over on a terminal, and written now and then elsewhere, beside the output."""
    from pytest_rubrics.progress import ProgressLine

    def rewrite(text: str) -> None:
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)

    return ProgressLine(total, sys.stderr.isatty(), rewrite, say)
