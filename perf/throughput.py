"""How near a run comes to what its endpoint allows, beside EvalScope on the same tasks: tables of perf/README.md.

Run it as ``python perf/throughput.py [--evalscope PYTHON] [--runs 5]``. It starts the local server of the tests, which
answers after a set time and knows the verdicts, writes 400 tasks in the published layout (11 to 37 criteria each),
and runs whole commands with a cold cache, one after the other, in turn. ``PYTHON`` is an interpreter of an environment
with ``evalscope==1.14.1``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import (
    Client,
    Measured,
    health,
    machine,
    measure,
    median_of,
    plain_environment,
    print_table,
    provider,
    pytest_command,
    write_research_task,
    write_tasks,
    write_workspace,
)

CLIENTS: dict[str, Client] = {"pytest": "litellm", "pytest, client: openai": "openai"}
TASKS = 400
CRITERIA = 25
LATENCY = 0.2
HEADER = ("command", "first to last request, s", "of the ideal", "most in flight", "wall, s", "CPU, s", "peak MiB")
Runner = Callable[[Path, Path, str, int], Measured]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: the command's own figures, and what the server saw."""

    measured: Measured
    span: float
    most: int


def rubrics(client: Client, *arguments: str) -> Runner:
    """Our own command."""

    def run(folder: Path, data: Path, url: str, concurrency: int) -> Measured:
        workspace = write_workspace(folder / "workspace", url, client)
        named = ("--model", "model", "--judge", "judge", f"--source={data}", "--concurrency", str(concurrency))
        return measure(pytest_command(sys.executable, *named, *arguments), workspace, plain_environment())

    return run


def plain_litellm(processes: int) -> Runner:
    """Scripts that only make the calls: what LiteLLM needs in one process or in several."""

    def run(folder: Path, data: Path, url: str, concurrency: int) -> Measured:
        script = Path(__file__).with_name("plain_litellm.py")
        share = concurrency // processes
        parts = [
            shlex.join(map(str, [sys.executable, "-W", "ignore", script, data, url, share, part, processes]))
            for part in range(processes)
        ]
        return measure(["sh", "-c", " & ".join([*parts, "wait"])], folder)

    return run


def evalscope(python: str) -> Runner:
    """EvalScope on the same tasks, with the same server as model and judge."""

    def run(folder: Path, data: Path, url: str, concurrency: int) -> Measured:
        local = folder / "data"
        local.mkdir()
        rows = [row for path in sorted(data.glob("*/test.json")) for row in json.loads(path.read_text("utf-8"))]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (local / "test.jsonl").write_text(text, encoding="utf-8")
        judge = {"model_id": "judge", "api_url": url, "api_key": "none", "generation_config": {"temperature": 0}}
        task = {
            "model": "answer",
            "api_url": url,
            "api_key": "none",
            "eval_type": "openai_api",
            "datasets": ["one_million_bench"],
            "dataset_args": {"one_million_bench": {"local_path": str(local)}},
            "eval_batch_size": concurrency,
            "judge": {"models": [judge]},
            "work_dir": str(folder / "outputs"),
        }
        program = f"from evalscope import TaskConfig, run_task\nrun_task(TaskConfig(**{task!r}))\n"
        return measure([python, "-c", program], folder)

    return run


def one(runner: Runner, data: Path, concurrency: int) -> Outcome:
    """One cold run against a server of its own.

    Raises:
        SystemExit: Not every task was answered and judged once.
    """
    with tempfile.TemporaryDirectory() as name, provider("--latency", str(LATENCY), "--data", data) as url:
        measured = runner(Path(name), data, url, concurrency)
        seen = health(url)
    if (seen["answer"], seen["judge"]) != (TASKS, TASKS):
        raise SystemExit(f"{seen['answer']} answers and {seen['judge']} verdicts for {TASKS} tasks:\n{measured.output}")
    return Outcome(measured, seen["span_seconds"], seen["max_in_flight"])


def compare(runners: dict[str, Runner], data: Path, concurrency: int, runs: int) -> None:
    """Run all in turn, and print the medians."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in runners}
    for number in range(runs):
        names = list(runners) if number % 2 == 0 else list(reversed(runners))
        for name in names:
            outcomes[name].append(one(runners[name], data, concurrency))
    ideal = 2 * TASKS * LATENCY / concurrency
    work = f"{TASKS} tasks, {LATENCY * 1000:.0f} ms a call, {concurrency} in flight"
    title = f"{work}; ideal {ideal:.2f} s; medians of {runs}"
    print_table(title, HEADER, [[name, *_row(some, ideal)] for name, some in outcomes.items()])


def _row(outcomes: Sequence[Outcome], ideal: float) -> list[str]:
    span = median_of([outcome.span for outcome in outcomes])
    return [
        f"{span:.2f}",
        f"{span / ideal:.2f}",
        f"{median_of([outcome.most for outcome in outcomes]):.0f}",
        f"{median_of([outcome.measured.wall for outcome in outcomes]):.1f}",
        f"{median_of([outcome.measured.cpu for outcome in outcomes]):.1f}",
        f"{median_of([outcome.measured.peak for outcome in outcomes]):.0f}",
    ]


def judge_research(client: Client, runs: int) -> list[str]:
    """Judge one ready answer by 25 criteria, a call each, with a cold cache."""
    spans = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name, provider("--latency", str(LATENCY)) as url:
            data = write_research_task(Path(name, "data"), CRITERIA)
            workspace = write_workspace(Path(name, "workspace"), url, client, "researchrubrics")
            ready = f"kind: recorded\nanswers: {name}/answers.jsonl\n"
            (workspace / "configs/models/model.yaml").write_text(ready, encoding="utf-8")
            named = ("--model", "model", "--judge", "judge", f"--source={data}")
            measured = measure(pytest_command(sys.executable, *named), workspace, plain_environment())
            seen = health(url)
        if seen["judge"] != CRITERIA:
            raise SystemExit(f"{seen['judge']} verdicts for {CRITERIA} criteria:\n{measured.output}")
        spans.append(seen["span_seconds"])
    return [client, f"{median_of(spans):.2f}", f"{min(spans):.2f} to {max(spans):.2f}"]


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalscope", metavar="PYTHON", help="an interpreter with evalscope==1.14.1")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    script: dict[str, Runner] = {"a script with LiteLLM": plain_litellm(1)}
    reference = {"evalscope 1.14.1": evalscope(options.evalscope)} if options.evalscope else {}
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        data = write_tasks(Path(name) / "data", TASKS)
        alone = {label: rubrics(client) for label, client in CLIENTS.items()}
        compare({**alone, **script, **reference}, data, 32, options.runs)
        two = {
            "pytest -n 2": rubrics("litellm", "-n", "2"),
            "pytest -n 2, client: openai": rubrics("openai", "-n", "2"),
            "two scripts with LiteLLM": plain_litellm(2),
        }
        compare({**alone, **script, **two, **reference}, data, 128, options.runs)
    rows = [judge_research(client, options.runs) for client in CLIENTS.values()]
    title = f"one ResearchRubrics task, {CRITERIA} criteria, {LATENCY * 1000:.0f} ms a call; medians of {options.runs}"
    print_table(title, ("client", "first to last request, s", "range"), rows)


if __name__ == "__main__":
    main()
