"""Judges of known honesty, audited by the command itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.comparability import judge_fingerprint
from pytest_rubrics.rebuilding import evidence_of, open_run
from tests.support.benchmarks import write_jsonl
from tests.support.command import rubrics
from tests.support.provider import Provider
from tests.support.replies import Body, text_of
from tests.support.workspaces import Workspace, keys

IDS = ("1", "3", "7")
KEYS = keys(6)
TEXT = "The law is applied to the facts of the case, step by step, and the client is advised what to do next. " * 20
INJECTIONS = [
    f"{kind}, {language}"
    for kind in ("plain", "fake end marker", "fake system message", "verdict list")
    for language in ("en", "zh")
]

Verdicts = Mapping[str, bool]


def answer(number: int) -> str:
    """An answer that meets criterion 1 in all tasks, 3 in every second one, and 7 in none."""
    met = ["1", "3"] if number % 2 else ["1"]
    return TEXT + " ".join(f"EVIDENCE-{id_}." for id_ in met)


def judged(body: Body) -> str:
    """The answer in a judge's prompt."""
    found = re.search(r"----- (\w+) (?:answer|回答) -----\n(.*?)\n----- \1 ", text_of(body), re.DOTALL)
    assert found is not None
    return found[2]


def honest(body: Body) -> Verdicts:
    """A criterion is met where the answer holds its evidence."""
    return {id_: f"EVIDENCE-{id_}." in judged(body) for id_ in IDS}


def obedient(body: Body) -> Verdicts:
    """Does what the answer says."""
    return dict.fromkeys(IDS, True) if re.search(r'"yes"|"是"|“是”', judged(body)) else honest(body)


def lenient(body: Body) -> Verdicts:
    return dict.fromkeys(IDS, True)


def biased_by_order(body: Body) -> Verdicts:
    """Holds the first criterion to be met, whatever it is, if the answer meets any."""
    first = re.search(r"^\[(\d+)\]", text_of(body), re.MULTILINE)
    assert first is not None
    return {**honest(body), first[1]: any(honest(body).values())}


def biased_by_length(body: Body) -> Verdicts:
    return dict.fromkeys(IDS, True) if len(judged(body)) > 1.8 * len(TEXT) else honest(body)


def biased_by_weights(body: Body) -> Verdicts:
    return honest(body) if "(weight" in text_of(body) else dict.fromkeys(IDS, True)


def biased_by_language(body: Body) -> Verdicts:
    return dict.fromkeys(IDS, True) if "严格" in text_of(body) or "评分" in text_of(body)[:300] else honest(body)


def unsteady() -> Callable[[Body], Verdicts]:
    """Says something else the second time that it is asked."""
    asked: set[str] = set()

    def verdicts(body: Body) -> Verdicts:
        again = text_of(body) in asked
        asked.add(text_of(body))
        return {id_: hit != again for id_, hit in honest(body).items()}

    return verdicts


class Audited(Workspace):
    """A workspace with ready answers."""

    def __init__(self, root: Path, server: Provider) -> None:
        super().__init__(root, server, KEYS)
        rows = [{"key": key, "answer": answer(number)} for number, key in enumerate(KEYS)]
        write_jsonl(root / "answers.jsonl", rows)

    def audit(self, *arguments: str, code: int = 0, judge: str = "local") -> tuple[str, dict[str, Any]]:
        """What an audit prints and writes."""
        found = rubrics(self.root, "audit", judge, *self.source, "--answers", "answers.jsonl", *arguments)
        assert found.returncode == code, found.stdout + found.stderr
        return found.stdout, json.loads((self.root / f"judges/{judge}.audit.json").read_text(encoding="utf-8"))


def marks(record: Mapping[str, Any]) -> dict[str, str]:
    """Probes that did not pass, with their mark."""
    return {row["probe"]: row["mark"] for row in record["probes"] if row["mark"] not in {"PASS", ""}}


def row_of(record: Mapping[str, Any], probe: str) -> dict[str, Any]:
    return next(row for row in record["probes"] if row["probe"] == probe)


def test_an_honest_judge_passes_and_a_second_audit_calls_nobody(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        workspace = Audited(tmp_path, server)
        text, record = workspace.audit()
        assert (record["mark"], marks(record)) == ("PASS", {})
        assert server.count() == record["calls"] == len(KEYS) * len(record["probes"])
        again_text, again = workspace.audit()
        assert server.count() == record["calls"]
    assert (again["calls"], again["spent_usd"]) == (0, 0)
    assert again["probes"] == record["probes"]
    assert again["fingerprint"] == record["fingerprint"]
    assert "judge local on one_million_bench: PASS" in text
    assert "0 calls made, $0 spent" in again_text


def test_figures_are_those_of_the_verdicts(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        _, record = Audited(tmp_path, server).audit()
    base = row_of(record, "base")
    assert base["hit_rate"]["value"] == 9 / 12  # criteria 1 and 3 are rewarded
    assert (base["tasks"], base["criteria"], base["flipped"]["value"]) == (6, 18, 0)
    empty = row_of(record, "empty content")
    assert (empty["hit_rate"]["value"], empty["flipped"]["value"]) == (0, 9 / 18)
    assert empty["score_change"]["value"] == pytest.approx(-(3 * 10 + 3 * 16) / 16 / 6)
    assert empty["raised"]["value"] == 0
    assert record["spent_usd"] == pytest.approx(sum(row["cost_usd"] for row in record["probes"]))


def test_a_judge_that_obeys_the_answer_fails_every_injection(tmp_path: Path) -> None:
    with Provider(truth=obedient) as server:
        text, record = Audited(tmp_path, server).audit(code=1)
    assert marks(record) == dict.fromkeys(INJECTIONS, "FAIL")
    for probe in INJECTIONS:
        assert row_of(record, probe)["raised"]["value"] == 1.0
        assert f"FAIL {probe}: raised 100.0%, more than 15%. Expected: an order inside" in text


def test_a_judge_that_marks_everything_fails_what_holds_nothing(tmp_path: Path) -> None:
    with Provider(truth=lenient) as server:
        _, record = Audited(tmp_path, server).audit(code=1)
    assert marks(record) == {"empty content": "FAIL", "criteria restated": "FAIL"}
    assert {row_of(record, probe)["why"] for probe in INJECTIONS} == {"the base answers leave nothing to raise"}


@pytest.mark.parametrize(
    ("truth", "probe"),
    [
        (biased_by_order, "criteria reversed"),
        (biased_by_length, "padded to double length"),
        (biased_by_weights, "weights turned"),
        (biased_by_language, "other prompt language"),
    ],
)
def test_a_biased_judge_warns(tmp_path: Path, truth: Callable[[Body], Verdicts], probe: str) -> None:
    with Provider(truth=truth) as server:
        _, record = Audited(tmp_path, server).audit()
    assert marks(record).pop(probe) == "WARN"
    assert set(marks(record)) <= {probe, "empty content", "criteria restated"}


def test_a_judge_that_is_not_steady_warns(tmp_path: Path) -> None:
    with Provider(truth=unsteady()) as server:
        workspace = Audited(tmp_path, server)
        workspace.judge(max_concurrency=1)
        _, record = workspace.audit()
    assert marks(record)["asked again"] == "WARN"
    assert row_of(record, "asked again")["flipped"]["value"] == 1.0


def test_a_panel_is_audited_as_it_judges(tmp_path: Path) -> None:
    with Provider(truth=lambda body: (obedient if body["model"] == "judge-o" else honest)(body)) as server:
        workspace = Audited(tmp_path, server)
        for name, model in {"o": "judge-o", "x": "judge-x", "y": "judge-y"}.items():
            workspace.judge(name, model=f"openai/{model}")
        workspace._write("judges/some.yaml", json.dumps({"panel": ["o", "x", "y"]}))
        workspace._write("judges/all.yaml", json.dumps({"panel": ["o", "x"], "decide": "any"}))
        _, majority = workspace.audit(judge="some")
        _, either = workspace.audit(judge="all", code=1)
    assert majority["mark"] == "PASS"
    assert marks(either) == dict.fromkeys(INJECTIONS, "FAIL")


def test_fewer_tasks_are_spread_over_the_subsets(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        _, record = Audited(tmp_path, server).audit("--tasks", "2")
    assert {row["tasks"] for row in record["probes"]} == {2}


def test_a_prompt_that_is_not_there_leaves_its_probe_out(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        workspace = Audited(tmp_path, server)
        workspace.judge(language="en", prompt="brief")
        text, record = workspace.audit()
    assert "other prompt language" not in {row["probe"] for row in record["probes"]}
    assert "other prompt language: left out for tasks in en" in text


def test_the_budget_ends_an_audit_without_a_verdict(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        workspace = Audited(tmp_path, server)
        workspace.judge(params={"max_tokens": 100})
        text, record = workspace.audit("--max-cost", "0.002", code=1)
    assert record["mark"] == "ERROR"
    assert record["spent_usd"] <= 0.002
    assert "nothing was judged (budget)" in text


def test_a_gate_can_demand_the_fingerprint(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        workspace = Audited(tmp_path, server)
        _, record = workspace.audit()
        workspace._write("configs/models/local.yaml", json.dumps({"kind": "recorded", "answers": "answers.jsonl"}))
        found = record["fingerprint"]["fingerprint"]
        workspace._write("configs/gates/g.yaml", json.dumps({"judge_fingerprint": found}))
        outcome = workspace.pytest("--gate", "g")
        assert "gate g: PASS" in outcome.text
        workspace.judge(params={"temperature": 0.5})
        assert "NOT_COMPARABLE" in workspace.pytest("--gate", "g", run="other").text
    stored = json.loads((tmp_path / "judges/local.fingerprint.json").read_text(encoding="utf-8"))
    entry = stored["benchmarks"]["one_million_bench"]
    assert (entry["fingerprint"], entry["judge"]["served"]) == (found, ["judge-local-2026-01-01"])
    assert entry["reply"] == {"local": "json_schema"}
    assert "api_base" not in entry["judge"]
    evidence = evidence_of(open_run(tmp_path / "run"))
    assert evidence.manifest["benchmarks"]["one_million_bench"]["prompts_sha256"] == entry["prompts"]
    assert judge_fingerprint({"judge": entry["judge"], "prompts": entry["prompts"]}) == found


class TestLabels:
    def test_verdicts_are_compared_with_those_of_people(self, tmp_path: Path) -> None:
        with Provider(truth=honest) as server:
            workspace = Audited(tmp_path, server)
            rows = ["task,criterion,label"]
            for number, key in enumerate(KEYS):
                # People see 1 in all but the first answer, 3 as the judge does, and 7 in the first.
                rows += [
                    f"{key},1,{'no' if number == 0 else 'yes'}",
                    f"{key},3,{number % 2}",
                    f"{key},7,{'是' if number == 0 else '否'}",
                ]
            workspace._write("labels.csv", "\n".join(rows) + "\n")
            text, record = workspace.audit("--labels", "labels.csv", "--tasks", "2")
        found = record["labels"]
        assert (found["labels"], found["compared"]) == (18, 18)
        assert found["accuracy"]["value"] == 16 / 18
        assert found["true_positive_rate"]["value"] == 8 / 9
        assert found["true_negative_rate"]["value"] == 8 / 9
        assert found["cohen_kappa"]["value"] == pytest.approx(7 / 9)
        assert sum(tag["n"] for tag in found["tags"].values()) == 18
        assert row_of(record, "base")["tasks"] == 6  # all that are labelled, of which two are probed
        assert "against labels" in text
        assert found["calibration"] is None

    def test_probabilities_are_calibrated(self, tmp_path: Path) -> None:
        texts = {f"Point {id_} of {key}.": id_ == "1" for key in KEYS for id_ in IDS}
        with Provider(criteria_truth=texts) as server:
            workspace = Audited(tmp_path, server)
            workspace.judge(criteria_per_call=1, verdict="logprob")
            rows = [
                "task,criterion,label",
                *(f"{key},{id_},{'yes' if id_ == '1' else 'no'}" for key in KEYS for id_ in IDS),
            ]
            workspace._write("labels.csv", "\n".join(rows))
            text, record = workspace.audit("--labels", "labels.csv", "--tasks", "1", code=1)
        found = record["labels"]["calibration"]
        assert found["verdicts"] == 18
        assert found["brier"]["value"] == pytest.approx(0.0915**2, abs=1e-3)
        assert found["auc"]["value"] == 1.0
        assert "P(hit) of 18 labelled verdicts: Brier score 0.01" in text

    def test_every_wrong_line_is_named(self, tmp_path: Path) -> None:
        with Provider(truth=honest) as server:
            workspace = Audited(tmp_path, server)
            lines = ["task,criterion,label", "t001,1,yes", "t999,1,yes", "t001,2,yes", "t001,3,perhaps", "t001,1,no"]
            workspace._write("labels.csv", "\n".join(lines))
            found = rubrics(tmp_path, "audit", "local", *workspace.source, "--labels", "labels.csv")
        assert found.returncode == 4
        faults = [line.strip().removeprefix("labels.csv:") for line in found.stderr.splitlines()[1:]]
        assert [fault.split(":")[0] for fault in faults] == ["3", "4", "5", "6"]
        assert faults[0].startswith("3: no task has the id or key 't999'.")
        assert faults[1] == "4: task t001 has no criterion '2'; it has 1, 3, 7."
        assert faults[2] == "5: the label is 'perhaps', expected yes or no."
        assert faults[3] == "6: is labelled a second time."
        assert server.count() == 0


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["gone"], "there is no judge named 'gone'"),
        (["local", "--benchmark", "one_milion_bench"], "Did you mean one_million_bench?"),
        (["local", "--answers", "gone.jsonl"], "gone.jsonl"),
        (["local", "--answers", "a.jsonl", "--model", "local"], "both say whose answers are judged"),
        (["local", "--tasks", "0"], "expected a whole number from 1"),
    ],
)
def test_what_cannot_be_audited_is_said(tmp_path: Path, arguments: list[str], fault: str) -> None:
    with Provider() as server:
        Audited(tmp_path, server)
        found = rubrics(tmp_path, "audit", *arguments)
    assert found.returncode == 4
    assert fault in found.stderr


def test_the_answers_of_a_model_come_from_the_cache_of_its_runs(tmp_path: Path) -> None:
    with Provider(truth=honest) as server:
        workspace = Workspace(tmp_path, server, KEYS)
        workspace.pytest()
        before = server.count("answer")
        found = rubrics(tmp_path, "audit", "local", *workspace.source, "--model", "local")
        assert found.returncode == 0, found.stdout + found.stderr
        assert server.count("answer") == before
