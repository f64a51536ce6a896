from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_rubrics.answering import command
from pytest_rubrics.faults import FaultsError
from tests.support.benchmarks import REPOSITORY
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys, question, until

ECHO = """
import json, sys
task = json.load(sys.stdin)
print(f"Report on {task['prompt']}")
"""


class Commands(Workspace):
    """A workspace whose model is a program."""

    def program(self, code: str, *arguments: str, **settings: Any) -> None:
        """Write the program and its model file."""
        self._write("agent.py", dedent(code))
        values = {"kind": "command", "command": [sys.executable, "agent.py", *arguments], "timeout": 60, **settings}
        self._write("configs/models/local.yaml", json.dumps(values))


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(truth=lambda body: {"1": True, "3": True, "7": False}) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Commands:
    return Commands(tmp_path, server, ["a"])


# What a program is given


def test_the_task_comes_on_standard_input_and_the_report_goes_to_standard_output(
    workspace: Commands, server: Provider
) -> None:
    workspace.program(ECHO)
    grade = workspace.grade()
    assert (grade.state, grade.score, grade.track) == ("scored", 1.0, "agent")
    assert grade.answer == f"Report on {question('a')}\n"
    assert grade.finish_reason == "stop"
    assert (server.count("judge"), server.count("answer")) == (1, 0)


def test_a_program_is_told_of_the_task_and_nothing_of_the_criteria(workspace: Commands) -> None:
    workspace.program("import sys; sys.stdout.write(sys.stdin.read())")
    answer = workspace.grade().answer
    assert answer is not None
    assert json.loads(answer) == {
        "benchmark": "one_million_bench",
        "task_id": "00000000-0000-4000-8000-000000000000",
        "key": "a",
        "subset": "global_law",
        "language": "en",
        "repeat": 1,
        "prompt": question("a"),
        "system_prompt": None,
    }


def test_files_and_names_take_their_places_in_the_arguments(workspace: Commands) -> None:
    code = """
    import json, sys
    task_file, report_file, names, literal = sys.argv[1:]
    prompt = json.load(open(task_file, encoding="utf-8"))["prompt"]
    print("no report")
    open(report_file.removeprefix("--to="), "w", encoding="utf-8").write(f"{prompt}|{names}|{literal}|报告")
    """
    names = "{task_id} {key} {subset} {repeat}"
    workspace.program(code, "{task_file}", "--to={report_file}", names, "$HOME; {1}")
    _, second = workspace.grades(repeats="2")
    expected = "00000000-0000-4000-8000-000000000000 a global_law 2"
    assert second.answer == f"{question('a')}|{expected}|$HOME; {{1}}|报告"


def test_the_environment_holds_what_the_file_names_and_little_else(
    workspace: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "sk-of-somebody-else-1")
    monkeypatch.setenv("MY_SEARCH_API_KEY", "key-of-mine-12345")
    code = """
    import json, os
    report = json.dumps(dict(os.environ))
    open("seen.json", "w", encoding="utf-8").write(report)
    print(report)
    """
    workspace.program(
        code,
        env={"SEARCH_API_KEY": "${MY_SEARCH_API_KEY}", "DEPTH": "3"},
        model="openai/gpt-5.4",
        api_base="http://127.0.0.1:1/v1",
        api_key="${MY_SEARCH_API_KEY}",
    )
    grade = workspace.grade()
    seen = json.loads((workspace.root / "seen.json").read_text(encoding="utf-8"))
    given = {
        "SEARCH_API_KEY": "key-of-mine-12345",
        "DEPTH": "3",
        "RUBRICS_MODEL": "openai/gpt-5.4",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "OPENAI_API_KEY": "key-of-mine-12345",
    }
    assert {name: seen.pop(name) for name in given} == given
    assert seen.keys() <= {*command.BASE_VARIABLES, "__CF_USER_TEXT_ENCODING"}
    assert seen["PATH"] == os.environ["PATH"]
    # What it printed is known to hold a secret, which goes no further.
    assert "key-of-mine" not in (grade.answer or "")
    assert b"key-of-mine" not in (workspace.cache / "cache.db").read_bytes()


def test_a_variable_that_is_not_set_is_named_and_needed_only_when_it_runs(workspace: Commands) -> None:
    workspace.program(ECHO, env={"SEARCH_API_KEY": "${RUBRICS_TEST_UNSET}"})
    grade = workspace.grade()
    assert (grade.state, grade.reason) == ("excluded", "authentication")
    assert grade.error is not None
    assert "RUBRICS_TEST_UNSET is not set" in grade.error


# Failures


@pytest.mark.parametrize(
    ("code", "settings", "reason", "error"),
    [
        ("", {}, "no_report", "the command wrote no report to its standard output"),
        ("print(' ')", {}, "no_report", "the command wrote no report to its standard output"),
        (
            "import sys; print('half a report'); sys.exit('disk is full')",
            {},
            "command_failed",
            "the command ended with exit code 1; its standard error ends: disk is full",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            {},
            "command_failed",
            "the command ended with exit code -9",
        ),
        (
            "import sys, time; print('x', file=sys.stderr, flush=True); print('half', flush=True); time.sleep(60)",
            {"timeout": 1.0},
            "timeout",
            "the command was ended after 1 s; its standard error ends: x",
        ),
    ],
)
def test_a_program_without_a_report_has_failed_for_good(
    workspace: Commands, code: str, settings: dict[str, Any], reason: str, error: str
) -> None:
    workspace.program(f"open('runs', 'a').write('x')\n{code}", **settings)
    for _ in range(2):  # the second time from the cache
        grade = workspace.grade()
        assert (grade.state, grade.reason, grade.error, grade.score) == ("failed", reason, error, 0.0)
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "x"
    workspace.program(ECHO, **settings)
    assert workspace.grade(retry="failed").state == "scored"


def test_a_report_file_that_is_not_written_is_no_report(workspace: Commands) -> None:
    workspace.program("print('a report')", "{report_file}")
    grade = workspace.grade()
    assert (grade.reason, grade.error) == ("no_report", "the command wrote no report to its report file")


def test_secrets_are_kept_out_of_errors(workspace: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SEARCH_API_KEY", "key-of-mine-12345")
    code = "import os, sys; sys.exit('refused: ' + os.environ['SEARCH_API_KEY'])"
    workspace.program(code, env={"SEARCH_API_KEY": "${MY_SEARCH_API_KEY}"})
    error = workspace.grade().error
    assert error is not None
    assert error.endswith("refused: ***")


def test_only_the_end_of_a_long_standard_error_is_kept(workspace: Commands) -> None:
    workspace.program("import sys; sys.stderr.write('x' * 9_000_000 + 'the end'); sys.exit(3)")
    error = workspace.grade().error
    assert error is not None
    assert error.endswith("the end")
    assert len(error) < 2_200


@pytest.mark.parametrize("to_file", [False, True])
def test_a_flood_is_cut_in_the_middle(workspace: Commands, to_file: bool) -> None:
    code = """
    import sys
    out = open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout
    out.write("begin" + "x" * 30_000_000 + "end")
    """
    workspace.program(code, *(["{report_file}"] if to_file else []))
    workspace.judge(context_limit=10**9)
    answer = workspace.grade().answer
    assert answer is not None
    assert answer.startswith("begin")
    assert answer.endswith("end")
    assert "bytes left out" in answer
    assert len(answer) < 8_100_000


def test_children_end_with_the_program(workspace: Commands) -> None:
    code = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid)
    """
    workspace.program(code)
    answer = workspace.grade().answer
    assert answer is not None
    until(lambda: not _is_alive(int(answer)), seconds=10)


def _is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_vanished_is_nobodys_failure(workspace: Commands) -> None:
    program = workspace.root / "run.sh"
    program.write_text("#!/bin/sh\necho report\n", encoding="utf-8")
    program.chmod(0o755)
    workspace.program("", command=["./run.sh"])
    plan = workspace.plan()
    program.unlink()
    with workspace.wired(plan) as wiring:
        grade = wiring.engine.grade(0, tick=lambda: None)
    assert (grade.state, grade.reason) == ("excluded", "error")
    assert "the command cannot be started" in (grade.error or "")


# The cache


def test_a_replay_runs_nothing_and_costs_nothing(workspace: Commands) -> None:
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}")
    first = workspace.grade()
    (workspace.root / "agent.py").unlink()
    again = workspace.grade(cache_mode="offline")
    assert (again.answer, again.metrics, again.keys) == (first.answer, first.metrics, first.keys)
    assert (first.cached["answer"], again.cached["answer"], again.spent_usd) == (False, True, 0.0)
    assert first.cost_usd["answer"] is None  # nobody knows what a program spends
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize("change", [{"version": 2}, {"env": {"DEPTH": "3"}}, {"model": "openai/other"}])
def test_what_may_change_the_report_is_run_anew(workspace: Commands, change: dict[str, Any]) -> None:
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}", version=1)
    workspace.grade()
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}", **{"version": 1, "timeout": 50, "max_concurrency": 2})
    workspace.grade()
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "x"
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}", **{"version": 1, **change})
    workspace.grade()
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "xx"


def test_repeats_are_runs_of_their_own(workspace: Commands) -> None:
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}")
    assert len(workspace.grades(repeats="3")) == 3
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "xxx"


def test_a_budget_counts_the_judge(workspace: Commands, server: Provider) -> None:
    workspace.program(ECHO)
    assert workspace.grade(max_cost="5").state == "scored"
    assert "--max-cost does not count what the command local spends" in " ".join(workspace.plan(max_cost="5").notes)


# Many at once


def test_as_many_programs_run_at_once_as_the_file_says(tmp_path: Path, server: Provider) -> None:
    workspace = Commands(tmp_path, server, keys(6))
    code = """
    import os, sys, time
    os.makedirs("now", exist_ok=True)
    open(f"now/{sys.argv[1]}", "w").close()
    here = len(os.listdir("now"))
    end = time.monotonic() + 30
    while here < 3 and not os.path.exists("met") and time.monotonic() < end:
        time.sleep(0.02)
        here = len(os.listdir("now"))
    open("met", "w").close()
    print(len(os.listdir("now")))
    os.remove(f"now/{sys.argv[1]}")
    """
    workspace.program(code, "{key}", max_concurrency=3)
    counts = [int(grade.answer or 0) for grade in workspace.grades()]
    assert max(counts) == 3


def test_two_processes_run_each_task_once(tmp_path: Path, server: Provider) -> None:
    workspace = Commands(tmp_path, server, keys(5))
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}")
    run = workspace.pytest("-n", "2")
    assert run.code == 0, run.text
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "xxxxx"
    assert [record["state"] for record in run.records] == ["scored"] * 5


def test_a_program_that_is_nearly_done_when_the_run_ends_is_not_run_again(tmp_path: Path, server: Provider) -> None:
    workspace = Commands(tmp_path, server, keys(1))
    workspace.program(f"import time\nopen('runs', 'a').write('x')\ntime.sleep(1)\n{ECHO}")
    process = workspace.start()
    until((workspace.root / "runs").exists)
    process.send_signal(signal.SIGINT)
    assert workspace.finish(process).code == 2
    assert workspace.pytest(run="again").code == 0
    assert (workspace.root / "runs").read_text(encoding="utf-8") == "x"


def test_an_interrupted_run_leaves_no_program_behind(tmp_path: Path, server: Provider) -> None:
    workspace = Commands(tmp_path, server, keys(2))
    code = """
    import os, time
    open(f"pid-{os.getpid()}", "w").close()
    time.sleep(600)
    """
    workspace.program(code, timeout=600)
    process = workspace.start()
    until(lambda: len(list(workspace.root.glob("pid-*"))) == 2)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    run = workspace.finish(process)
    assert time.monotonic() - began < 60
    pids = [int(path.name.removeprefix("pid-")) for path in workspace.root.glob("pid-*")]
    assert not any(_is_alive(pid) for pid in pids)
    assert [record["reason"] for record in run.records] == ["interrupted"] * 2


# The file


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"command": []}, "command: found a list, expected at least 1 entries"),
        ({"command": ["absent-program"]}, "command: there is no program absent-program that can be run, looked for on"),
        ({"command": ["./absent.sh"]}, "command: there is no program ./absent.sh that can be run, looked for "),
        ({"command": ["./agent.py"]}, "command: there is no program ./agent.py that can be run, looked for "),
        ({"command": ["python3", "{taskfile}"]}, "command: there is no place {taskfile}; places are {task_file}, "),
        ({"command": "python3 agent.py"}, 'command: found "python3 agent.py" (text), expected a list'),
        ({"params": {}}, "params: unknown key. Allowed are kind, command, track, env, model, api_base, api_key,"),
        ({"env": {"A": ["b"]}}, "env.A: found a list, expected text."),
    ],
)
def test_a_command_that_cannot_run_is_found_before_anything_is_called(
    workspace: Commands, settings: dict[str, Any], fault: str
) -> None:
    workspace.program("", **settings)
    with pytest.raises(FaultsError) as caught:
        workspace.plan()
    (found,) = caught.value.faults
    assert str(found).startswith(f"configs/models/local.yaml:1, {fault}")


def test_an_estimate_runs_no_program(workspace: Commands) -> None:
    workspace.program(f"open('runs', 'a').write('x')\n{ECHO}")
    run = workspace.pytest("--estimate")
    assert run.code == 0, run.text
    assert any(line.split()[:4] == ["judge", "local", "1", "0"] for line in run.text.splitlines())
    assert not (workspace.root / "runs").exists()


def test_the_examples_of_the_documentation_work(
    tmp_path: Path, server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (REPOSITORY / "docs" / "other_agents.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n# (\S+)\n(.*?)```", text, re.DOTALL)
    assert [name for _, name, _ in blocks] == [
        "configs/models/their-reports.yaml",
        "configs/models/my-agent.yaml",
        "my_agent.py",
    ]
    workspace = Workspace(tmp_path, server, ["a"])
    for _, name, content in blocks:
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "data" / "their-reports").mkdir()
    (tmp_path / "data" / "their-reports" / "a.md").write_text("Their report.", encoding="utf-8")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-1234567890")
    monkeypatch.setenv("SEARCH_API_KEY", "another-key-1234567890")
    theirs, mine = workspace.grades(model=["their-reports", "my-agent"])
    assert theirs.answer == "Their report."
    assert mine.answer == f"A report on: {question('a')}"
