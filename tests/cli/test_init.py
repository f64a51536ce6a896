from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.command import rubrics
from tests.support.provider import Provider
from tests.support.workspaces import Workspace

FILES = {
    ".gitignore",
    "benchmarks/one_million_bench/test_one_million_bench.py",
    "benchmarks/researchrubrics/test_researchrubrics.py",
    "configs/defaults.yaml",
    "configs/gates/example.yaml",
    "configs/models/example.yaml",
    "conftest.py",
    "judges/example.yaml",
    "pyproject.toml",
}


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_pytest_works_in_a_new_workspace(tmp_path: Path) -> None:
    assert rubrics(tmp_path, "init", "ours").returncode == 0
    ours = tmp_path / "ours"
    assert files_in(ours) == FILES
    with Provider() as server:
        for place in ("configs/models", "judges"):
            name = "judge" if place == "judges" else "model"
            text = f"model: openai/{name}\napi_base: {server.url}\nprice: {{input: 1, output: 2}}\n"
            (ours / place / "test.yaml").write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "--model", "test", "--judge", "test", "--gate", "complete"],
            cwd=ours,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert server.count("answer") == 26  # the samples of both benchmarks
    assert "gate complete: PASS" in ran.stdout
    assert rubrics(ours, "gate", next((ours / "reports").iterdir()), "--gate", "complete").returncode == 0
    assert rubrics(ours, "describe", "researchrubrics").returncode == 0


def test_its_files_have_no_fault(tmp_path: Path) -> None:
    rubrics(tmp_path, "init", ".")
    with Provider() as server:
        workspace = Workspace(tmp_path / "other", server)  # only for its model and judge
        for place in ("configs/models", "judges"):
            (tmp_path / place / "local.yaml").write_bytes((workspace.root / place / "local.yaml").read_bytes())
        found = rubrics(tmp_path, "doctor")
    assert found.returncode == 0, found.stderr
    assert "files: 6 checked" in found.stdout


def test_it_ends_with_what_to_try(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "init", "our own/rubrics")
    assert found.stdout.count("wrote ") == len(FILES)
    assert "cd 'our own/rubrics'\n" in found.stdout
    assert "pytest --limit 1\n" in found.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "example.yaml").write_text("mine", encoding="utf-8")
    (tmp_path / "conftest.py").write_text("mine", encoding="utf-8")
    found = rubrics(tmp_path, "init", ".")
    assert found.returncode == 4
    assert found.stderr.startswith("2 faults:\n")
    assert "conftest.py: exists, and nothing is overwritten." in found.stderr
    assert files_in(tmp_path) == {"conftest.py", "judges/example.yaml"}
    assert (tmp_path / "conftest.py").read_text(encoding="utf-8") == "mine"
