"""How large reports are and what they cost: a table for runs of 400, 4,000 and 40,000 grades.

Run it as ``python perf/report_size.py [GRADES ...]``. Each run is simulated: four models, half of the tasks Chinese,
twelve criteria a task, an answer of 2 kB. Building is measured in a process of its own, in CPU seconds and peak memory.
The time to open is the browser's own, from the start of the navigation until the first table is drawn, the median of
five; it needs Chromium and the package's ``browser`` extra.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_rubrics.rebuilding import open_run
from pytest_rubrics.reporting.files import write_reports
from tests.support.browser import browser
from tests.support.runs import write_run

SIZES = (400, 4_000, 40_000)
MODELS = ("alpha", "beta", "gamma", "delta")
MIB = 1024 * 1024
_OPENED = "() => { const drawn = performance.getEntriesByName('drawn')[0]; return drawn ? drawn.startTime : null; }"
# The page is drawn when its first table stands in it, and the browser has painted once more.
_WATCH = """
new MutationObserver((_, watcher) => {
  if (document.querySelector("main table")) {
    watcher.disconnect();
    requestAnimationFrame(() => setTimeout(() => performance.mark("drawn")));
  }
}).observe(document, {childList: true, subtree: true});
"""


def build(folder: Path) -> dict[str, float]:
    """Write the reports of a run in this process, and say what that took."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    before = resource.getrusage(resource.RUSAGE_SELF)
    write_reports([(open_run(folder), summary)], folder)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = 1 if sys.platform == "darwin" else 1024
    return {"cpu_s": cpu, "peak_mib": after.ru_maxrss * unit / MIB}


def sizes(folder: Path) -> dict[str, float]:
    """Megabytes of the page, and of the data files beside it."""
    beside = sum(path.stat().st_size for path in (folder / "report_data").glob("*"))
    return {"html_mb": (folder / "report.html").stat().st_size / 1e6, "beside_mb": beside / 1e6}


def time_to_open(folder: Path, times: int = 5) -> float:
    """Milliseconds until the page shows its first table."""
    found = []
    with browser() as running:
        for _ in range(times):
            page = running.new_page()
            page.add_init_script(_WATCH)
            page.goto((folder / "report.html").as_uri())
            page.wait_for_function(_OPENED)
            found.append(float(page.evaluate(_OPENED)))
            page.close()
    return statistics.median(found)


def measure(grades: int, root: Path) -> list[str]:
    """A row of the table."""
    folder = write_run(root / str(grades), tasks=grades // len(MODELS), models=MODELS)
    command = [sys.executable, __file__, "--build", str(folder)]
    made = json.loads(subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout)
    found: dict[str, Any] = {**made, **sizes(folder)}
    try:
        opened = f"{time_to_open(folder):.0f}"
    except BaseException as error:  # noqa: BLE001  # a skip of pytest is not an Exception
        opened = f"- ({error})"
    numbers = [f"{found['cpu_s']:.1f}", f"{found['peak_mib']:.0f}", f"{found['html_mb']:.1f}"]
    return [f"{grades:,}", *numbers, f"{found['beside_mb']:.1f}", opened]


def main() -> None:
    """Print the table, or build one report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grades", nargs="*", type=int, default=SIZES)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        print(json.dumps(build(options.build)))
        return
    print("| grades | CPU s | peak MiB | report.html, MB | beside it, MB | ms to open |")
    print("|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as root:
        for grades in options.grades:
            print(f"| {' | '.join(measure(grades, Path(root)))} |", flush=True)


if __name__ == "__main__":
    main()
