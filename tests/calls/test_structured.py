from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from aiohttp import web

from tests.support import faults
from tests.support.faults import Exchange, Fault
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys, question

KEYS = keys(12)
TRUTH = {question(key): {"1": True, "3": False, "7": False} for key in KEYS}
Form = Literal["json_schema", "json_object", "text"]
Open = Callable[..., Workspace]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Open]:
    """Opens a workspace on a server that accepts some forms of replies."""
    servers = []

    def open_(accepts: Form, *, ignore_format: bool = False, **judge: Any) -> Workspace:
        server = Provider(accepts=accepts, ignore_format=ignore_format, truth=TRUTH, answer_bytes=200)
        server.__enter__()
        servers.append(server)
        workspace = Workspace(tmp_path, server, KEYS, client="litellm")
        workspace.judge(**{"reply": "auto", **judge})
        return workspace

    yield open_
    for server in servers:
        server.__exit__(None, None, None)


def forms(server: Provider) -> list[str]:
    """The forms of reply that the judge was asked for, in order."""
    judged = [request.body for request in server.requests if request.kind == "judge"]
    return [(body.get("response_format") or {}).get("type", "text") for body in judged]


@contextmanager
def from_here(server: Provider) -> Iterator[list[str]]:
    """Gives the forms asked for inside the block, once it is left."""
    before, found = len(forms(server)), list[str]()
    yield found
    found += forms(server)[before:]


@pytest.mark.parametrize(
    ("accepts", "probes"),
    [("json_schema", []), ("json_object", ["json_schema"]), ("text", ["json_schema", "json_object"])],
)
def test_the_strongest_form_is_found_out(workspace: Open, accepts: Form, probes: list[str]) -> None:
    one = workspace(accepts)
    grades = one.grades()
    assert {grade.metrics["expert_score"] for grade in grades if grade.metrics} == {10 / 16}
    assert len(grades) == len(KEYS)
    asked = Counter(forms(one.server))
    assert asked.pop(accepts) == len(KEYS)
    assert set(asked) == set(probes)
    assert all(count <= len(KEYS) for count in asked.values())


def test_a_later_run_remembers_the_form(workspace: Open) -> None:
    one = workspace("json_object")
    one.grades(limit="2")
    with from_here(one.server) as asked:
        grades = one.grades()
    assert asked == ["json_object"] * (len(KEYS) - 2)
    assert all(grade.state == "scored" for grade in grades)


def test_a_replay_finds_the_same_keys(workspace: Open) -> None:
    one = workspace("text")
    grades = one.grades()
    before = one.server.count()
    replayed = one.grades(cache_mode="offline")
    assert one.server.count() == before
    assert [grade.keys for grade in replayed] == [grade.keys for grade in grades]
    assert [grade.metrics for grade in replayed] == [grade.metrics for grade in grades]


def test_nobody_waits_until_the_form_is_found_out(workspace: Open) -> None:
    one = workspace("json_schema")
    all_here = asyncio.Event()

    async def together(exchange: Exchange) -> web.StreamResponse:
        if one.server.count("judge") == len(KEYS):
            all_here.set()
        async with asyncio.timeout(60):
            await all_here.wait()
        return (await exchange.good()).response()

    one.server.faults.add(Fault(together, kind="judge"))
    assert all(grade.state == "scored" for grade in one.grades())


def test_several_processes_find_out(workspace: Open) -> None:
    one = workspace("json_object")
    grades = one.grades_of_workers(3)
    assert all(grade.state == "scored" for grade in grades)
    asked = Counter(forms(one.server))
    assert asked.pop("json_object") == len(KEYS)
    assert 1 <= asked["json_schema"] <= 3 * len(KEYS)


def test_a_reply_in_another_form_than_the_known_one_is_not_paid_for_again(workspace: Open) -> None:
    one = workspace("json_schema")
    one.server.faults.add(Fault(faults.error(400), kind="judge", match=question(KEYS[0]), times=1))
    grades = one.grades()
    assert Counter(forms(one.server)) == {"json_schema": len(KEYS), "json_object": 1}
    with from_here(one.server) as asked:
        assert [grade.keys for grade in one.grades()] == [grade.keys for grade in grades]
    assert asked == []


def test_an_endpoint_that_takes_less_than_before_is_asked_for_less(workspace: Open) -> None:
    one = workspace("json_schema")
    one.grades(limit="2")
    one.server.accept("json_object")
    grades = one.grades()
    assert all(grade.state == "scored" for grade in grades)
    with from_here(one.server) as asked:
        one.grades(repeats="2")
    assert asked == ["json_object"] * len(KEYS)


def test_a_server_that_ignores_the_form_is_read_all_the_same(workspace: Open) -> None:
    one = workspace("text", ignore_format=True)
    assert all(grade.state == "scored" for grade in one.grades())
    assert forms(one.server) == ["json_schema"] * len(KEYS)


@pytest.mark.parametrize("form", ["json_schema", "json_object", "text"])
def test_a_form_can_be_fixed(workspace: Open, form: Form) -> None:
    one = workspace("json_schema", reply=form)
    assert all(grade.state == "scored" for grade in one.grades())
    assert set(forms(one.server)) == {form}


def test_a_fixed_form_that_is_refused_is_a_bad_request(workspace: Open) -> None:
    one = workspace("text", reply="json_schema")
    assert {(grade.state, grade.reason) for grade in one.grades()} == {("excluded", "bad_request")}


def test_another_failure_of_the_first_call_teaches_nothing(workspace: Open) -> None:
    one = workspace("json_object")
    one.server.faults.add(Fault(faults.error(402), kind="judge", times=1))
    grades = one.grades(limit="1")
    assert [grade.reason for grade in grades] == ["credit"]
    with from_here(one.server) as asked:
        assert [grade.state for grade in one.grades(limit="1")] == ["scored"]
    assert asked == ["json_schema", "json_object"]


def test_a_first_call_that_fails_holds_nobody_up(workspace: Open) -> None:
    one = workspace("json_schema")
    one.server.faults.add(Fault(faults.error(500, retry_after=0), kind="judge", match=question(KEYS[0])))
    states = [grade.state for grade in one.grades()]
    assert states == ["excluded", *["scored"] * (len(KEYS) - 1)]


def test_a_request_that_is_refused_in_every_form_is_the_requests_own_fault(workspace: Open) -> None:
    one = workspace("json_schema")
    one.server.faults.add(Fault(faults.error(400), kind="judge", match=question(KEYS[0])))
    grades = one.grades()
    assert [grade.reason for grade in grades] == ["bad_request", *[None] * (len(KEYS) - 1)]
