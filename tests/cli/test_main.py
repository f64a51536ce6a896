from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_rubrics import __version__
from pytest_rubrics.cli import COMMANDS
from tests.support.command import rubrics


def test_the_help_names_every_command(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "--help")
    assert found.returncode == 0
    assert all(f" {command.name.split()[0]} " in found.stdout for command in COMMANDS)


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    assert rubrics(tmp_path, "--version").stdout == f"pytest-rubrics {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "rubrics: error: a subcommand is missing"),
        (["cache"], "rubrics cache: error: a subcommand is missing"),
        (["gate", "run"], "rubrics gate: error: the following arguments are required: --gate"),
        (["reprot"], "invalid choice: 'reprot'"),
    ],
)
def test_a_wrong_command_line_ends_with_4_as_in_pytest(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    found = rubrics(tmp_path, *arguments)
    assert found.returncode == 4
    assert complaint in found.stderr
    assert found.stdout == ""


def test_faults_go_to_standard_error_with_4_and_without_a_traceback(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "describe", "one_milion_bench")
    assert found.returncode == 4
    assert found.stdout == ""
    assert found.stderr == (
        "1 fault:\n  one_milion_bench: there is no such benchmark. Known: one_million_bench, researchrubrics. "
        "Did you mean one_million_bench?\n"
    )


def test_an_error_of_the_system_is_a_fault_too(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    found = rubrics(tmp_path, "init", "taken/inside")
    assert found.returncode == 4
    assert "taken" in found.stderr
    assert "Traceback" not in found.stderr


def test_chinese_text_does_not_end_the_output_where_it_cannot_be_shown(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "describe", "one_million_bench", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert found.returncode == 0, found.stderr
    assert "\\u6cd5\\u5f8b" in found.stdout


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_rubrics", "describe", "one_million_bench"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0
    process.stderr.close()


def test_no_heavy_library_is_loaded_for_the_help() -> None:
    heavy = {"litellm", "pydantic", "diskcache", "numpy", "yaml"}
    code = "import sys; from pytest_rubrics.cli import main; import pytest_rubrics.cli as c; c._parser();"
    found = subprocess.run(
        [sys.executable, "-c", f"{code} print(*sorted({heavy!r} & set(sys.modules)))"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert found.stdout.strip() == ""


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "describe", "c0ffee-c0ffee-c0ffee", SOME_API_KEY="c0ffee-c0ffee-c0ffee")
    assert found.returncode == 4
    assert "there is no such benchmark" in found.stderr
    assert "c0ffee" not in found.stderr
