"""Tests run as their grades are ready, and nothing else of pytest's loop is changed by that."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.workspaces import MODULE, Outcome, Workspace, keys, question, read_records, until

KEYS = keys(6)
SLOW = Fault(faults.slow(3), kind="answer", match=question(KEYS[0]))
# Writes what every hook and fixture meets; an item says which one it was told would be the next.
TRACE = """
import json
import pytest

LOG = open("trace.jsonl", "a", encoding="utf-8")


def write(*what):
    LOG.write(json.dumps(what) + "\\n")
    LOG.flush()


@pytest.fixture(scope="module", autouse=True)
def of_module(request):
    write("module up", request.node.name)
    yield
    write("module down", request.node.name)


@pytest.fixture(autouse=True)
def of_function(request):
    write("up", request.node.name)
    yield
    write("down", request.node.name)


def pytest_runtest_teardown(item, nextitem):
    write("next", item.name, nextitem and [nextitem.name, nextitem.parent.name])
"""


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=200) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Workspace:
    return Workspace(tmp_path, server, KEYS)


def order_of(outcome: Outcome) -> list[str]:
    """Keys of tasks in the order in which their lines were written."""
    return [record["key"] for record in outcome.records]


def trace_of(workspace: Workspace) -> list[list[object]]:
    lines = (workspace.root / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_slow_first_task_does_not_hold_back_the_lines_of_others(workspace: Workspace, server: Provider) -> None:
    server.faults.add(Fault(faults.hang(), kind="answer", match=question(KEYS[0])))
    process = workspace.start()
    results = workspace.root / "run" / "results.jsonl"
    until(lambda: results.exists() and len(read_records(workspace.root / "run")) == len(KEYS) - 1)
    process.kill()
    process.communicate(timeout=60)
    kept = read_records(workspace.root / "run")
    assert sorted(record["key"] for record in kept) == KEYS[1:]
    assert {record["state"] for record in kept} == {"scored"}


def test_the_slow_task_is_the_last_and_every_item_has_its_line(workspace: Workspace, server: Provider) -> None:
    server.faults.add(SLOW)
    outcome = workspace.pytest("--junitxml", "junit.xml", "--durations=1", "-vv")
    order = order_of(outcome)
    assert order[-1] == KEYS[0]
    assert sorted(order) == KEYS
    cases = list(ElementTree.parse(workspace.root / "junit.xml").iter("testcase"))
    seconds = {case.attrib["name"]: float(case.attrib["time"]) for case in cases}
    assert len(cases) == len(KEYS)
    (slowest,) = [name for name, took in seconds.items() if took >= 3]
    assert f"-{KEYS[0]}]" in slowest
    (line,) = [line for line in outcome.text.splitlines() if "s setup" in line]
    assert slowest in line


def test_fixtures_are_set_up_and_torn_down_as_in_any_order(workspace: Workspace, server: Provider) -> None:
    workspace.module(
        "class TestOne:\n    def test_task(self, grade):\n        pass\n\n\n"
        "def test_between():\n    pass\n\n\ndef test_again(grade):\n    pass\n"
    )
    other = workspace.root / Path(MODULE).parent / "test_other.py"
    other.write_text("def test_other(grade):\n    pass\n", encoding="utf-8")
    workspace.add_to_conftest(TRACE)
    server.faults.add(SLOW)
    outcome = workspace.pytest()
    trace = trace_of(workspace)
    modules = [line for line in trace if str(line[0]).startswith("module")]
    assert modules == [[way, name] for name in (Path(MODULE).name, other.name) for way in ("module up", "module down")]
    functions = [line for line in trace if line[0] in {"up", "down"}]
    assert [line[0] for line in functions] == ["up", "down"] * (3 * len(KEYS) + 1), outcome.text
    names = [str(line[1]) for line in functions[::2]]
    kinds = [name.partition("[")[0] for name in names]
    counts = {"test_task": len(KEYS), "test_between": 1, "test_again": len(KEYS), "test_other": len(KEYS)}
    assert kinds == [kind for kind, count in counts.items() for _ in range(count)]
    assert f"-{KEYS[0]}]" in names[len(KEYS) - 1]
    parents = {"test_task": "TestOne", "test_other": other.name}
    told = [line[2] for line in trace if line[0] == "next"]
    assert told[-1] is None
    for following, after in zip(told, kinds[1:], strict=False):
        assert isinstance(following, list)
        assert following[0].partition("[")[0] == after
        assert following[1] == parents.get(after, Path(MODULE).name)


@pytest.mark.parametrize("arguments", [["-x"], ["--maxfail=3"], ["--sw"], ["--ff"], ["--timeout=60"]], ids=" ".join)
def test_the_order_stays_where_something_hangs_on_it(
    workspace: Workspace, server: Provider, arguments: list[str]
) -> None:
    workspace.module("def test_task(grade):\n    pass\n")
    server.faults.add(Fault(faults.slow(1), kind="answer", match=question(KEYS[0])))
    assert order_of(workspace.pytest(*arguments)) == KEYS


def test_a_timeout_of_pytest_timeout_still_ends_the_test_that_waits(workspace: Workspace, server: Provider) -> None:
    server.faults.add(Fault(faults.hang(), kind="answer", match=question(KEYS[2])))
    workspace.model(timeout=8)  # the end waits for the call
    outcome = workspace.pytest("--timeout=4")
    assert outcome.by_key[KEYS[2]]["reason"] == "timeout"
    assert sorted(order_of(outcome)) == KEYS


def test_workers_keep_the_order_that_xdist_gives_them(workspace: Workspace, server: Provider) -> None:
    server.faults.add(Fault(faults.slow(1), kind="answer", match=question(KEYS[0])))
    outcome = workspace.pytest("-n", "1")
    assert order_of(outcome) == KEYS


def test_a_random_order_and_failed_ones_alone_run_as_they_are_ready(workspace: Workspace, server: Provider) -> None:
    workspace.module("def test_task(grade):\n    assert grade.case.task.key in {'t003', 't004'}\n")
    outcome = workspace.pytest("-p", "randomly", "-p", "no:cacheprovider", run="random")
    assert sorted(order_of(outcome)) == KEYS
    workspace.pytest(run="first")
    assert sorted(order_of(workspace.pytest("--lf", run="second"))) == [key for key in KEYS if key not in "t003 t004"]


def test_reruns_take_place_at_once(workspace: Workspace, server: Provider) -> None:
    workspace.module("def test_task(grade, request):\n    assert request.node.execution_count > 1\n")
    outcome = workspace.pytest("--reruns", "2")
    assert outcome.code == 0, outcome.text
    assert f"{len(KEYS)} passed, {len(KEYS)} rerun" in outcome.text
    assert sorted(order_of(outcome)) == KEYS


def test_skipped_tests_come_first_and_are_not_asked(workspace: Workspace, server: Provider) -> None:
    workspace.module(
        "import pytest\n\n\n"
        "@pytest.fixture(autouse=True)\n"
        "def _nothing():\n    pass\n\n\n"
        "def test_task(grade):\n    pass\n"
    )
    workspace.add_to_conftest(
        "\nimport pytest\n\n\ndef pytest_collection_modifyitems(items):\n    items[3].add_marker(pytest.mark.skip)\n",
    )
    outcome = workspace.pytest()
    assert order_of(outcome)[0] == KEYS[3]
    assert server.count("answer") == len(KEYS) - 1


def test_wrappers_of_other_plugins_go_around_the_loop(workspace: Workspace) -> None:
    workspace.add_to_conftest(
        "\nimport pytest\n\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtestloop(session):\n"
        "    print('before')\n    result = yield\n    print('after', session.testscollected, result)\n"
        "    return result\n",
    )
    outcome = workspace.pytest("-s")
    assert outcome.text.index("before") < outcome.text.index("after 6 True")


def test_another_plugins_loop_is_left_alone(workspace: Workspace, server: Provider) -> None:
    workspace.add_to_conftest(
        "\ndef pytest_runtestloop(session):\n"
        "    for number, item in enumerate(session.items):\n"
        "        following = session.items[number + 1] if number + 1 < len(session.items) else None\n"
        "        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)\n"
        "    return True\n",
    )
    server.faults.add(Fault(faults.slow(1), kind="answer", match=question(KEYS[0])))
    assert order_of(workspace.pytest()) == KEYS


def test_a_run_ends_where_the_session_is_told_to(workspace: Workspace, server: Provider) -> None:
    workspace.module(
        "def test_task(grade, request):\n"
        "    if grade.case.task.key == 't001':\n"
        "        request.session.shouldstop = 'enough'\n"
    )
    server.faults.add(Fault(faults.slow(2), kind="answer", match=question(KEYS[0])))
    outcome = workspace.pytest()
    assert outcome.code == pytest.ExitCode.INTERRUPTED
    assert "enough" in outcome.text
    assert outcome.by_key[KEYS[0]]["reason"] == "interrupted"
    assert sorted(order_of(outcome)) == KEYS


def test_collection_errors_end_the_run_before_anything_is_asked(workspace: Workspace, server: Provider) -> None:
    broken = workspace.root / Path(MODULE).parent / "test_broken.py"
    broken.write_text("import nothing_of_that_name\n", encoding="utf-8")
    outcome = workspace.pytest()
    assert outcome.code == pytest.ExitCode.INTERRUPTED, outcome.text
    assert server.count() == 0
