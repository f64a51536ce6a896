"""What pytest's own ``--junitxml`` says of grades."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.support.faults import Fault, error, openai_error
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

KEYS = keys(6)
# What Jenkins' schema knows below a case; properties below a case are pytest's own addition to it.
KNOWN = {"properties", "property", "skipped", "error", "failure", "system-out", "system-err"}


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["alone", "xdist"])
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: Provider
) -> ElementTree.Element:
    """The report of a run in which one task is excluded."""
    workspace = Workspace(tmp_path_factory.mktemp("workspace"), server, KEYS)
    server.faults.add(Fault(error(400, openai_error("bad \0 \x1b[31m request ]]>")), match="<t002>"))
    path = workspace.root / "junit.xml"
    outcome = workspace.pytest("--junitxml", str(path), *request.param)
    assert outcome.code == 1, outcome.text
    (found,) = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    return found


def cases(suite: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {case.get("name", "").rpartition("-")[2].rstrip("]"): case for case in suite.iter("testcase")}


def properties(case: ElementTree.Element) -> dict[str, str]:
    return {one.get("name", ""): one.get("value", "") for one in case.iter("property")}


def test_one_case_for_each_task(suite: ElementTree.Element) -> None:
    assert sorted(cases(suite)) == KEYS
    assert suite.get("tests") == "6"


def test_a_case_has_its_numbers(suite: ElementTree.Element) -> None:
    found = properties(cases(suite)["t000"])
    assert list(found) == ["state", "passed", "expert_score", "cost_usd", "spent_usd"]
    assert found["state"] == "scored"
    assert 0 <= float(found["expert_score"]) <= 1
    assert float(found["cost_usd"]) > 0


def test_excluded_is_an_error(suite: ElementTree.Element) -> None:
    case = cases(suite)["t002"]
    assert [child.tag for child in case] == ["properties", "error"]
    assert properties(case)["state"] == "excluded"
    assert "expert_score" not in properties(case)
    assert suite.get("errors") == "1"


def test_below_the_mark_is_a_failure_with_a_short_reason(suite: ElementTree.Element) -> None:
    failures = [failure for case in cases(suite).values() for failure in case.iter("failure")]
    assert suite.get("failures") == str(len(failures)) != "0"
    for failure in failures:
        assert "is below the pass mark 0.7" in failure.get("message", "")
        assert "Traceback" not in (failure.text or "")


def test_only_elements_that_readers_know(suite: ElementTree.Element) -> None:
    assert {element.tag for case in suite.iter("testcase") for element in case.iter()} - {"testcase"} <= KNOWN
