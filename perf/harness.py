"""What the scripts of this folder share: data sets of any size, workspaces, the local server, and commands measured."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
Client = Literal["litellm", "openai"]
TASKS_PER_FILE = 400
DOMAINS = {
    "economics_and_finance": ("Economics and Finance", "经济金融"),
    "healthcare_and_medicine": ("Healthcare and Medicine", "医疗健康"),
    "industry": ("Industry", "工业"),
    "law": ("Law", "法律"),
    "natural_science": ("Natural Sciences", "自然科学"),
}
WORDS = [
    "assess",
    "the",
    "exposure",
    "of",
    "a",
    "leveraged",
    "fund",
    "under",
    "the",
    "revised",
    "rule",
    "and",
    "state",
    "which",
    "filings",
    "follow",
    "by",
    "when",
]
HANZI = "请结合最新规定分析该基金在杠杆条件下的风险敞口并说明应在何时提交哪些材料及其依据"


@dataclass(frozen=True, slots=True)
class Measured:
    """One command.

    Attributes:
        wall: Seconds from start to end.
        cpu: Seconds of user and system time, its children included.
        peak: Highest resident memory of the largest single process, in MiB.
        output: What it printed.
    """

    wall: float
    cpu: float
    peak: float
    output: str


def measure(
    command: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    watch: Callable[[int], None] = lambda process: None,
) -> Measured:
    """Run a command to its end; what is to watch it meanwhile is given its process id.

    Raises:
        SystemExit: It ended with a code that pytest does not use for finished runs (0 and 1).
    """
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT)
        watch(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{text[-3000:]}")
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def pytest_command(python: str | Path, *arguments: str | Path) -> list[str | Path]:
    """Pytest without the plugins that happen to be installed beside; see `plain_environment`."""
    return [python, "-m", "pytest", "-p", "xdist", "-q", "-q", *arguments]


def plain_environment(**more: str) -> dict[str, str]:
    """The environment of a user who has nothing else installed: other pytest plugins cost seconds of their own."""
    return {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}


# Data


def write_tasks(folder: Path, count: int, seed: int = 0) -> Path:
    """Write a OneMillion-Bench of any size in its published layout: half English, half Chinese, 11 to 37 criteria.

    Lengths follow the published set: prompts of about 1,500 characters, rubrics of about 3,500.
    """
    rng = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {domain: [] for domain in DOMAINS}
    for number in range(count):
        domain = list(DOMAINS)[number // 2 % len(DOMAINS)]
        rows[domain].append(_row(rng, number, DOMAINS[domain][number % 2], chinese=bool(number % 2)))
    for domain, tasks in rows.items():
        (folder / domain).mkdir(parents=True)
        (folder / domain / "test.json").write_text(json.dumps(tasks, ensure_ascii=False), encoding="utf-8")
    return folder


def write_research_task(folder: Path, criteria: int, seed: int = 0) -> Path:
    """Write a ResearchRubrics of one task in its published layout, and its ready answer of 8 KB beside it."""
    rng = random.Random(seed)
    row = {
        "sample_id": "research",
        "domain": "Business",
        "conceptual_breadth": "Simple",
        "logical_nesting": "Shallow",
        "exploration": "Low",
        "prompt": _text(rng, 1500, chinese=False),
        "rubrics": [
            {
                "criterion": f"Point {place}: {_text(rng, 150, chinese=False)}",
                "weight": 3.0,
                "axis": "Explicit Criteria",
            }
            for place in range(criteria)
        ],
    }
    folder.mkdir(parents=True)
    (folder / "processed_data.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    answer = {"task_id": "research", "answer": _text(rng, 8000, chinese=False)}
    (folder.parent / "answers.jsonl").write_text(json.dumps(answer) + "\n", encoding="utf-8")
    return folder


def _row(rng: random.Random, number: int, topic: str, *, chinese: bool) -> dict[str, Any]:
    criteria = rng.randint(11, 37)
    return {
        "id": f"{number:08d}-0000-4000-8000-000000000000",
        "case_id": number + 1,
        "language": "cn" if chinese else "global",
        "system_prompt": "",
        "question": f"Case {number}. " + _text(rng, rng.randint(300, 2700), chinese=chinese),
        "tags": {"topics": [topic], "time_sensitivity": {"time_sensitivity": "NA", "year_month": "NA"}},
        "rubrics": [
            {
                "rubric_number": place,
                "rubric_detail": f"Point {place}: " + _text(rng, rng.randint(40, 180), chinese=chinese),
                "rubric_weight": rng.randint(3, 12) if place % 6 else -rng.randint(3, 20),
                "rubric_tag": "Factual Information",
            }
            for place in range(1, criteria + 1)
        ],
    }


def _text(rng: random.Random, length: int, *, chinese: bool) -> str:
    if chinese:
        return "".join(rng.choices(HANZI, k=length // 2))
    return ", ".join(rng.choices(WORDS, k=length // 40 + 1))


# A workspace and a server


def write_workspace(folder: Path, url: str, client: Client = "litellm", benchmark: str = "one_million_bench") -> Path:
    """A workspace with one benchmark, whose model and judge are on the local server."""
    (folder / "benchmarks" / benchmark).mkdir(parents=True)
    name = f"test_{benchmark}.py"
    shutil.copy(ROOT / "benchmarks" / benchmark / name, folder / "benchmarks" / benchmark / name)
    (folder / "conftest.py").write_text('pytest_plugins = ["pytest_rubrics.plugin"]\n', encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = benchmarks\naddopts = --import-mode=importlib\n", "utf-8")
    chosen = "" if client == "litellm" else f"client: {client}\n"
    for place, model in (("configs/models/model.yaml", "answer"), ("judges/judge.yaml", "judge")):
        path = folder / place
        path.parent.mkdir(parents=True)
        price = "price: {input: 1.0, output: 2.0}\n"
        text = f"model: openai/{model}\napi_base: {url}\napi_key: none\n{chosen}{price}"
        path.write_text(text, encoding="utf-8")
    return folder


@contextmanager
def provider(*arguments: str | Path) -> Iterator[str]:
    """The local server in a process of its own; gives its URL."""
    script = ROOT / "tests" / "support" / "provider.py"
    command = [sys.executable, str(script), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise SystemExit("the local server did not start; it needs what the extra 'test' installs")
            yield url
        finally:
            process.terminate()


def health(url: str) -> dict[str, Any]:
    """What the server has counted: requests by kind, most in flight, and seconds from the first to the last."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/health", timeout=10) as reply:
        return dict(json.load(reply))


# Tables


def median_of(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    from tabulate import tabulate

    print(f"\n{title}\n")
    print(tabulate(rows, header, tablefmt="github", disable_numparse=True), flush=True)


def machine() -> str:
    """One line about this machine."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    return f"{os.cpu_count()} cores ({model}), Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
