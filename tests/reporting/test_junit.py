"""What pytest's own ``--junitxml`` says of grades."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from tests.support.faults import Fault, error, openai_error
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

KEYS = keys(6)
SCHEMA = Path(__file__).parents[1] / "support" / "junit.xsd"
# From docs/reports.md, for readers that validate by Jenkins' junit-10.xsd.
STRICT = """
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    report.user_properties = []
"""


def faults(path: Path, *, strict: bool) -> list[str]:
    """What a validator finds, by the common schema or by the strict one that knows no properties below a case."""
    schema = SCHEMA.read_text(encoding="utf-8")
    below_a_case = '<xs:element name="properties" type="properties" minOccurs="0"/>'
    assert schema.count(below_a_case) == 1
    validator = xmlschema.XMLSchema(schema.replace(below_a_case, "") if strict else schema)
    return [str(error.reason) for error in validator.iter_errors(str(path))]


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["alone", "xdist"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: Provider) -> Path:
    """The report of a run in which one task is excluded."""
    workspace = Workspace(tmp_path_factory.mktemp("workspace"), server, KEYS)
    server.faults.add(Fault(error(400, openai_error("bad \0 \x1b[31m request ]]>")), match="<t002>"))
    path = workspace.root / "junit.xml"
    outcome = workspace.pytest("--junitxml", str(path), *request.param)
    assert outcome.code == 1, outcome.text
    return path


@pytest.fixture
def suite(report: Path) -> ElementTree.Element:
    (found,) = ElementTree.fromstring(report.read_text(encoding="utf-8"))
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


def test_it_is_valid_by_the_common_schema(report: Path) -> None:
    assert faults(report, strict=False) == []


def test_by_the_strict_schema_only_the_properties_of_cases_are_too_many(report: Path) -> None:
    found = faults(report, strict=True)
    assert len(found) == len(KEYS)
    assert all("'properties'" in fault for fault in found)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_three_lines_make_it_strictly_valid(tmp_path: Path, server: Provider, workers: tuple[str, ...]) -> None:
    workspace = Workspace(tmp_path, server, KEYS[:2])
    conftest = tmp_path / "conftest.py"
    conftest.write_text(conftest.read_text(encoding="utf-8") + STRICT, encoding="utf-8")
    outcome = workspace.pytest("--junitxml", str(tmp_path / "junit.xml"), *workers)
    assert faults(tmp_path / "junit.xml", strict=True) == []
    assert len(outcome.records) == 2
    documented = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    assert STRICT.strip() in documented
