"""What cannot run on a cluster is said at once; none of this needs Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

NO_RAY = "\nimport sys\nsys.modules['ray'] = None\n"
SERVED = {"serve": {"command": ["server", "{port}"]}, "api_base": None}
WITH_BASH = {"kind": "agent", "tools": ["bash"]}


@pytest.fixture
def workspace(pytester: pytest.Pytester) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(pytester.path, server, keys(2))


def expect_fault(workspace: Workspace, *texts: str, arguments: tuple[str, ...] = (), **variables: str) -> None:
    outcome = workspace.pytest("--engine", "ray", *arguments, **variables)
    assert outcome.code == pytest.ExitCode.USAGE_ERROR, outcome.text
    for text in texts:
        assert text in outcome.text
    assert "Traceback" not in outcome.text
    assert workspace.server.count() == 0


def test_without_ray_the_extra_is_named(workspace: Workspace) -> None:
    with (workspace.root / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(NO_RAY)
    expect_fault(workspace, "Ray, which is not installed", "pip install 'pytest-rubrics[ray]'")
    assert workspace.pytest("--engine", "local").code == pytest.ExitCode.TESTS_FAILED


def test_the_workers_of_xdist_are_too_many(workspace: Workspace) -> None:
    expect_fault(workspace, "--engine ray: spreads the grades over a cluster by itself", arguments=("-n", "2"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [(SERVED, "local has a local server (serve)"), (WITH_BASH, "local keeps files between its steps (bash)")],
    ids=["serve", "bash"],
)
def test_what_is_bound_to_one_machine_is_refused(workspace: Workspace, settings: Mapping[str, Any], text: str) -> None:
    workspace.model(**settings)
    expect_fault(workspace, text)


def test_a_client_of_a_cluster_elsewhere_is_refused(workspace: Workspace) -> None:
    expect_fault(workspace, "names a Ray client", RAY_ADDRESS="ray://127.0.0.1:10001")


def test_a_cluster_that_is_not_there_is_one_clear_error(workspace: Workspace) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-rubrics[ray]'")
    expect_fault(workspace, "RAY_ADDRESS=127.0.0.1:9", RAY_ADDRESS="127.0.0.1:9")
