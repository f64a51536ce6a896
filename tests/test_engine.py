from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import diskcache  # type: ignore[import-untyped]
import pytest

from pytest_rubrics.engine import Engine
from pytest_rubrics.grades import Grade
from pytest_rubrics.wiring import Seat
from tests.support import faults
from tests.support.faults import Effect, Fault
from tests.support.provider import Provider
from tests.support.truth import expert_score, published_tasks, truth_of
from tests.support.workspaces import Workspace, keys, question, until

KEYS = keys(6)
FIRST = question(KEYS[0])


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=200) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Workspace:
    return Workspace(tmp_path, server, KEYS, client="litellm")


@pytest.fixture
def alone(tmp_path: Path, server: Provider) -> Workspace:
    """A workspace with a single task."""
    return Workspace(tmp_path, server, KEYS[:1], client="litellm")


def judged(server: Provider) -> list[Any]:
    """The bodies of the judge's requests."""
    return [request.body for request in server.requests if request.kind == "judge"]


def questions(server: Provider) -> list[str]:
    """What the model was asked."""
    return [request.body["messages"][0]["content"] for request in server.requests if request.kind == "answer"]


def dollars(*amounts: float | None) -> float:
    """The sum of known amounts."""
    known = [amount for amount in amounts if amount is not None]
    assert len(known) == len(amounts)
    return sum(known)


def cost(grade: Grade) -> float:
    """What a grade's replies cost when they were made."""
    return dollars(*grade.cost_usd.values())


def essence(grades: list[Grade]) -> list[object]:
    """What of grades must be the same on a replay."""
    left_out = {"spent_usd", "cached", "finished_at"}
    return [{name: value for name, value in grade.to_record().items() if name not in left_out} for grade in grades]


class TestScores:
    def test_scores_are_those_of_an_independent_computation(self, workspace: Workspace, server: Provider) -> None:
        tasks = published_tasks(workspace.root / "data")
        truth = truth_of(tasks)
        grades = workspace.grades()
        assert [grade.score for grade in grades] == [expert_score(task, truth[task.prompt]) for task in tasks]
        assert len({grade.score for grade in grades}) > 1
        for grade, task in zip(grades, tasks, strict=True):
            assert {v["id"]: v["hit"] for v in grade.verdicts} == truth[task.prompt]
            assert [(v["id"], v["weight"]) for v in grade.verdicts] == [(c.id, c.weight) for c in task.criteria]
        assert (server.count("answer"), server.count("judge")) == (len(KEYS), len(KEYS))

    def test_a_replay_calls_nobody_and_gives_the_same(self, workspace: Workspace, server: Provider) -> None:
        paid = workspace.grades()
        before = server.count()
        replayed = workspace.grades()
        assert server.count() == before
        assert essence(replayed) == essence(paid)
        assert [grade.cached for grade in paid] == [{"answer": False, "judge": False}] * len(KEYS)
        assert [grade.cached for grade in replayed] == [{"answer": True, "judge": True}] * len(KEYS)
        assert [grade.spent_usd for grade in replayed] == [0] * len(KEYS)
        for grade in paid:
            assert grade.spent_usd == pytest.approx(cost(grade))
            assert cost(grade) > 0

    def test_costs_follow_from_usage_and_price(self, alone: Workspace) -> None:
        alone.model(price={"input": 3.0, "output": 15.0})
        grade = alone.grade()
        usage = grade.usage["answer"]
        expected = (usage["input_tokens"] * 3.0 + usage["output_tokens"] * 15.0) / 1e6
        assert grade.cost_usd["answer"] == pytest.approx(expected)

    def test_two_runs_at_once_pay_each_reply_once(self, workspace: Workspace, server: Provider) -> None:
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda _: workspace.grades(), range(2)))
        assert server.count() == 2 * len(KEYS)
        assert essence(both[0]) == essence(both[1])
        for one, other in zip(*both, strict=True):
            assert dollars(one.spent_usd, other.spent_usd) == pytest.approx(cost(one))
            assert [one.cached[part] + other.cached[part] for part in ("answer", "judge")] == [1, 1]

    def test_repeats_are_answers_of_their_own(self, alone: Workspace, server: Provider) -> None:
        (entry,) = alone.plan(repeats="3").benchmarks.values()
        assert list(entry.cases) == [f"local-global_law-t000{suffix}" for suffix in ("", "-r2", "-r3")]
        grades = alone.grades(repeats="3")
        assert [grade.repeat for grade in grades] == [1, 2, 3]
        assert (server.count("answer"), server.count("judge")) == (3, 3)
        assert len({grade.keys["answer"][0] for grade in grades}) == 3
        assert alone.grades() == [grade for grade in alone.grades(repeats="3") if grade.repeat == 1]
        assert server.count() == 6


class TestStatesOfAnAnswer:
    @pytest.mark.parametrize(
        ("effect", "state", "reason"),
        [
            (faults.content(None), "failed", "empty"),
            (faults.content(""), "failed", "empty"),
            (faults.content(" \n\t"), "failed", "empty"),
            (faults.content("", "length"), "failed", "empty_length"),
            (faults.content(None, "length"), "failed", "empty_length"),
            (faults.filtered(), "failed", "filtered"),
            (faults.content("The beginning of", "content_filter"), "failed", "filtered"),
            (faults.filter_refusal(), "failed", "filtered"),
            (faults.content("<think>It must be"), "failed", "empty"),
            (faults.content("<think>It must be</think>\n"), "failed", "empty"),
            (faults.content("<think>It must be", "length"), "failed", "empty_length"),
            (faults.no_choices(), "excluded", "malformed_response"),
            (faults.choices([]), "excluded", "malformed_response"),
            (faults.choices(None), "excluded", "malformed_response"),
        ],
    )
    def test_a_reply_without_an_answer_is_stored_and_replayed(
        self, alone: Workspace, server: Provider, effect: Effect, state: str, reason: str
    ) -> None:
        server.faults.add(Fault(effect, kind="answer"))
        grade = alone.grade()
        server.faults.clear()
        replayed = alone.grade()
        assert (server.count("answer"), server.count("judge")) == (1, 0)
        assert (grade.state, grade.reason) == (state, reason)
        assert essence([replayed]) == essence([grade])
        assert grade.verdicts == []
        assert grade.metrics == ({"expert_score": 0.0} if state == "failed" else None)
        assert grade.passed is (False if state == "failed" else None)
        assert len(grade.keys["answer"]) == 1
        assert replayed.cached["answer"]

    def test_reasoning_alone_is_no_answer(self, tmp_path: Path) -> None:
        with Provider(reasoning="A long thought.", answers=lambda body: "") as server:
            grade = Workspace(tmp_path, server, KEYS[:1], client="litellm").grade()
        assert (grade.state, grade.reason) == ("failed", "empty")

    @pytest.mark.parametrize("opening", ["<think>", ""])
    def test_a_block_of_thought_is_not_judged(self, alone: Workspace, server: Provider, opening: str) -> None:
        server.faults.add(Fault(faults.content(f"{opening}\nFirst, the law.\n</think>\n\nSue them."), kind="answer"))
        grade = alone.grade()
        assert (grade.state, str(grade.answer).strip()) == ("scored", "Sue them.")
        assert "First, the law." not in json.dumps(judged(server))

    def test_a_cut_off_answer_is_scored_and_flagged(self, alone: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.content("The first of three poi", "length"), kind="answer"))
        grade = alone.grade()
        assert (grade.state, grade.truncated, grade.finish_reason) == ("scored", True, "length")
        assert grade.answer == "The first of three poi"

    @pytest.mark.parametrize(
        ("effect", "reason"),
        [
            (faults.error(500, retry_after=0), "transport"),
            (faults.text('{"error": {"message": "no capacity", "code": 502}}'), "transport"),
            (faults.error(401), "authentication"),
            (faults.error(402), "credit"),
            (faults.error(400), "bad_request"),
            (faults.context_length(), "context_length"),
        ],
    )
    def test_an_error_is_never_an_answer(self, alone: Workspace, server: Provider, effect: Effect, reason: str) -> None:
        alone.model(retry_for=0.1, timeout=2)
        server.faults.add(Fault(effect, kind="answer"))
        grade = alone.grade()
        assert (grade.state, grade.reason, grade.answer, grade.metrics) == ("excluded", reason, None, None)
        assert server.count("judge") == 0
        server.faults.clear()
        assert alone.grade().state == "scored"  # nothing of it was stored

    def test_a_server_that_never_ends_its_reply_costs_the_timeout(self, alone: Workspace, server: Provider) -> None:
        alone.model(timeout=0.5, retry_for=0.1)
        server.faults.add(Fault(faults.drip(), kind="answer"))
        grade = alone.grade()
        assert (grade.state, grade.reason) == ("excluded", "transport")
        assert "no reply within 0.5 s" in str(grade.error)


class TestStatesOfAJudgement:
    def test_a_malformed_sheet_is_asked_for_again_with_what_was_wrong(self, alone: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.missing_id("3"), kind="judge", times=1))
        server.faults.add(Fault(faults.content("I cannot decide."), kind="judge", start=2, times=1))
        grade = alone.grade()
        assert (grade.state, server.count("judge")) == ("scored", 3)
        first, second, third = judged(server)
        assert "3" in second["messages"][-1]["content"]
        assert second["messages"][:1] == third["messages"][:1] == first["messages"]
        assert [message["role"] for message in third["messages"]] == ["user", "assistant", "user"]
        assert third["messages"][1]["content"] == "I cannot decide."
        assert len(set(grade.keys["judge"])) == 3
        assert grade.usage["judge"]["input_tokens"] > 3 * len(json.dumps(first["messages"])) // 8
        assert essence([alone.grade()]) == essence([grade])
        assert server.count() == 4

    def test_after_the_last_attempt_the_grade_is_excluded_and_all_attempts_are_accounted_for(
        self, alone: Workspace, server: Provider
    ) -> None:
        good = alone.grade(cache_dir=str(alone.root / "other"))
        server.faults.add(Fault(faults.content("yes"), kind="judge"))
        before = server.count("judge")
        grade = alone.grade()
        assert server.count("judge") - before == 3
        assert (grade.state, grade.reason, grade.verdicts) == ("excluded", "judge_malformed", [])
        assert len(grade.keys["judge"]) == 3
        assert grade.usage["judge"]["input_tokens"] > 2.5 * good.usage["judge"]["input_tokens"]
        assert dollars(grade.cost_usd["judge"]) > 2.5 * dollars(good.cost_usd["judge"])
        assert grade.spent_usd == pytest.approx(cost(grade))
        assert essence([alone.grade()]) == essence([grade])
        assert server.count("judge") - before == 3

    def test_the_number_of_attempts_is_the_judges(self, alone: Workspace, server: Provider) -> None:
        alone.judge(attempts=1)
        server.faults.add(Fault(faults.content("yes"), kind="judge"))
        assert alone.grade().reason == "judge_malformed"
        assert server.count("judge") == 1

    def test_a_sheet_cut_off_by_length_is_asked_for_in_short(self, alone: Workspace, server: Provider) -> None:
        beginning = faults.content('{"verdicts": [{"rubric_id": "1", "sta', "length")
        server.faults.add(Fault(beginning, kind="judge", times=1))
        assert alone.grade().state == "scored"
        assert "cut off by the length limit" in judged(server)[1]["messages"][-1]["content"]

    @pytest.mark.parametrize("effect", [faults.content(None), faults.filtered(), faults.choices([])])
    def test_a_reply_without_a_sheet_is_asked_for_again(
        self, alone: Workspace, server: Provider, effect: Effect
    ) -> None:
        server.faults.add(Fault(effect, kind="judge", times=1))
        assert alone.grade().state == "scored"
        assert server.count("judge") == 2

    @pytest.mark.parametrize(
        ("effect", "reason"), [(faults.error(500, retry_after=0), "transport"), (faults.error(401), "authentication")]
    )
    def test_a_judge_that_cannot_be_reached_excludes_and_keeps_the_answer(
        self, alone: Workspace, server: Provider, effect: Effect, reason: str
    ) -> None:
        server.faults.add(Fault(effect, kind="judge"))
        grade = alone.grade()
        assert (grade.state, grade.reason, grade.metrics) == ("excluded", reason, None)
        assert grade.answer
        assert str(grade.error).startswith("judge ")
        server.faults.clear()
        assert alone.grade().state == "scored"
        assert server.count("answer") == 1

    def test_replies_paid_before_a_failure_are_accounted_for(self, alone: Workspace, server: Provider) -> None:
        server.faults.add(
            Fault(faults.content("yes"), kind="judge", times=1), Fault(faults.error(402), kind="judge", start=2)
        )
        grade = alone.grade()
        assert (grade.reason, len(grade.keys["judge"])) == ("credit", 1)
        assert dollars(grade.cost_usd["judge"]) > 0


class TestRetry:
    def outcomes(self, grades: list[Grade]) -> list[str]:
        return [grade.reason or grade.state for grade in grades]

    def test_a_malformed_judgement_is_judged_anew_and_no_more(self, workspace: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.content("yes"), kind="judge", match=FIRST))
        server.faults.add(Fault(faults.content(""), kind="answer", match=question(KEYS[1])))
        assert self.outcomes(workspace.grades())[:3] == ["judge_malformed", "empty", "scored"]
        server.faults.clear()
        answers, verdicts = server.count("answer"), server.count("judge")
        assert self.outcomes(workspace.grades(retry="excluded"))[:3] == ["scored", "empty", "scored"]
        assert (server.count("answer") - answers, server.count("judge") - verdicts) == (0, 1)
        before = server.count()
        assert self.outcomes(workspace.grades())[:3] == ["scored", "empty", "scored"]
        assert self.outcomes(workspace.grades(retry="excluded"))[:3] == ["scored", "empty", "scored"]
        assert server.count() == before

    def test_a_malformed_answer_is_asked_anew(self, alone: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.choices([]), kind="answer", times=1))
        assert self.outcomes(alone.grades()) == ["malformed_response"]
        assert self.outcomes(alone.grades(retry="excluded")) == ["scored"]
        assert self.outcomes(alone.grades()) == ["scored"]
        assert (server.count("answer"), server.count("judge")) == (2, 1)

    def test_failed_answers_are_asked_anew(self, workspace: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.content(""), kind="answer", match=FIRST, times=2))
        assert self.outcomes(workspace.grades())[0] == "empty"
        before = server.count()
        assert self.outcomes(workspace.grades(retry="failed"))[0] == "empty"
        assert self.outcomes(workspace.grades(retry="failed")) == ["scored"] * len(KEYS)
        assert self.outcomes(workspace.grades()) == ["scored"] * len(KEYS)
        assert server.count() - before == 3

    def test_all_is_asked_anew_once(self, workspace: Workspace, server: Provider) -> None:
        old = workspace.grades()
        new = workspace.grades(retry="all")
        assert (server.count("answer"), server.count("judge")) == (2 * len(KEYS), 2 * len(KEYS))
        assert not {grade.keys["answer"][0] for grade in old} & {grade.keys["answer"][0] for grade in new}
        assert essence(workspace.grades()) == essence(new)
        assert server.count() == 4 * len(KEYS)

    def test_a_call_that_fails_again_is_not_made_twice(self, alone: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.error(400), kind="judge"))
        alone.grades()
        before = server.count()
        assert self.outcomes(alone.grades(retry="excluded")) == ["bad_request"]
        assert server.count() - before == 1


class TestRefresh:
    def test_everything_is_asked_again_once_and_replayed_from_then_on(
        self, workspace: Workspace, server: Provider
    ) -> None:
        old = workspace.grades()
        new = workspace.grades_of_workers(2, cache_mode="refresh")
        assert (server.count("answer"), server.count("judge")) == (2 * len(KEYS), 2 * len(KEYS))
        assert all(not any(grade.cached.values()) for grade in new)
        assert essence(workspace.grades()) == essence(new) != essence(old)
        assert server.count() == 4 * len(KEYS)

    def test_nothing_is_overwritten(self, alone: Workspace) -> None:
        old = alone.grade()

        def rows() -> list[object]:
            with alone.wired(alone.plan(cache_mode="offline")) as wiring:
                return [wiring.store.get(key) for part in old.keys.values() for key in part]

        before = rows()
        alone.grade(cache_mode="refresh")
        assert rows() == before
        assert all(before)


class TestOtherModes:
    def test_offline_excludes_what_is_missing(self, workspace: Workspace, server: Provider) -> None:
        workspace.grades(limit="2")
        before = server.count()
        grades = workspace.grades(cache_mode="offline")
        assert [grade.reason for grade in grades] == [None, None, *["cache_miss"] * (len(KEYS) - 2)]
        assert server.count() == before

    def test_off_has_a_cache_of_its_own(self, alone: Workspace, server: Provider) -> None:
        alone.grade()
        alone.grade(cache_mode="off", run_dir=str(alone.root / "second"))
        alone.grade(cache_mode="off", run_dir=str(alone.root / "third"))
        assert server.count() == 6
        alone.grade()
        assert server.count() == 6


class TestLookAhead:
    @pytest.fixture
    def many(self, tmp_path: Path, server: Provider) -> Workspace:
        return Workspace(tmp_path, server, keys(30), client="litellm")

    def test_calls_in_flight_reach_the_limit_and_never_pass_it(self, many: Workspace) -> None:
        with Provider(latency=0.05, answer_bytes=200) as slow:
            many.server = slow
            many.model()
            many.judge()
            many.grades(concurrency="7")
            assert slow.max_in_flight == 7

    def test_limits_of_model_and_judge_are_kept_too(self, many: Workspace, tmp_path: Path) -> None:
        with (
            Provider(latency=0.05, answer_bytes=200) as models,
            Provider(latency=0.05) as judges,
        ):
            many.model(api_base=models.url, max_concurrency=3)
            many.judge(api_base=judges.url, max_concurrency=2)
            many.grades(concurrency="20")
            assert (models.max_in_flight, judges.max_in_flight) == (3, 2)

    @pytest.mark.parametrize(("workers", "concurrency"), [(2, 5), (2, 1), (3, 2), (4, 4)])
    def test_workers_share_the_limit(self, many: Workspace, workers: int, concurrency: int) -> None:
        with Provider(latency=0.02, answer_bytes=200) as slow:
            many.server = slow
            many.client = "openai"  # a background task of LiteLLM wanders from loop to loop where a process has several
            many.model(max_concurrency=4)
            many.judge()
            slow.faults.add(
                Fault(faults.error(500, retry_after=0), times=5),
                # Of one question: what another worker was refused is asked again, and would be answered then.
                Fault(faults.error(400), kind="answer", match=question("t010")),
            )
            grades = many.grades_of_workers(workers, concurrency=str(concurrency))
            assert {grade.key: grade.reason for grade in grades if grade.state != "scored"} == {"t010": "bad_request"}
            assert slow.max_in_flight <= concurrency
            asked = [json.dumps(request.body) for request in slow.requests if request.status == 200]
            assert len(asked) == len(set(asked))

    def test_the_awaited_job_jumps_the_queue(self, many: Workspace, server: Provider) -> None:
        server.pause()
        with many.wired(many.plan(concurrency="2")) as wiring:
            server.wait_for(2)
            last = len(wiring.engine.jobs) - 1
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(wiring.engine.grade, last, lambda: None)
                until(lambda: last in wiring.engine._running)
                server.resume()
                assert waiting.result(timeout=60).key == keys(30)[last]
        assert question(keys(30)[last]) in questions(server)[:4]

    def test_jobs_held_back_run_only_when_they_are_awaited(self, workspace: Workspace, server: Provider) -> None:
        with workspace.wired(workspace.plan(), held_back=[0, 3]) as wiring:
            until(lambda: len(wiring.grader.progress.judged) == len(KEYS) - 2)
            assert not {question(KEYS[0]), question(KEYS[3])} & set(questions(server))
            assert wiring.engine.grade(3, lambda: None).state == "scored"
        assert server.count("answer") == len(KEYS) - 1

    def test_a_run_that_may_stop_early_leads_by_the_calls_in_flight(self, many: Workspace, server: Provider) -> None:
        def leads_to(index: int) -> None:
            until(lambda: question(keys(30)[index]) in questions(server))
            time.sleep(0.2)  # whatever else might be launched would come now
            assert question(keys(30)[index + 1]) not in questions(server)

        with many.wired(many.plan(concurrency="4"), stops_early=True) as wiring:
            time.sleep(0.2)
            assert server.count() == 0  # nobody waits for anything yet
            for awaited, furthest in ((0, 3), (1, 4), (10, 13)):
                wiring.engine.grade(awaited, lambda: None)
                leads_to(furthest)
            assert server.count("answer") <= 10

    def test_workers_begin_at_different_places(self, many: Workspace, server: Provider) -> None:
        plan = many.plan(concurrency="2")
        server.pause()
        with many.wired(plan, seat=Seat(0, 2)), many.wired(plan, seat=Seat(1, 2)):
            server.wait_for(2)
            begun = set(questions(server))
            server.resume()
        assert begun == {question(keys(30)[0]), question(keys(30)[15])}

    def test_the_longest_known_jobs_begin_first(self, many: Workspace, server: Provider) -> None:
        expected = [float(number % 10) for number in range(30)]
        server.pause()
        with many.wired(many.plan(concurrency="3"), expected=expected):
            server.wait_for(3)
            begun = set(questions(server))
            server.resume()
        assert begun < {question(keys(30)[index]) for index in (9, 19, 29, 8)}  # one more is made ready beside them

    @pytest.mark.parametrize(
        ("criteria_per_call", "apart", "begun"),
        [("all", True, {29, 19, 9, 28}), (1, False, {29, 19, 9, 28}), (1, True, {29, 0, 19, 10})],
    )
    def test_judges_with_slots_of_their_own_and_many_calls_are_fed_by_short_answers_too(
        self, many: Workspace, server: Provider, criteria_per_call: object, apart: bool, begun: set[int]
    ) -> None:
        many.judge(criteria_per_call=criteria_per_call, **({"api_base": "http://127.0.0.1:9/v1"} if apart else {}))
        server.pause()
        with many.wired(many.plan(concurrency="3"), expected=[1 + number % 10 + number / 1000 for number in range(30)]):
            server.wait_for(3)
            asked = set(questions(server))
            server.resume()
        assert asked < {question(keys(30)[index]) for index in begun}  # one more is made ready beside them

    def test_the_first_finished_of_several_is_named(self, many: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.hang(), kind="answer", match=question(keys(30)[4])))
        with many.wired(many.plan()) as wiring:
            engine, waiting = wiring.engine, {2, 4, 7}
            while len(waiting) > 1:
                index = engine.first_finished(waiting, lambda: None)
                waiting.remove(index)
                assert engine.grade(index, lambda: None).key == keys(30)[index]
            assert waiting == {4}
            engine.interrupt()

    def test_the_loop_rests_while_nothing_arrives(
        self, many: Workspace, server: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = 0
        has_room = Engine._has_room

        def counted(engine: Engine, index: int) -> bool:
            nonlocal looks
            looks += 1
            return has_room(engine, index)

        monkeypatch.setattr(Engine, "_has_room", counted)
        server.pause()
        with many.wired(many.plan(concurrency="2")) as wiring, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wiring.engine.first_finished, range(30), lambda: None)
            server.wait_for(2)
            time.sleep(0.3)
            assert looks < 30
            server.resume()
            assert waiting.result(timeout=60) in range(30)

    def test_a_job_that_nobody_begins_is_named_when_all_others_are_done(self, workspace: Workspace) -> None:
        with workspace.wired(workspace.plan(), held_back=[1]) as wiring:
            assert wiring.engine.first_finished({1}, lambda: None) == 1
            assert len(wiring.grader.progress.judged) == len(KEYS) - 1

    @pytest.mark.parametrize("first", [range(5), range(25, 30)], ids=["the first", "the last"])
    def test_grades_that_were_let_go_are_handed_over_all_the_same(
        self, many: Workspace, server: Provider, monkeypatch: pytest.MonkeyPatch, first: range
    ) -> None:
        monkeypatch.setattr("pytest_rubrics.engine.FINISHED_AHEAD", 3)
        monkeypatch.setattr("pytest_rubrics.engine.KEPT", 3)
        with many.wired(many.plan(concurrency="4")) as wiring:
            made = []
            for block in (set(first), set(range(30)) - set(first)):
                while block:
                    index = wiring.engine.first_finished(block, lambda: None)
                    block.remove(index)
                    made.append(wiring.engine.grade(index, lambda: None).key)
                    assert len(wiring.engine._finished) <= 4
        assert sorted(made) == keys(30)
        assert (server.count("answer"), server.count("judge")) == (30, 30)

    def test_a_dead_server_does_not_hold_up_a_long_run(self, many: Workspace) -> None:
        many.model(api_base="http://127.0.0.1:9/v1", timeout=1, retry_for=1)
        started = time.monotonic()
        grades = many.grades(concurrency="8")
        assert {grade.reason for grade in grades} == {"transport"}
        assert time.monotonic() - started < 60

    def test_a_wrong_key_is_noticed_after_a_few_calls(self, many: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.echo_secret()))
        grades = many.grades(concurrency="4")
        assert {grade.reason for grade in grades} == {"authentication"}
        assert server.count() <= 5

    def test_a_wrong_key_of_the_judge_spares_the_rest_of_the_answers(self, many: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.error(401), kind="judge"))
        grades = many.grades(concurrency="4")
        assert {grade.reason for grade in grades} == {"authentication"}
        assert server.count("judge") <= 4

    def test_grades_come_in_the_order_of_the_items(self, many: Workspace) -> None:
        assert [grade.key for grade in many.grades()] == keys(30)

    def test_a_warning_of_a_library_is_no_error_of_the_provider(self, alone: Workspace, server: Provider) -> None:
        # Pydantic's core warns of it, in C, and this test suite makes errors of warnings.
        server.faults.add(Fault(faults.changed(lambda body: body.update(created=1.5)), kind="answer"))
        assert alone.grade().state == "scored"
        assert server.count("answer") == 1


class TestBudget:
    def test_a_run_ends_below_its_limit_with_what_it_could_pay(self, tmp_path: Path, server: Provider) -> None:
        workspace = Workspace(tmp_path, server, keys(20), client="litellm")
        workspace.model(params={"max_tokens": 50})
        workspace.judge(params={"max_tokens": 200})
        one = workspace.grades(limit="1", cache_dir=str(tmp_path / "other"))[0]
        limit = 8 * cost(one)
        grades = workspace.grades_of_workers(2, max_cost=str(limit), concurrency="4")
        spent = dollars(*(grade.spent_usd for grade in grades))
        assert spent <= limit
        assert {grade.reason for grade in grades} == {None, "budget"}
        assert 4 <= sum(grade.state == "scored" for grade in grades) <= 8
        replayed = workspace.grades(cache_mode="offline")
        assert sum(cost(grade) for grade in replayed) == pytest.approx(spent)

    def test_what_is_stored_costs_nothing(self, workspace: Workspace) -> None:
        workspace.grades()
        assert {grade.state for grade in workspace.grades(max_cost="0")} == {"scored"}

    def test_an_unknown_price_is_refused_where_a_limit_must_hold(self, alone: Workspace, server: Provider) -> None:
        alone.model(price=None)
        grade = alone.grade(max_cost="5")
        assert (grade.reason, server.count()) == ("budget", 0)
        assert "the price of openai/model-local is unknown" in str(grade.error)


class TestEnd:
    @pytest.mark.parametrize("interrupted", [False, True])
    def test_what_arrives_shortly_after_the_end_is_stored(
        self, workspace: Workspace, server: Provider, interrupted: bool
    ) -> None:
        server.pause()
        with workspace.wired(workspace.plan()) as wiring:
            server.wait_for(len(KEYS))
            if interrupted:
                wiring.engine.interrupt()
            threading.Timer(0.3, server.resume).start()
            # Leaving the block ends the engine while the calls are in flight.
        before = server.count()
        assert before == len(KEYS)
        workspace.grades()
        assert (server.count("answer"), server.count("judge")) == (len(KEYS), len(KEYS))

    def test_a_run_that_nobody_interrupts_waits_for_what_it_has_asked(
        self, workspace: Workspace, server: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_rubrics.engine.GRACE", 0.0)
        server.pause()
        with workspace.wired(workspace.plan()):
            server.wait_for(len(KEYS))
            threading.Timer(0.5, server.resume).start()
        workspace.grades()
        assert (server.count("answer"), server.count("judge")) == (len(KEYS), len(KEYS))

    def test_what_waits_for_another_process_does_not_hold_up_the_end(self, alone: Workspace, server: Provider) -> None:
        server.pause()
        with alone.wired(alone.plan()):
            server.wait_for(1)
            with alone.wired(alone.plan()) as other:
                until(lambda: bool(other.engine._running))
                started = time.monotonic()
            assert time.monotonic() - started < 15
            server.resume()
        alone.grades()
        assert server.count() == 2

    def test_the_end_of_an_interrupted_run_does_not_wait_for_a_call_that_does_not_end(
        self, alone: Workspace, server: Provider
    ) -> None:
        alone.model(timeout=600)
        server.faults.add(Fault(faults.hang()))
        started = time.monotonic()
        with alone.wired(alone.plan()) as wiring:
            server.wait_for(1)
            wiring.engine.interrupt()
        assert time.monotonic() - started < 30

    def test_a_worker_whose_controller_is_gone_does_not_wait_either(self, alone: Workspace, server: Provider) -> None:
        alone.model(timeout=600)
        server.faults.add(Fault(faults.hang()))
        is_there = True
        started = time.monotonic()
        with alone.wired(alone.plan(), seat=Seat(may_launch=lambda: is_there)):
            server.wait_for(1)
            is_there = False
        assert time.monotonic() - started < 30

    def test_the_end_gives_all_claims_back(self, alone: Workspace, server: Provider) -> None:
        server.faults.add(Fault(faults.hang(), times=1))
        with alone.wired(alone.plan()) as wiring:
            server.wait_for(1)
            wiring.engine.interrupt()
        with alone.wired(alone.plan()) as wiring:
            assert wiring.engine.grade(0, lambda: None).state == "scored"

    def test_a_refused_row_excludes_its_grade_only(self, workspace: Workspace) -> None:
        grades = workspace.grades()
        with diskcache.Cache(workspace.cache) as cache:  # its own Disk writes pickles
            cache[grades[0].keys["answer"][0]] = {"content": object}
        again = workspace.grades()
        assert [grade.state for grade in again] == ["excluded", *["scored"] * (len(KEYS) - 1)]
        assert (again[0].reason, "refused" in str(again[0].error)) == ("error", True)

    def test_progress_counts_what_was_done(self, workspace: Workspace) -> None:
        plan = workspace.plan()
        with workspace.wired(plan) as wiring:
            spent = dollars(*(wiring.engine.grade(index, lambda: None).spent_usd for index in range(len(KEYS))))
            snapshot = wiring.snapshot()
        assert (snapshot.answered, snapshot.judged, snapshot.in_flight) == (len(KEYS), len(KEYS), 0)
        assert snapshot.spent_usd == pytest.approx(spent)

    def test_the_test_is_told_now_and_then_while_it_waits(self, alone: Workspace, server: Provider) -> None:
        ticks: list[float] = []
        server.pause()

        def tick() -> None:
            ticks.append(time.monotonic())
            if len(ticks) == 3:
                server.resume()

        with alone.wired(alone.plan()) as wiring:
            wiring.engine.grade(0, tick, every=0.01)
        assert len(ticks) >= 3
        assert all(later > earlier for earlier, later in pairwise(ticks))
