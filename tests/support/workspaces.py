"""Workspaces whose model and judge are on the test provider, and runs in them: real pytest, or the engine alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.grades import Grade
from pytest_rubrics.options import RunConfig, read_options
from pytest_rubrics.plan import Plan, make_plan
from pytest_rubrics.wiring import Seat, Wiring, wire
from pytest_rubrics.workspace import Workspace as Places
from tests.support.environments import neutral_environment
from tests.support.provider import Provider

BENCHMARK = "one_million_bench"
MODULE = f"benchmarks/{BENCHMARK}/test_{BENCHMARK}.py"
_CONFTEST = """
import os, sys

pytest_plugins = ["pytest_rubrics.plugin"]


def pytest_unconfigure(config):
    with open("imported.log", "a", encoding="utf-8") as file:
        file.write(f"{'litellm' in sys.modules}\\n")
"""
# Warnings are errors, as in strict projects; an order drawn by lot would make tests differ from run to run.
# Without plugins that no run here is about, and that take a sixth of its start.
_INI = """
[pytest]
testpaths = benchmarks
addopts = --import-mode=importlib -p no:randomly -p no:anyio -p no:hypothesispytest
filterwarnings = error
"""
_PRICE = {"input": 1.0, "output": 2.0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pytest process left behind."""

    code: int
    text: str
    folder: Path

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines of ``results.jsonl``."""
        return read_records(self.folder)

    @property
    def by_key(self) -> dict[str, dict[str, Any]]:
        """The lines by the key of their task."""
        return {record["key"]: record for record in self.records}

    @property
    def summary(self) -> dict[str, Any]:
        """The only part of ``summary.json``."""
        (part,) = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))["parts"]
        return dict(part)


class Workspace:
    """A folder with one benchmark, and a model and a judge that are on a test provider.

    Args:
        root: The folder.
        server: The provider.
        keys: Keys of the tasks; the bundled sample serves where there are none.
        client: What calls the provider. Importing LiteLLM takes longer than most runs here, so it is for tests to whose
            point it belongs; ``tests/calls/test_clients.py`` shows that both do the same.
    """

    def __init__(self, root: Path, server: Provider, keys: Sequence[str] = (), *, client: str = "openai") -> None:
        self.root = root
        self.server = server
        self.client = client
        self.cache = root / ".cache" / "replies"
        self._write("conftest.py", _CONFTEST)
        self._write("pytest.ini", _INI)
        self.module("def test_task(grade):\n    grade.check()\n")
        self.source = ["--source", str(write_tasks(root / "data", keys))] if keys else []
        self.model()
        self.judge()

    def module(self, text: str) -> None:
        """Write the test module."""
        self._write(MODULE, text)

    def add_to_conftest(self, text: str) -> None:
        """Append to the root ``conftest.py``."""
        with (self.root / "conftest.py").open("a", encoding="utf-8") as file:
            file.write(text)

    def model(self, name: str = "local", **settings: Any) -> None:
        """Write a model's file; the settings join, or replace, those of a quick one with a price."""
        self._endpoint(f"configs/models/{name}.yaml", f"openai/model-{name}", settings)

    def judge(self, name: str = "local", **settings: Any) -> None:
        """Write a judge's file."""
        self._endpoint(f"judges/{name}.yaml", f"openai/judge-{name}", {"reply": "json_schema", **settings})

    def _endpoint(self, path: str, model: str, settings: Mapping[str, Any]) -> None:
        own = {"model": model, "api_base": self.server.url, "client": self.client}
        quick = {"timeout": 20, "retry_for": 5, "price": _PRICE}
        self._write(path, json.dumps({**own, **quick, **settings}))  # JSON is YAML

    def _write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def start(self, *arguments: str, run: str = "run", **variables: str) -> subprocess.Popen[str]:
        """Start pytest, in a session of its own so that signals reach nobody else."""
        # With a blank between, pytest would take a folder outside the workspace for its root folder.
        source = ["=".join(self.source)] if self.source else []
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", f"--run-dir={run}", *source, *arguments],
            cwd=self.root,
            env=neutral_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str], run: str = "run") -> Outcome:
        """Wait for the end of a pytest process."""
        text, _ = process.communicate(timeout=240)
        return Outcome(process.returncode, text, self.root / run)

    def pytest(self, *arguments: str, run: str = "run", **variables: str) -> Outcome:
        """Run pytest, with a name for its run folder and environment variables."""
        return self.finish(self.start(*arguments, run=run, **variables), run)

    def imported_litellm(self) -> bool:
        """Whether a process of the last run had LiteLLM in memory at its end; forgets it."""
        log = self.root / "imported.log"
        lines = log.read_text(encoding="utf-8").splitlines()
        log.unlink()
        return "True" in lines

    def plan(self, **options: Any) -> Plan:
        """The plan of a run with these options."""
        plan = make_plan(self._config(options), Places(self.root), [self.root / "benchmarks"], self.root)
        assert plan is not None
        return plan

    def _config(self, options: Mapping[str, Any]) -> RunConfig:
        source = {"source": self.source[1:]} if self.source else {}
        given = {"run_dir": str(self.root / "run"), **source, **options}
        return read_options(given, {}, self.root, self.root)

    @contextmanager
    def wired(
        self,
        plan: Plan,
        *,
        seat: Seat | None = None,
        held_back: Sequence[int] = (),
        stops_early: bool = False,
        expected: Sequence[float | None] = (),
    ) -> Iterator[Wiring]:
        """The running parts of a plan, without pytest."""
        (entry,) = plan.benchmarks.values()
        cases = [(entry, case) for case in entry.cases.values()]
        wiring = wire(
            plan,
            cases,
            seat or Seat(),
            held_back=held_back,
            stops_early=stops_early,
            warn=_unexpected,
            expected=expected,
        )
        try:
            yield wiring
        finally:
            message = wiring.close()
            assert message is None, message

    def grades(self, **options: Any) -> list[Grade]:
        """All grades of a run with these options, made by the engine in this process."""
        plan = self.plan(**options)
        with self.wired(plan) as wiring:
            return [wiring.engine.grade(index, tick=lambda: None) for index in range(len(wiring.engine.jobs))]

    def grades_of_workers(self, count: int, **options: Any) -> list[Grade]:
        """All grades of a run that so many engines share, as the workers of pytest-xdist do."""
        plan = self.plan(**options)

        def work(number: int) -> dict[int, Grade]:
            with self.wired(plan, seat=Seat(number, count)) as wiring:
                indices = range(number, len(wiring.engine.jobs), count)
                return {index: wiring.engine.grade(index, tick=lambda: None) for index in indices}

        with ThreadPoolExecutor(count) as pool:
            made = {index: grade for part in pool.map(work, range(count)) for index, grade in part.items()}
        return [made[index] for index in sorted(made)]

    def grade(self, **options: Any) -> Grade:
        """The only grade of a run."""
        (grade,) = self.grades(**options)
        return grade


def write_tasks(folder: Path, keys: Sequence[str]) -> Path:
    """Write a data set with a task for each key, whose text names the key, and return its folder."""
    rows = [
        {
            "id": f"00000000-0000-4000-8000-{number:012}",
            "case_id": key,
            "language": "global",
            "system_prompt": "",
            "question": question(key),
            "tags": {
                "topics": ["Law"],
                "time_sensitivity": {"time_sensitivity": "Time-agnostic", "year_month": "NA", "day": "NA"},
            },
            "rubrics": [
                {
                    "rubric_number": n,
                    "rubric_detail": f"Point {n} of {key}.",
                    "rubric_weight": weight,
                    "rubric_tag": tag,
                }
                for n, weight, tag in ((1, 10, "Factual Information"), (3, 6, "Others"), (7, -5, "Others"))
            ],
        }
        for number, key in enumerate(keys)
    ]
    (folder / "law").mkdir(parents=True, exist_ok=True)
    (folder / "law" / "test.json").write_text(json.dumps(rows), encoding="utf-8")
    return folder


def question(key: str) -> str:
    """The question of a task that `write_tasks` writes."""
    return f"What does the law say of case <{key}>, and what would you advise the client?"


def keys(count: int) -> list[str]:
    """Keys of so many tasks."""
    return [f"t{number:03}" for number in range(count)]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``results.jsonl``."""
    text = (folder / "results.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition; fail when it does not come about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


def _unexpected(sentence: str) -> None:
    raise AssertionError(f"unexpected warning: {sentence}")
