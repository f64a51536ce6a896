"""Pytest writes the arguments of every frame when a run is interrupted or fails inside: they must stay short."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

COUNT = 30
LONGEST = 15_000  # characters, of a grade with its answer; an object that reaches the whole run has millions
OBSERVER = """
import gc, json

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session):
    result = yield
    gc.unfreeze()
    lengths = {}
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).startswith("pytest_rubrics."):
            lengths.setdefault(kind.__qualname__, []).append(len(repr(one)))
    worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
    with open(f"lengths-{worker}.json", "w", encoding="utf-8") as file:
        json.dump({name: max(some) for name, some in lengths.items()}, file)
    return result
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Provider(answer_bytes=200) as server:
        workspace = Workspace(tmp_path, server, keys(COUNT))
        workspace.add_to_conftest(OBSERVER)
        yield workspace


@pytest.mark.parametrize(
    ("workers", "who", "held"),
    [
        ((), "main", {"Engine", "Wiring", "Session", "Recorder", "Endpoint", "Grade"}),
        (("-n", "2"), "main", {"TaskScheduling", "Session", "Recorder"}),
        (("-n", "2"), "gw0", {"Engine", "Wiring", "Session", "Endpoint"}),
    ],
)
def test_no_object_writes_out_the_whole_run(
    workspace: Workspace, workers: tuple[str, ...], who: str, held: set[str]
) -> None:
    outcome = workspace.pytest(*workers)
    assert len(outcome.records) == COUNT, outcome.text
    lengths = json.loads((workspace.root / f"lengths-{who}.json").read_text(encoding="utf-8"))
    assert lengths.keys() >= held
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
