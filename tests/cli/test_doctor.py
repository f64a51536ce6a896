from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.command import rubrics
from tests.support.provider import Provider
from tests.support.workspaces import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(tmp_path, server)


def write(workspace: Workspace, path: str, text: str) -> None:
    (workspace.root / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace.root / path).write_text(text, encoding="utf-8")


def test_a_sound_workspace_is_well(workspace: Workspace) -> None:
    found = rubrics(workspace.root, "doctor", OPENAI_API_KEY="sk-not-to-be-seen-1234567890", GROQ_API_KEY="")
    assert found.returncode == 0, found.stderr
    assert f"python {platform.python_version()} on " in found.stdout
    assert f"litellm {version('litellm')}, " in found.stdout
    assert f"workspace: {workspace.root}\n" in found.stdout
    assert "files: 2 checked\n" in found.stdout
    assert f"cache: {workspace.cache}, which the first run makes\n" in found.stdout
    assert "API keys that are set: OPENAI_API_KEY\n" in found.stdout
    assert "sk-not" not in found.stdout
    assert found.stdout.endswith("all is well\n")
    assert not workspace.cache.exists()


def test_every_fault_of_every_file_is_shown(workspace: Workspace) -> None:
    write(workspace, "configs/models/bad.yaml", "model: openai/x\nparam: {}\n")
    write(workspace, "configs/gates/bad.yaml", "coverage: 2\n")
    write(workspace, "configs/prices.yaml", "openai/x: {input: cheap, output: 1}\n")
    write(workspace, "configs/model/lost.yaml", "model: openai/x\n")
    write(workspace, "judges/bad.yml", "model: openai/x\n")
    write(workspace, "judges/worse.yaml", "model: [\n")
    write(workspace, "benchmarks/ours/benchmark.yaml", "title: Ours\n")
    write(workspace, "benchmarks/theirs/test_theirs.py", "def test_task(grade): ...\n")
    found = rubrics(workspace.root, "doctor")
    assert found.returncode == 1
    for fault in (
        "FAULT configs/models/bad.yaml:2, param: unknown key. Did you mean params?",
        "FAULT configs/gates/bad.yaml:1, coverage: ",
        "FAULT configs/prices.yaml:1, openai/x.input: ",
        "FAULT configs/model/lost.yaml: nothing reads this file.",
        "FAULT judges/bad.yml: nothing reads this file.",
        "FAULT judges/worse.yaml:",
        "benchmarks/ours/benchmark.yaml",
        "benchmarks/theirs: has test modules but no benchmark.yaml",
    ):
        assert fault in found.stderr
    assert "not all is well" in found.stdout
    assert "Traceback" not in found.stderr


def test_what_a_run_here_would_use_must_be_there(workspace: Workspace) -> None:
    write(workspace, "configs/defaults.yaml", "model: [local, gone]\ngate: completed\n")
    found = rubrics(workspace.root, "doctor")
    assert found.returncode == 1
    assert "there is no model named 'gone'" in found.stderr
    assert "Did you mean complete?" in found.stderr


def test_a_wrong_default_is_said_once(workspace: Workspace) -> None:
    write(workspace, "configs/defaults.yaml", "limit: many\n")
    found = rubrics(workspace.root, "doctor")
    assert found.returncode == 1
    assert found.stderr.count("FAULT configs/defaults.yaml:1, limit: ") == 1


def test_a_cache_that_cannot_be_opened_is_a_fault(workspace: Workspace) -> None:
    write(workspace, ".cache/replies", "a file stands where the folder should be")
    found = rubrics(workspace.root, "doctor")
    assert found.returncode == 1
    assert f"FAULT {workspace.cache}: " in found.stderr
