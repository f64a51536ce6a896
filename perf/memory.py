"""Memory of the process that keeps the book, for runs of growing size with long answers.

Run it as ``python perf/memory.py [--repeats 1 10 100] [-n WORKERS]``: 400 tasks, so many repeats, answers of 30 KB, a
cold cache; 100 repeats are 40,000 grades and take some minutes. With workers the peak is that of the largest process,
which may be a worker.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
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

TASKS = 400
ANSWER = 30_000  # bytes


def run(repeats: int, workers: int) -> list[str]:
    """One cold run.

    Raises:
        SystemExit: Not every grade was answered once.
    """
    with tempfile.TemporaryDirectory() as name:
        data = write_tasks(Path(name, "data"), TASKS)
        with provider("--data", data, "--answer-bytes", str(ANSWER)) as url:
            workspace = write_workspace(Path(name, "workspace"), url, "openai")
            named = ("--model", "model", "--judge", "judge", f"--source={data}", "--repeats", str(repeats))
            spread = ("-n", str(workers)) if workers else ()
            command = pytest_command(sys.executable, *named, *spread, "--concurrency", "64")
            measured = measure(command, workspace, plain_environment())
            seen = health(url)
    if seen["answer"] != repeats * TASKS:
        raise SystemExit(f"{seen['answer']} answers for {repeats * TASKS} grades:\n{measured.output}")
    return [f"{repeats * TASKS:,}", f"{measured.peak:.0f}", f"{measured.cpu:.0f}", f"{measured.wall:.0f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("-n", type=int, default=0, dest="workers", help="workers of pytest-xdist")
    options = parser.parse_args()
    print(machine())
    rows = [run(repeats, options.workers) for repeats in options.repeats]
    print_table(f"{TASKS} tasks, answers of {ANSWER:,} bytes", ("grades", "peak MiB", "CPU, s", "wall, s"), rows)


if __name__ == "__main__":
    main()
