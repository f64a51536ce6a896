from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.estimating import AGENT_CALLS, count_tokens, estimate
from pytest_rubrics.recorder import Selected
from pytest_rubrics.rehearsing import ANSWER_TOKENS, VERDICT_TOKENS
from tests.support.faults import Fault, content, no_choices
from tests.support.provider import Provider
from tests.support.workspaces import Outcome, Workspace, keys, question

CRITERIA = 3  # of each task


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=200) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Workspace:
    return Workspace(tmp_path, server, keys(4))


class Estimate:
    """The lines of an estimate, read."""

    def __init__(self, lines: list[str]) -> None:
        self.text = "\n".join(lines)
        names = ("calls", "cached", "in", "out", "cost", "most")
        self.rows: dict[str, dict[str, str]] = {}
        for line in lines:
            if found := re.match(r"((?:model|judge) \S+) {2,}(\S.*)", line):
                self.rows[found[1]] = dict(zip(names, found[2].split(), strict=True))
            if line.startswith("total "):
                self.total = dict(zip(("calls", "cached", "cost", "most"), line.split()[1:], strict=True))

    def __getitem__(self, name: str) -> dict[str, str]:
        return self.rows[name]

    def calls(self, name: str) -> tuple[int, int]:
        """Calls to make, and calls whose replies are stored."""
        return int(self.rows[name]["calls"]), int(self.rows[name]["cached"])


def estimated(workspace: Workspace, only: str = "", **options: Any) -> Estimate:
    """Estimate in this process, perhaps for one task."""
    plan = workspace.plan(**options)
    (entry,) = plan.benchmarks.values()
    selected = [Selected(entry, case) for case in entry.cases.values() if only in case.task.key]
    return Estimate(estimate(plan, selected))


def shown(outcome: Outcome) -> Estimate:
    assert outcome.code == 0, outcome.text
    return Estimate(outcome.text.splitlines())


class TestNothingHappens:
    def test_a_first_estimate_calls_nobody_needs_no_key_and_writes_nothing(
        self, workspace: Workspace, server: Provider
    ) -> None:
        workspace.model(api_key="${NOBODY_HAS_THIS_API_KEY}")
        before = {path for path in workspace.root.rglob("*") if "__pycache__" not in path.parts}
        outcome = workspace.pytest("--estimate", "-p", "no:cacheprovider")
        found = shown(outcome)
        assert found.calls("model local") == found.calls("judge local") == (4, 0)
        assert "estimate for 4 grades; nothing was called" in outcome.text
        assert server.count() == 0
        after = {path for path in workspace.root.rglob("*") if "__pycache__" not in path.parts}
        assert after - before == {workspace.root / "imported.log"}
        assert not workspace.imported_litellm()

    def test_it_stays_in_one_process_under_xdist(self, workspace: Workspace) -> None:
        outcome = workspace.pytest("--estimate", "-n", "2")
        assert shown(outcome).calls("model local") == (4, 0)
        assert "workers" not in outcome.text

    def test_it_is_for_what_is_selected(self, workspace: Workspace) -> None:
        assert shown(workspace.pytest("--estimate", "-k", "t001 or t002")).calls("judge local") == (2, 0)

    def test_a_cache_is_only_read(self, workspace: Workspace, server: Provider) -> None:
        workspace.pytest("-k", "t000", "--gate", "complete")
        files = {path: path.read_bytes() for path in workspace.cache.rglob("*.db")}
        asked = server.count()
        shown(workspace.pytest("--estimate", run="other"))
        assert {path: path.read_bytes() for path in workspace.cache.rglob("*.db")} == files
        assert server.count() == asked
        assert not (workspace.root / "other").exists()

    def test_a_cache_that_cannot_be_used_is_said(self, workspace: Workspace) -> None:
        workspace.cache.mkdir(parents=True)
        (workspace.cache / "cache.db").write_bytes(b"")
        (workspace.cache / "owners").write_bytes(b"")  # where a folder should be
        found = estimated(workspace)
        assert "as if nothing were stored: The reply cache " in found.text
        assert found.calls("model local") == (4, 0)


class TestLengths:
    def test_without_stored_replies_stated_lengths_are_assumed(self, workspace: Workspace) -> None:
        found = estimated(workspace, only="t000")
        assert int(found["model local"]["in"]) == count_tokens(question("t000"))
        assert found["model local"]["out"] == "3k"
        assert int(found["judge local"]["out"]) == VERDICT_TOKENS * CRITERIA
        assert f"model local: {ANSWER_TOKENS:,} tokens a reply are assumed, none is stored" in found.text
        assert f"judge local: {VERDICT_TOKENS} tokens a verdict are assumed, no reply is stored" in found.text

    def test_no_reply_is_taken_to_be_longer_than_max_tokens(self, workspace: Workspace) -> None:
        workspace.model(params={"max_tokens": 100})
        workspace.judge(params={"max_tokens": 70})
        found = estimated(workspace, only="t000")
        assert (found["model local"]["out"], found["judge local"]["out"]) == ("100", "70")

    def test_a_stored_answer_makes_the_judges_request_exact(self, workspace: Workspace) -> None:
        workspace.grade(limit=1)
        workspace.judge("second")
        found = estimated(workspace, only="t000", judge="second")
        assert found.calls("model local") == (0, 1)
        assert found.calls("judge second") == (1, 0)
        grade = workspace.grade(limit=1, judge="second")
        assert int(found["judge second"]["in"]) == pytest.approx(grade.usage["judge"]["input_tokens"], abs=1)

    def test_what_is_stored_tells_the_length_of_what_is_not(self, workspace: Workspace) -> None:
        grade = workspace.grade(limit=1)
        found = estimated(workspace, only="t003")
        assert int(found["model local"]["out"]) == grade.usage["answer"]["output_tokens"]
        assert int(found["judge local"]["out"]) == grade.usage["judge"]["output_tokens"]
        assert "model local: replies are taken to be as long as its 1 stored ones" in found.text

    def test_the_estimate_is_near_what_the_run_then_costs(self, workspace: Workspace) -> None:
        workspace.grade(limit=1)
        found = estimated(workspace)
        assert found.calls("model local") == (3, 1)
        spent = sum(grade.spent_usd or 0.0 for grade in workspace.grades()[1:])
        assert float(found.total["cost"].removeprefix("$")) == pytest.approx(spent, rel=0.05)

    @pytest.mark.parametrize(("text", "tokens"), [("", 0), ("四个汉字", 4), ("four", 1), ("five5", 2), ("法律 law", 3)])
    def test_tokens_are_counted_by_script(self, text: str, tokens: int) -> None:
        assert count_tokens(text) == tokens


class TestCosts:
    def test_nothing_costs_where_all_is_stored(self, workspace: Workspace) -> None:
        workspace.pytest()
        workspace.model(price=None, client="litellm")
        found = shown(workspace.pytest("--estimate"))
        assert found.calls("model local") == found.calls("judge local") == (0, 4)
        assert (found.total["cost"], found.total["most"]) == ("$0", "$0")
        assert not workspace.imported_litellm()  # no price is needed

    def test_cost_and_bound_follow_from_tokens_and_prices(self, workspace: Workspace) -> None:
        workspace.model(params={"max_tokens": 400}, price={"input": 1e6, "output": 10e6})  # 1 and 10 USD a token
        workspace.judge(params={"max_tokens": 500}, price={"input": 1e6, "output": 0})
        found = estimated(workspace, only="t000")
        asked, judged = int(found["model local"]["in"]), int(found["judge local"]["in"])
        assert found["model local"]["cost"] == found["model local"]["most"] == f"${asked + 10 * 400:.2f}"
        assert found["judge local"]["cost"] == found["judge local"]["most"] == f"${judged:.2f}"

    def test_the_bound_of_the_judge_holds_the_longest_answer(self, workspace: Workspace) -> None:
        workspace.model(params={"max_tokens": 5_000})
        workspace.judge(params={"max_tokens": 500}, price={"input": 1e6, "output": 0})
        workspace.grade(limit=1)
        found = estimated(workspace, only="t003")
        cost, most = (float(found["judge local"][name].removeprefix("$")) for name in ("cost", "most"))
        assert most - cost == pytest.approx(5_000 - 50, abs=2)  # an answer has 200 bytes

    def test_without_max_tokens_there_is_no_bound(self, workspace: Workspace) -> None:
        workspace.judge(params={"max_tokens": 500})
        found = estimated(workspace)
        assert found["model local"]["most"] == found["judge local"]["most"] == found.total["most"] == "?"
        assert "model local: ? there is no upper bound, since max_tokens is not among its params" in found.text
        assert "judge local: ? there is no upper bound, since max_tokens is not among the model's params" in found.text

    def test_an_unknown_price_is_said_with_how_to_name_it(self, workspace: Workspace) -> None:
        workspace.model(price=None, client="litellm")
        found = shown(workspace.pytest("--estimate"))
        assert found["model local"]["cost"] == found.total["cost"] == "?"
        assert found["judge local"]["cost"].startswith("$0.")
        assert (
            "model local: ? the price of openai/model-local is unknown; name it, in USD per million tokens, in "
            "configs/prices.yaml: openai/model-local: {input: ..., output: ...}" in found.text
        )

    def test_a_price_of_litellm_is_found_without_a_network(self, workspace: Workspace) -> None:
        workspace.model(model="openai/gpt-4o", price=None, api_base="http://127.0.0.1:9", client="litellm")
        found = shown(workspace.pytest("--estimate", HTTPS_PROXY="http://127.0.0.1:9"))
        assert found["model local"]["cost"].startswith("$")

    def test_a_model_of_ones_own_is_free_and_takes_its_time(self, workspace: Workspace) -> None:
        workspace.model(price={"input": 0, "output": 0}, typical_seconds=30)
        found = estimated(workspace)
        assert (found["model local"]["cost"], found["model local"]["most"]) == ("$0", "$0")
        assert "model local: free, since it runs on a machine of yours, in about 2 min" in found.text

    def test_a_limit_below_the_estimate_is_said(self, workspace: Workspace) -> None:
        assert "--max-cost 0.001 would end the run before that" in estimated(workspace, max_cost="0.001").text
        assert "would end the run" not in estimated(workspace, max_cost="5").text


class TestWhatIsAskedAnew:
    def test_a_replay_of_malformed_verdicts_asks_nothing_and_a_retry_asks_the_judge(
        self, workspace: Workspace, server: Provider
    ) -> None:
        server.faults.add(Fault(content("I would rather not say."), kind="judge", match="<t000>"))
        excluded, *others = workspace.grades()
        assert (excluded.reason, {grade.state for grade in others}) == ("judge_malformed", {"scored"})
        assert estimated(workspace).calls("judge local") == (0, 3 + 3)  # it was asked three times
        retried = estimated(workspace, retry="excluded")
        assert retried.calls("model local")[0] == 0
        assert retried.calls("judge local")[0] == 1

    def test_a_retry_of_failed_ones_asks_their_model_and_judge(self, workspace: Workspace, server: Provider) -> None:
        server.faults.add(Fault(content(""), kind="answer", match="<t000>"))
        assert [grade.state for grade in workspace.grades()].count("failed") == 1
        assert estimated(workspace).calls("judge local") == (0, 3)
        retried = estimated(workspace, retry="failed")
        assert retried.calls("model local")[0] == retried.calls("judge local")[0] == 1

    def test_a_reply_without_a_message_is_asked_anew_by_a_retry_only(
        self, workspace: Workspace, server: Provider
    ) -> None:
        server.faults.add(Fault(no_choices(), kind="answer", match="<t000>"))
        assert workspace.grades()[0].reason == "malformed_response"
        assert estimated(workspace).calls("model local") == (0, 4)
        assert estimated(workspace, retry="excluded").calls("model local")[0] == 1

    @pytest.mark.parametrize("options", [{"retry": "all"}, {"cache_mode": "refresh"}, {"cache_mode": "off"}])
    def test_everything_is_asked_anew_where_that_was_asked_for(
        self, options: dict[str, str], workspace: Workspace
    ) -> None:
        workspace.grades()
        found = estimated(workspace, **options)
        assert (int(found["model local"]["calls"]), int(found["judge local"]["calls"])) == (4, 4)

    def test_a_repeat_is_a_call_of_its_own(self, workspace: Workspace) -> None:
        workspace.grades()
        assert estimated(workspace, repeats="3").calls("model local") == (8, 4)

    def test_offline_calls_nobody(self, workspace: Workspace) -> None:
        workspace.grade(limit=1)
        found = estimated(workspace, cache_mode="offline")
        assert found.calls("model local") == (3, 1)
        assert "--cache-mode offline forbids the calls" in found.text


class TestKindsOfModelsAndJudges:
    def test_criteria_that_are_judged_apart_are_calls_of_their_own(self, workspace: Workspace) -> None:
        workspace.judge(criteria_per_call=1)
        found = estimated(workspace)
        assert found.calls("judge local") == (4 * CRITERIA, 0)
        assert int(found["judge local"]["out"]) == 4 * CRITERIA * VERDICT_TOKENS
        workspace.grade(limit=1)
        assert estimated(workspace).calls("judge local") == (3 * CRITERIA, CRITERIA)

    def test_every_model_has_its_row(self, workspace: Workspace) -> None:
        workspace.model("second")
        found = estimated(workspace, model=["local", "second"])
        assert list(found.rows) == ["model local", "model second", "judge local"]
        assert found.calls("judge local") == (8, 0)

    def test_ready_answers_cost_their_judge_only(self, workspace: Workspace) -> None:
        answers = [{"key": key, "answer": "Ask a lawyer."} for key in keys(4)]
        (workspace.root / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)), encoding="utf-8")
        path = workspace.root / "configs" / "models" / "ready.yaml"
        path.write_text('{"kind": "recorded", "answers": "answers.jsonl"}', encoding="utf-8")
        found = estimated(workspace, only="t000", model=["ready"])
        assert list(found.rows) == ["judge local"]
        assert found.calls("judge local") == (1, 0)
        grade, *_ = workspace.grades(model=["ready"])
        assert int(found["judge local"]["in"]) == pytest.approx(grade.usage["judge"]["input_tokens"], abs=1)

    def test_an_agent_is_assumed_to_take_several_steps(self, workspace: Workspace) -> None:
        workspace.model("agent", kind="agent")
        found = estimated(workspace, model=["agent"])
        assert found.calls("model agent") == (4 * AGENT_CALLS, 0)
        assert f"model agent: {AGENT_CALLS} calls an answer are assumed" in found.text
        assert "it is not known beforehand how many steps an agent takes" in found.text
