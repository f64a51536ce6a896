"""What a run costs that calls nobody: a replay from the cache, and the collection of many tasks.

Run it as ``python perf/replay.py [--runs 5]``: medians of whole commands. Data and server are those of
``throughput.py``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from harness import (
    Measured,
    health,
    machine,
    measure,
    median_of,
    plain_environment,
    print_table,
    provider,
    pytest_command,
    write_tasks,
    write_workspace,
)

REPLAYED = 400
COLLECTED = (400, 4_000, 40_000)
WITNESS = """
import atexit, sys
atexit.register(lambda: print("LiteLLM imported:", "litellm" in sys.modules, file=sys.stderr))
"""


def replay(folder: Path, runs: int) -> list[str]:
    """One run that pays, then those that are measured.

    Raises:
        SystemExit: A replay called the server, or imported LiteLLM.
    """
    data = write_tasks(folder / "data", REPLAYED)
    with provider("--data", data) as url:
        workspace = write_workspace(folder / "workspace", url, "openai")
        (workspace / "witness.py").write_text(WITNESS, encoding="utf-8")
        environment = plain_environment(PYTHONPATH=str(workspace))
        named = ("--model", "model", "--judge", "judge", f"--source={data}")
        command = pytest_command(sys.executable, "-p", "witness", *named)
        measure(command, workspace, environment)
        paid = health(url)
        measured = [measure(command, workspace, environment) for _ in range(runs)]
        if health(url)["answer"] != paid["answer"] or any("imported: True" in one.output for one in measured):
            raise SystemExit("a replay called somebody, or imported LiteLLM")
    return _row(f"replay of {REPLAYED} graded tasks", measured)


def collect(folder: Path, count: int, runs: int) -> list[str]:
    """Only list the tests."""
    data = write_tasks(folder / "data", count)
    workspace = write_workspace(folder / "workspace", "http://127.0.0.1:9/v1")
    command = pytest_command(
        sys.executable, "--collect-only", "--model", "model", "--judge", "judge", f"--source={data}"
    )
    return _row(
        f"--collect-only, {count:,} tasks", [measure(command, workspace, plain_environment()) for _ in range(runs)]
    )


def _row(name: str, measured: list[Measured]) -> list[str]:
    wall, cpu, peak = (median_of([getattr(one, field) for one in measured]) for field in ("wall", "cpu", "peak"))
    return [name, f"{wall:.2f}", f"{cpu:.2f}", f"{peak:.0f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    rows = []
    with tempfile.TemporaryDirectory() as name:
        rows.append(replay(Path(name, "replay"), options.runs))
        rows += [collect(Path(name, str(count)), count, options.runs) for count in COLLECTED]
    print_table(f"medians of {options.runs}", ("command", "wall, s", "CPU, s", "peak MiB"), rows)


if __name__ == "__main__":
    main()
