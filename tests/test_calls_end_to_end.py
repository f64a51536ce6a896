"""What a run calls, through real pytest: nothing that was not selected, nothing twice, and no secret gets out."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys, question

KEYS = keys(8)
SECRET = "sk-this-key-must-stay-secret-4711"
TOKEN = "token-in-a-header-0815"
MARKS = """
import pytest


def pytest_collection_modifyitems(items):
    marks = {
        "t000": pytest.mark.skip(reason="not now"),
        "t001": pytest.mark.skipif(True, reason="never"),
        "t002": pytest.mark.skipif("sys.version_info > (3,)", reason="not in this Python"),
        "t003": pytest.mark.skipif(False, reason="does not apply"),
        "t004": pytest.mark.xfail(run=False, reason="hopeless"),
    }
    for item in items:
        for key, mark in marks.items():
            if key in item.name:
                item.add_marker(mark)
"""
SMALL_FILES = """
import resource


def pytest_sessionstart(session):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
"""


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=200) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Workspace:
    return Workspace(tmp_path, server, KEYS, client="litellm")


def asked(server: Provider) -> set[str]:
    """What the model was asked."""
    return {request.body["messages"][0]["content"] for request in server.requests if request.kind == "answer"}


@pytest.mark.parametrize(
    "arguments",
    [["--collect-only", "-q"], ["--setup-plan", "-n", "2"], ["-k", "nothing"], ["--estimate"]],
    ids=" ".join,
)
def test_nothing_is_called_where_nothing_runs(workspace: Workspace, server: Provider, arguments: list[str]) -> None:
    outcome = workspace.pytest(*arguments)
    assert outcome.code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}, outcome.text
    assert server.count() == 0
    assert not workspace.imported_litellm()
    assert not outcome.folder.exists()
    assert not workspace.cache.exists()


def test_only_what_is_selected_and_not_skipped_is_called(workspace: Workspace, server: Provider) -> None:
    workspace.add_to_conftest(MARKS)
    # Of every reply LiteLLM makes pydantic's core warn, which makes errors of warnings where it is not kept out.
    server.faults.add(Fault(faults.changed(lambda body: body.update(created=1.5))))
    outcome = workspace.pytest("-k", "not t005", "-rs")
    assert asked(server) == {question(KEYS[3]), question(KEYS[6]), question(KEYS[7])}
    assert (server.count("answer"), server.count("judge")) == (3, 3)
    records = outcome.by_key
    assert len(outcome.records) == len(records) == 7
    skipped = {"t000": "not now", "t001": "never", "t002": "not in this Python"}
    for key, why in skipped.items():
        assert (records[key]["state"], records[key]["reason"]) == ("excluded", "skipped")
        assert why in records[key]["error"]
    assert records["t004"]["state"] == "excluded"
    assert {records[key]["state"] for key in ("t003", "t006", "t007")} == {"scored"}


def test_a_run_that_stops_at_a_failure_leads_by_no_more_than_the_calls_in_flight(
    workspace: Workspace, server: Provider
) -> None:
    workspace.module("def test_task(grade):\n    assert grade.case.task.key != 't001'\n")
    outcome = workspace.pytest("-x", "--concurrency", "2")
    assert outcome.code == pytest.ExitCode.TESTS_FAILED
    assert asked(server) <= {question(key) for key in KEYS[:3]}
    assert [record["key"] for record in outcome.records] == KEYS
    assert [record["reason"] for record in outcome.records] == [None, None, *["interrupted"] * 6]


def test_workers_share_a_single_slot_also_when_calls_fail(workspace: Workspace, server: Provider) -> None:
    server.faults.add(
        Fault(faults.error(503, retry_after=0), times=2), Fault(faults.error(400), kind="answer", match=KEYS[2])
    )
    outcome = workspace.pytest("-n", "2", "--concurrency", "1")
    states = {record["key"]: (record["state"], record["reason"]) for record in outcome.records}
    assert states == {key: ("excluded", "bad_request") if key == "t002" else ("scored", None) for key in KEYS}
    assert server.max_in_flight == 1
    assert len([request for request in server.requests if request.status == 200]) == 2 * len(KEYS) - 2


def test_offline_needs_neither_calls_nor_litellm(workspace: Workspace, server: Provider) -> None:
    workspace.grades(limit="3")
    before = server.count()
    outcome = workspace.pytest("--cache-mode", "offline")
    assert [outcome.by_key[key]["reason"] for key in KEYS] == [None] * 3 + ["cache_miss"] * 5
    assert server.count() == before
    assert not workspace.imported_litellm()


def test_a_cache_that_cannot_be_used_is_one_clear_error(workspace: Workspace, server: Provider) -> None:
    (workspace.root / "file").write_text("", encoding="utf-8")
    outcome = workspace.pytest("--cache-dir", "file/replies", "-n", "2")
    assert outcome.code == pytest.ExitCode.USAGE_ERROR, outcome.text
    (error,) = re.findall("ERROR: .*", outcome.text)
    assert "file/replies cannot be opened: " in error
    assert "Traceback" not in outcome.text
    assert server.count() == 0


def test_no_secret_gets_out(workspace: Workspace, server: Provider) -> None:
    endpoint: dict[str, Any] = {"api_key": "${TEST_KEY}", "headers": {"X-Auth-Token": "${TEST_TOKEN}"}}
    workspace.model(**endpoint)
    workspace.judge(**endpoint)
    body = f'{{"detail": "no choices for {SECRET}", "{TOKEN}": "{SECRET}"}}'
    server.faults.add(
        Fault(faults.echo_secret(status=400), kind="answer", match=KEYS[0]),
        Fault(faults.text(body), kind="answer", match=KEYS[1]),
        Fault(faults.echo_secret(status=422), kind="judge", match=KEYS[2]),
        Fault(faults.echo_secret(status=401), kind="judge", match=KEYS[7]),
    )
    outcome = workspace.pytest("--junitxml", "junit.xml", "-rA", "-v", TEST_KEY=SECRET, TEST_TOKEN=TOKEN)
    assert {request.headers["Authorization"] for request in server.requests} == {f"Bearer {SECRET}"}
    assert {request.headers["X-Auth-Token"] for request in server.requests} == {TOKEN}
    reasons = [outcome.by_key[key]["reason"] for key in KEYS]
    assert reasons[:3] == ["bad_request", "malformed_response", "bad_request"]
    assert reasons[7] == "authentication"
    assert "***" in outcome.by_key[KEYS[0]]["error"]

    hidden = [text.encode() for text in (SECRET, TOKEN)]
    hidden += [base64.b64encode(text) for text in hidden]
    written = [path for path in workspace.root.rglob("*") if path.is_file()]
    assert {"cache.db", "results.jsonl", "junit.xml", "manifest.json"} <= {path.name for path in written}
    for content in (outcome.text.encode(), *(path.read_bytes() for path in written)):
        assert not any(secret in content for secret in hidden)


def test_a_full_disk_stops_launching_and_loses_no_reply(tmp_path: Path) -> None:
    with Provider(answer_bytes=30_000) as server:
        workspace = Workspace(tmp_path, server, keys(60), client="litellm")
        workspace.add_to_conftest(SMALL_FILES)
        outcome = workspace.pytest("-n", "2", "--concurrency", "4")
        assert outcome.code == pytest.ExitCode.TESTS_FAILED, outcome.text
        assert len(outcome.records) == 60
        states = {(record["state"], record["reason"]) for record in outcome.records}
        assert states == {("scored", None), ("excluded", "error")}
        assert server.count("answer") < 60

        spilled = [Path(name) for name in re.findall(r"rubrics cache import (\S+)", outcome.text)]
        assert 1 <= len(spilled) <= 2  # a worker that met the full disk before a call has none
        rows = [json.loads(line) for path in spilled for line in path.read_text(encoding="utf-8").splitlines()]
        assert any(isinstance(row["value"], dict) and row["value"].get("content") for row in rows)

        with workspace.wired(workspace.plan(cache_mode="offline")) as wiring:
            for path in spilled:
                assert wiring.store.import_spilled(path) > 0
                path.unlink()
        assert {grade.state for grade in workspace.grades()} == {"scored"}
        assert (server.count("answer"), server.count("judge")) == (60, 60)


def test_the_times_in_records_are_those_of_the_calls(workspace: Workspace) -> None:
    with Provider(latency=0.1, answer_bytes=200) as slow:
        workspace.server = slow
        workspace.model(timeout=30)
        workspace.judge(timeout=30)
        started = time.monotonic()
        grades = workspace.grades(concurrency="1")
        took = time.monotonic() - started
    seconds = [part for grade in grades for part in grade.seconds.values()]
    assert all(one >= 0.1 for one in seconds)
    assert sum(seconds) <= took  # with one slot the calls follow each other: waiting must not be counted


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_a_run_by_openais_sdk_never_imports_litellm_and_leaves_no_warning(
    workspace: Workspace, server: Provider, arguments: list[str]
) -> None:
    settings: dict[str, Any] = {"client": "openai", "price": None}
    workspace.model(**settings)
    workspace.judge(**settings, reply="auto")
    outcome = workspace.pytest(*arguments, "-W", "error")
    assert [record["state"] for record in outcome.records] == ["scored"] * len(KEYS), outcome.text
    assert [record["cost_usd"] for record in outcome.records] == [{"answer": None, "judge": None}] * len(KEYS)
    assert "nclosed" not in outcome.text
    assert not workspace.imported_litellm()
    manifest = json.loads((outcome.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["models"]["local"]["client"] == "openai"


@pytest.mark.parametrize(("first", "then"), [("litellm", "openai"), ("openai", "litellm")])
def test_another_client_replays_what_one_has_paid(
    workspace: Workspace, server: Provider, first: str, then: str
) -> None:
    def grades(client: str) -> list[dict[str, Any]]:
        workspace.model(client=client, params={"temperature": 0, "stop": None, "top_k": 3}, extra_body={"a": 1})
        workspace.judge(client=client, reply="auto", verdict="text")
        outcome = workspace.pytest(run=client)
        kept = ("key", "state", "keys", "metrics", "verdicts", "usage", "cost_usd", "served_model")
        return sorted(({name: record[name] for name in kept} for record in outcome.records), key=lambda one: one["key"])

    paid = grades(first)
    calls = server.count()
    assert calls == 2 * len(KEYS)
    assert grades(then) == paid
    assert server.count() == calls
    workspace.pytest(run="again", RUBRICS_CACHE_MODE="refresh")
    assert server.count() == 2 * calls


def test_an_estimate_for_openais_sdk_needs_no_litellm(workspace: Workspace) -> None:
    workspace.model(client="openai", price=None)
    workspace.judge(client="openai", price=None)
    outcome = workspace.pytest("--estimate")
    assert outcome.code == pytest.ExitCode.OK, outcome.text
    assert not workspace.imported_litellm()
