"""Memory of the process that keeps the book, for runs of growing size with long answers.

Run it as ``python perf/memory.py [--tasks 400] [--repeats 1 10 100] [-n WORKERS]``: answers of 30 KB, a cold cache;
40,000 grades take some minutes. The peaks are those that the kernel keeps of each process (``VmHWM``), read ten times a
second: of the process that was started, which is the controller where there are workers, and of the largest worker.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import (
    health,
    machine,
    measure,
    plain_environment,
    print_table,
    provider,
    pytest_command,
    write_tasks,
    write_workspace,
)

ANSWER = 30_000  # bytes
LOOK_EVERY = 0.1  # seconds
HEADER = ("grades", "peak MiB", "of the largest worker", "CPU, s", "wall, s")


@dataclass(slots=True)
class Peaks:
    """Highest resident memory in MiB, of a process and of the largest of its children."""

    own: float = 0.0
    child: float = 0.0

    def watch(self, process: int) -> None:
        """Look at a process until it has ended."""
        while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self.own = max(self.own, _high_water(process))
            self.child = max([self.child, *map(_high_water, _children(process))])
            time.sleep(LOOK_EVERY)


def _high_water(process: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _children(process: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()]
    return []


def run(tasks: int, repeats: int, workers: int) -> list[str]:
    """One cold run.

    Raises:
        SystemExit: Not every grade was answered once.
    """
    peaks = Peaks()
    with tempfile.TemporaryDirectory() as name:
        data = write_tasks(Path(name, "data"), tasks)
        with provider("--data", data, "--answer-bytes", str(ANSWER)) as url:
            workspace = write_workspace(Path(name, "workspace"), url, "openai")
            named = ("--model", "model", "--judge", "judge", f"--source={data}", "--repeats", str(repeats))
            spread = ("-n", str(workers)) if workers else ()
            command = pytest_command(sys.executable, *named, *spread, "--concurrency", "64")
            measured = measure(command, workspace, plain_environment(), peaks.watch)
            seen = health(url)
    if seen["answer"] != repeats * tasks:
        raise SystemExit(f"{seen['answer']} answers for {repeats * tasks} grades:\n{measured.output}")
    child = f"{peaks.child:.0f}" if workers else "-"
    return [f"{repeats * tasks:,}", f"{peaks.own:.0f}", child, f"{measured.cpu:.0f}", f"{measured.wall:.0f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("-n", type=int, default=0, dest="workers", help="workers of pytest-xdist")
    options = parser.parse_args()
    print(machine())
    rows = [run(options.tasks, repeats, options.workers) for repeats in options.repeats]
    print_table(f"{options.tasks:,} tasks, answers of {ANSWER:,} bytes", HEADER, rows)


if __name__ == "__main__":
    main()
