"""Gates in real pytest processes: what they print, the exit code, and when pytest keeps its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import rubrics
from tests.support.faults import Fault, error
from tests.support.provider import Provider
from tests.support.workspaces import MODULE, Outcome, Workspace, keys, question

KEYS = keys(12)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace whose replies are all in the cache, with the baseline of its model."""
    with Provider() as server:
        workspace = Workspace(tmp_path_factory.mktemp("workspace"), server, KEYS)
        first = workspace.pytest(run="first")
        assert first.code == 1, first.text  # some tasks are below the pass mark
        found = rubrics(workspace.root, "baseline", "first", "--out", "baselines/main.json")
        assert found.returncode == 0, found.stderr
        yield workspace


def gate(workspace: Workspace, name: str, **rules: Any) -> None:
    path = workspace.root / "configs" / "gates" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rules), encoding="utf-8")


def decided(outcome: Outcome) -> dict[str, Any]:
    summary = json.loads((outcome.folder / "summary.json").read_text(encoding="utf-8"))
    return dict(summary["gate"])


MEAN = 0.5  # between the ends of the interval of twelve tasks

RULES: list[tuple[str, dict[str, Any], list[str], int]] = [
    ("baseline", {"baseline": {"file": "baselines/main.json"}}, [], 0),
    ("floor", {"floors": [{"mean": {"at_least": 0.99, "on": "estimate"}}]}, [], 1),
    ("undecided", {"floors": [{"mean": {"at_least": MEAN}}]}, [], 10),
    ("partial", {}, ["-k", "t001 or t002"], 12),
    ("limit", {}, ["--limit", "3"], 12),
    ("any", {"selection": "any"}, ["--limit", "3"], 0),
]


@pytest.mark.parametrize(("name", "rules", "arguments", "code"), RULES, ids=[rule[0] for rule in RULES])
def test_the_exit_code_is_the_gates_and_rubrics_gate_says_the_same(
    name: str, rules: dict[str, Any], arguments: list[str], code: int, workspace: Workspace
) -> None:
    gate(workspace, name, **rules)
    outcome = workspace.pytest("--gate", name, *arguments, run=f"run_{name}")
    assert outcome.code == code, outcome.text
    entry = decided(outcome)
    assert entry["exit_code"] == code
    assert outcome.text.splitlines()[-1] == f"gate {name}: {entry['verdict']} ({entry['reason']})"
    again = rubrics(workspace.root, "gate", f"run_{name}", "--gate", name)
    assert again.returncode == code
    assert again.stdout.splitlines()[-1] == outcome.text.splitlines()[-1]


def test_workers_change_nothing(workspace: Workspace) -> None:
    gate(workspace, "whole", baseline={"file": "baselines/main.json"})
    one = workspace.pytest("--gate", "whole", run="alone")
    two = workspace.pytest("--gate", "whole", "-n", "2", run="spread")
    assert (one.code, two.code) == (0, 0), two.text
    assert decided(one) == decided(two)


def test_what_was_excluded_is_low_coverage(tmp_path: Path) -> None:
    with Provider() as server:
        server.faults.add(Fault(error(401), kind="answer", match=question("t001")))
        workspace = Workspace(tmp_path, server, keys(3))
        gate(workspace, "all", floors=[{"mean": {"at_least": 0.0, "on": "estimate"}}])
        outcome = workspace.pytest("--gate", "all")
    assert outcome.code == 11, outcome.text
    assert decided(outcome)["verdict"] == "LOW_COVERAGE"
    assert "what is missing could bring the mean anywhere from " in outcome.text


def test_several_models_are_each_decided(workspace: Workspace) -> None:
    workspace.model("second")
    gate(workspace, "both", floors=[{"mean": {"at_least": 0.99, "on": "estimate"}}])
    outcome = workspace.pytest("--model", "local", "--model", "second", "--gate", "both", run="both")
    assert outcome.code == 1, outcome.text
    assert decided(outcome)["reason"].count("12 of 12 grades were made") == 2


def test_faults_of_a_gate_stop_a_run_before_anything_is_called(workspace: Workspace) -> None:
    gate(workspace, "broken", baseline={"file": "baselines/none.json"}, floors=[{"mean": {"at_leats": 1}}])
    gate(workspace, "lost", baseline={"file": "baselines/none.json"})
    gate(workspace, "mistyped", floors=[{"mean": {"at_least": 0.5}, "subset": "global_lwa"}])
    for name, fault in {
        "broken": "Did you mean at_least?",
        "lost": "configs/gates/lost.yaml, baseline.file: cannot be read as a baseline",
        "mistyped": "Did you mean global_law",
    }.items():
        outcome = workspace.pytest("--gate", name, run=name)
        assert outcome.code == 4, outcome.text
        assert fault in outcome.text
        assert not outcome.folder.exists()


def test_the_failure_of_another_test_keeps_pytests_code(tmp_path: Path) -> None:
    with Provider() as server:
        workspace = Workspace(tmp_path, server, keys(2))
        text = (tmp_path / MODULE).read_text(encoding="utf-8")
        workspace.module(f"{text}\n\ndef test_other():\n    raise AssertionError\n")
        gate(workspace, "all")
        outcome = workspace.pytest("--gate", "all")
    assert outcome.code == 1, outcome.text
    assert decided(outcome)["verdict"] is None
    assert "gate all: not decided, because " in outcome.text


def test_a_gate_that_fails_beats_a_pass_of_all_tests(tmp_path: Path) -> None:
    with Provider() as server:
        workspace = Workspace(tmp_path, server, keys(2))
        workspace.module("def test_task(grade):\n    pass\n")
        gate(workspace, "strict", max_cost_usd=0.0)
        outcome = workspace.pytest("--gate", "strict")
    assert outcome.code == 1, outcome.text
    assert "and the gate allows $0.00" in outcome.text
