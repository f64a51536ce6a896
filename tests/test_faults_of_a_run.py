"""What is wrong is said at once, with its place and its mending, before anything is called."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.provider import Provider
from tests.support.workspaces import BENCHMARK, Outcome, Workspace, keys

XDIST = pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])


@pytest.fixture
def workspace(pytester: pytest.Pytester) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(pytester.path, server, keys(2))


def expect_faults(workspace: Workspace, outcome: Outcome, *texts: str) -> None:
    assert outcome.code == pytest.ExitCode.USAGE_ERROR, outcome.text
    for text in texts:
        assert text in outcome.text
    assert workspace.server.count() == 0
    assert "Traceback" not in outcome.text
    assert not outcome.folder.exists()


@XDIST
def test_faults_of_several_files_come_together(workspace: Workspace, workers: list[str]) -> None:
    (workspace.root / "configs/models/bad.yaml").write_text(
        "model: openai/x\napi_base: ${NO_SUCH_ADDRESS}\nparmas: {temperature: 1}\ntimeout: soon\n", encoding="utf-8"
    )
    (workspace.root / "judges/bad.yaml").write_text("model: openai/x\nreply: jsn_schema\n", encoding="utf-8")
    expect_faults(
        workspace,
        workspace.pytest(*workers, "--model", "bad", "--judge", "bad", "--gate", "complet"),
        "configs/models/bad.yaml:2, api_base",
        "NO_SUCH_ADDRESS",
        "configs/models/bad.yaml:3, parmas",
        "Did you mean params?",
        "configs/models/bad.yaml:4, timeout",
        "judges/bad.yaml:2, reply",
        "Did you mean complete?",
    )


@XDIST
def test_a_missing_key_is_said_before_the_first_call(workspace: Workspace, workers: list[str]) -> None:
    workspace.model("keyed", api_key="${NO_SUCH_KEY}")
    expect_faults(
        workspace, workspace.pytest(*workers, "--model", "keyed"), "configs/models/keyed.yaml:1, api_key", "NO_SUCH_KEY"
    )


def test_a_replay_needs_no_key(workspace: Workspace) -> None:
    workspace.model("keyed", api_key="${MY_TEST_KEY}")
    workspace.judge("keyed", api_key="${MY_TEST_KEY}")
    named = ["--model", "keyed", "--judge", "keyed"]
    first = workspace.pytest(*named, MY_TEST_KEY="sk-for-this-test-only")
    before = workspace.server.count()
    again = workspace.pytest(*named, run="again")
    assert [r["metrics"] for r in again.records] == [r["metrics"] for r in first.records]
    assert workspace.server.count() == before


def test_a_key_that_is_missed_after_all_excludes_what_needs_a_call(workspace: Workspace) -> None:
    workspace.model("keyed", api_key="${MY_TEST_KEY}")
    workspace.pytest("--model", "keyed", "-k", "t000", MY_TEST_KEY="sk-for-this-test-only")
    outcome = workspace.pytest("--model", "keyed", run="again")
    assert outcome.by_key["t000"]["state"] == "scored"
    assert outcome.by_key["t001"]["reason"] == "authentication"
    assert "MY_TEST_KEY" in outcome.by_key["t001"]["error"]


@XDIST
def test_every_bad_row_is_named_with_file_row_and_field(workspace: Workspace, workers: list[str]) -> None:
    path = workspace.root / "data/law/test.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows[0]["rubrics"][1]["rubric_weight"] = "6"
    rows[1]["tags"]["topics"][0] = "Lwa"
    del rows[1]["question"]
    path.write_text(json.dumps(rows), encoding="utf-8")
    expect_faults(
        workspace,
        workspace.pytest(*workers),
        "row 1, rubrics[1].rubric_weight",
        "row 2, question",
        "row 2, tags.topics[0]",
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--limit", "0"], "--limit: found '0', expected a whole number from 1"),
        (["--cache-mode", "ofline"], "Did you mean offline?"),
        (["--shard", "3/2"], "expected I/N with 1 <= I <= N"),
        (["--max-cost", "much"], "--max-cost: found 'much'"),
        (["--source", "nowhere"], "--source nowhere: does not exist"),
        (["--source", "one_milion_bench=full"], "Did you mean one_million_bench?"),
        (["--model", "lcoal"], "Did you mean local?"),
        (["--model", "local", "--model", "configs/models/local.yaml"], "two models have the name local"),
        (["--shard", "1/2", "--gate", "complete"], "rubrics merge"),
        (["--cache-mode", "offline", "--retry", "failed"], "--cache-mode offline forbids"),
    ],
)
def test_wrong_options_are_usage_errors(
    workspace: Workspace, pytester: pytest.Pytester, arguments: list[str], text: str
) -> None:
    result = pytester.runpytest_inprocess("--run-dir", "run", *workspace.source, *arguments)
    outcome = Outcome(int(result.ret), result.stdout.str() + result.stderr.str(), workspace.root / "run")
    expect_faults(workspace, outcome, text)


def test_wrong_environment_and_defaults_name_their_place(workspace: Workspace) -> None:
    (workspace.root / "configs/defaults.yaml").write_text("limit: 1\nconcurency: 8\n", encoding="utf-8")
    expect_faults(
        workspace,
        workspace.pytest(RUBRICS_REPEATS="none"),
        "configs/defaults.yaml:2, concurency",
        "Did you mean concurrency?",
        "RUBRICS_REPEATS: found 'none'",
    )


def test_the_command_line_beats_the_environment_which_beats_the_defaults(
    workspace: Workspace, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.root / "configs/defaults.yaml").write_text("repeats: 3\n", encoding="utf-8")
    collect = ["--collect-only", "-q", *workspace.source]
    pytester.runpytest_inprocess(*collect).stdout.fnmatch_lines("6 tests collected*")
    monkeypatch.setenv("RUBRICS_REPEATS", "2")
    pytester.runpytest_inprocess(*collect).stdout.fnmatch_lines("4 tests collected*")
    pytester.runpytest_inprocess(*collect, "--repeats", "1").stdout.fnmatch_lines("2 tests collected*")


def test_a_cache_directory_that_cannot_be_used_is_one_clear_error(workspace: Workspace) -> None:
    (workspace.root / "file").write_text("", encoding="utf-8")
    outcome = workspace.pytest("--cache-dir", "file")
    assert outcome.code == pytest.ExitCode.USAGE_ERROR
    assert "--cache-dir" in outcome.text
    assert "Traceback" not in outcome.text
    assert workspace.server.count() == 0


def test_unrelated_tests_are_left_alone(workspace: Workspace) -> None:
    (workspace.root / "test_other.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    (workspace.root / "configs/models/local.yaml").write_text("broken: [", encoding="utf-8")
    outcome = workspace.pytest("test_other.py")
    assert outcome.code == 0
    assert "rubrics" not in outcome.text.replace(str(workspace.root), "")
    assert BENCHMARK not in outcome.text
