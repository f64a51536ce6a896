"""What workers of pytest-xdist cost: the same cold run without and with workers.

Run it as ``python perf/workers.py [--workers 0 2 8 32]``. Model and judge are the local server, which replies after 200
ms. CPU seconds and memory (proportional set size) are those of the controller and all workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import (
    Client,
    health,
    machine,
    plain_environment,
    print_table,
    provider,
    pytest_command,
    write_tasks,
    write_workspace,
)

TASKS = 400
LATENCY = 0.2
CONCURRENCY = 64
LOOK_EVERY = 0.25  # seconds between two looks at the memory
LEFT_OUT = {"finished_at", "seconds", "keys"}  # of a grade, what may differ from run to run: keys hold the address
HEADER = ("command", "wall, s", "CPU, s", "peak MiB", "answers", "verdicts", "grades as with the first")


@dataclass(slots=True)
class Cost:
    """What a run took and gave."""

    wall: float
    cpu: float
    peak: float
    calls: tuple[int, int]
    grades: list[dict[str, Any]] = field(repr=False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 8, 32], help="numbers for -n")
    parser.add_argument("--client", choices=["litellm", "openai"], default="litellm")
    options = parser.parse_args()
    print(machine())
    rows = []
    first: Cost | None = None
    with tempfile.TemporaryDirectory() as name:
        data = write_tasks(Path(name, "data"), TASKS)
        for number in options.workers:
            cost = _measure(Path(name, str(number)), data, number, options.client)
            first = first or cost
            same = "yes" if cost.grades == first.grades else "NO"
            figures = (f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{cost.peak:.0f}", *map(str, cost.calls), same)
            rows.append((f"-n {number}", *figures))
    print_table(f"{TASKS} tasks, {LATENCY * 1000:.0f} ms a call, {CONCURRENCY} in flight", HEADER, rows)


def _measure(folder: Path, data: Path, workers: int, client: Client) -> Cost:
    with provider("--latency", str(LATENCY), "--data", data) as url:
        workspace = write_workspace(folder, url, client)
        named = ("--model", "model", "--judge", "judge", f"--source={data}", "--run-dir=run", "-n", str(workers))
        command = pytest_command(sys.executable, *named, "--concurrency", str(CONCURRENCY))
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=workspace, env=plain_environment(), stdout=subprocess.DEVNULL, start_new_session=True
        )
        peak = max(_memory_until_its_end(process.pid), default=0.0)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
        seen = health(url)
    calls = seen["answer"], seen["judge"]
    return Cost(wall, used.ru_utime + used.ru_stime, peak, calls, _grades(workspace / "run"))


def _memory_until_its_end(session: int) -> Iterator[float]:
    """MiB of all processes of a session, again and again until its leader has ended."""
    while os.waitid(os.P_PID, session, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        yield sum(_memory(int(entry.name)) for entry in Path("/proc").iterdir() if _is_of(entry, session))
        time.sleep(LOOK_EVERY)


def _is_of(entry: Path, session: int) -> bool:
    with suppress(OSError):
        return entry.name.isdigit() and os.getsid(int(entry.name)) == session
    return False


def _memory(process: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _grades(run: Path) -> list[dict[str, Any]]:
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines()
    grades = [{name: value for name, value in json.loads(line).items() if name not in LEFT_OUT} for line in lines]
    return sorted(grades, key=lambda grade: (grade["task_id"], grade["repeat"]))


if __name__ == "__main__":
    main()
