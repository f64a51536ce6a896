"""What workers of pytest-xdist cost: one run of many tasks without and with workers, each with an empty cache.

Run it as ``python -m perf.workers [--source FOLDER] [--workers 0 2 8 32]``. Model and judge are a server that replies
after 200 ms. Without a source, 400 short tasks are made up; with one, a folder in the published layout, its tasks are
run. CPU seconds and memory (proportional set size) are those of the controller and all workers.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.support.provider import Provider, separate_provider
from tests.support.workspaces import Workspace, keys, read_records, write_tasks

TASKS = 400
LOOK_EVERY = 0.25  # seconds between two looks at the memory
LEFT_OUT = {"finished_at", "seconds", "cached", "spent_usd"}  # of a grade, what may differ from run to run


@dataclass(slots=True)
class Cost:
    """What a run took and gave."""

    wall: float
    cpu: float
    peak: float
    calls: list[int]
    grades: list[dict[str, Any]] = field(repr=False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The cost of workers.")
    parser.add_argument("--source", type=Path, help="folder in the published layout")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 8, 32], help="numbers for -n")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds before every reply")
    parser.add_argument("--concurrency", type=int, default=64, help="calls in flight")
    options = parser.parse_args()
    print("| workers | wall s | CPU s | peak MiB | answers | judgements | grades as with the first |")
    print("|---|---|---|---|---|---|---|")
    first: Cost | None = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = (options.source or write_tasks(folder / "data", keys(TASKS))).resolve()
        with separate_provider("--latency", str(options.latency), "--data", str(source)) as url:
            for number in options.workers:
                cost = _measure(
                    folder / str(number), url, [f"--source={source}", "-n", str(number)], options.concurrency
                )
                first = first or cost
                same = "yes" if cost.grades == first.grades else "NO"
                counted = " | ".join(map(str, cost.calls))
                print(
                    f"| -n {number} | {cost.wall:.1f} | {cost.cpu:.1f} | {cost.peak:.0f} | {counted} | {same} |",
                    flush=True,
                )


def _measure(folder: Path, url: str, arguments: list[str], concurrency: int) -> Cost:
    workspace = Workspace(folder, cast("Provider", SimpleNamespace(url=url)))
    before, began = _calls(url), time.monotonic()
    process = workspace.start("-q", "--concurrency", str(concurrency), *arguments)
    peak = max(_memory_until_its_end(process.pid), default=0.0)
    _, _, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    calls = [now - then for now, then in zip(_calls(url), before, strict=True)]
    return Cost(wall, used.ru_utime + used.ru_stime, peak, calls, _grades(folder / "run"))


def _calls(url: str) -> list[int]:
    """Answers and judgements that were asked for so far."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/health") as reply:
        counts = json.load(reply)
    return [counts["answer"], counts["judge"]]


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
    grades = [{name: value for name, value in record.items() if name not in LEFT_OUT} for record in read_records(run)]
    return sorted(grades, key=lambda grade: (grade["task_id"], grade["repeat"]))


if __name__ == "__main__":
    main()
