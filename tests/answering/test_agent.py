from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.answering.agent import TRIMS
from pytest_rubrics.answering.answer import AnsweringError
from pytest_rubrics.answering.tools.function import FunctionTool
from pytest_rubrics.calls.errors import CallError
from tests.support import faults
from tests.support.agents import Bench, answer, answers, bash, bench, needs_bubblewrap, task
from tests.support.provider import Fault, Provider, tool_calls

pytestmark = needs_bubblewrap

LOOK = tool_calls(("bash", {"command": "echo looked"}))
NARRATED = {**LOOK, "content": "Let me search for the next source."}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Provider, Bench]]]:
    """A provider and a bench on it."""
    opened: list[Any] = []

    def start(**options: Any) -> tuple[Provider, Bench]:
        server = Provider(**options)
        opened.append(server)
        server.__enter__()
        context = bench(tmp_path, server.url)
        opened.append(context)
        return server, context.__enter__()

    yield start
    for context in reversed(opened):
        context.__exit__(None, None, None)


Serve = Callable[..., tuple[Provider, Bench]]


def messages(server: Provider, index: int = -1) -> list[dict[str, Any]]:
    return list(server.requests[index].body["messages"])


class TestLoop:
    def test_a_turn_without_a_tool_call_is_the_report(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, NARRATED, "The tower is 300 m tall."])
        given = answer(bench.agent(bash()))
        assert (given.text, given.failure, given.truncated) == ("The tower is 300 m tall.", None, False)
        assert server.count() == len(given.replies) == len(given.keys) == 3
        assert given.finish_reason == "stop"

    def test_tool_results_go_back_to_the_model(self, serve: Serve) -> None:
        server, bench = serve(
            script=[tool_calls(("bash", {"command": "echo one"}), ("bash", {"command": "false"})), "Done."]
        )
        answer(bench.agent(bash()))
        system, user, asked, *results = messages(server)
        assert system["role"] == "system"
        assert user == {"role": "user", "content": task().prompt}
        assert [call["function"]["name"] for call in asked["tool_calls"]] == ["bash", "bash"]
        assert [result["content"] for result in results] == ["one", "[exit code 1]"]
        assert [result["tool_call_id"] for result in results] == [call["id"] for call in asked["tool_calls"]]

    def test_the_steps_of_a_run_share_a_working_directory_and_no_other(self, serve: Serve) -> None:
        write = tool_calls(("bash", {"command": "ls; echo x > kept"}))
        server, bench = serve(script=[write, tool_calls(("bash", {"command": "ls"})), "Done."])
        answers(bench.agent(bash()), [task("first"), task("second")])
        last = [r.body["messages"] for r in server.requests if len(r.body["messages"]) == 6]
        assert [[m["content"] for m in each if m["role"] == "tool"] for each in last] == [["[no output]", "kept"]] * 2

    def test_the_step_limit_asks_for_the_report_without_tools(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, LOOK, LOOK, "Report from what there was."])
        given = answer(bench.agent(bash(), max_steps=3))
        assert given.text == "Report from what there was."
        assert server.count() == 4
        assert "tools" not in server.requests[-1].body
        assert messages(server)[-1]["content"].count("looked") == 1
        assert "All steps are used up." in messages(server)[-1]["content"]
        assert [message["role"] for message in messages(server)] == ["system", *["user", "assistant"] * 3, "user"]

    def test_narration_beside_the_last_tool_call_is_no_report(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, NARRATED, "The report."])
        assert answer(bench.agent(bash(), max_steps=2)).text == "The report."
        assert server.count() == 3

    def test_a_model_that_loops_for_ever_has_no_report(self, serve: Serve) -> None:
        server, bench = serve(script=[NARRATED])
        given = answer(bench.agent(bash(), max_steps=5))
        assert (given.text, given.failure) == (None, "no_report")
        assert server.count() == 6

    def test_a_tool_call_written_out_in_the_last_turn_is_no_report(self, serve: Serve) -> None:
        _, bench = serve(script=[LOOK, 'Let me look.\nAction: bash\nAction Input: {"command": "ls"}'])
        assert answer(bench.agent(bash(), max_steps=1)).failure == "no_report"

    def test_the_time_limit_asks_for_the_report(self, serve: Serve) -> None:
        slow = tool_calls(("bash", {"command": "sleep 0.3; echo slept"}), ("bash", {"command": "echo second"}))
        server, bench = serve(script=[slow, "The report."])
        given = answer(bench.agent(bash(), time_limit=0.3))
        assert given.text == "The report."
        assert given.trajectory[-1]["ended_by"] == "time_limit"
        assert [call["result"] for call in given.trajectory[0]["calls"]] == ["slept", "Not run: the time is up."]
        assert "The time is up." in messages(server)[-1]["content"]

    def test_a_tool_may_not_outlast_the_time_limit(self, serve: Serve) -> None:
        _, bench = serve(script=[tool_calls(("bash", {"command": "echo begun; sleep 600"})), "The report."])
        given = answer(bench.agent(bash(), time_limit=1.5))
        assert given.text == "The report."
        assert given.trajectory[0]["calls"][0]["result"].startswith("begun\n[killed after ")

    @pytest.mark.parametrize(
        ("effect", "failure"),
        [
            (faults.content("", "stop"), "no_report"),
            (faults.content(None, "stop"), "no_report"),
            (faults.content("  \n", "stop"), "no_report"),
            (faults.content("", "length"), "empty_length"),
            (faults.content("<think>hm</think>", "stop"), "no_report"),
            (faults.filtered(), "filtered"),
            (faults.filter_refusal(), "filtered"),
        ],
    )
    def test_a_run_without_a_report_fails_with_its_reason(
        self, serve: Serve, effect: faults.Effect, failure: str
    ) -> None:
        server, bench = serve(script=[LOOK, "unused"])
        server.faults.add(Fault(effect, start=2))
        given = answer(bench.agent(bash()))
        assert (given.text, given.failure) == (None, failure)
        assert len(given.replies) == 2

    def test_a_report_that_is_cut_off_counts(self, serve: Serve) -> None:
        server, bench = serve(script=["unused"])
        server.faults.add(Fault(faults.content("The tower is", "length")))
        given = answer(bench.agent(bash()))
        assert (given.text, given.truncated) == ("The tower is", True)

    def test_bad_calls_come_back_as_errors(self, serve: Serve) -> None:
        broken = tool_calls(("bash", {"command": "x"}), ("bash", {}), ("browse", {"url": "x"}))
        broken["tool_calls"][0]["function"]["arguments"] = '{"command": "ls'
        broken["tool_calls"][1]["function"]["arguments"] = "[1]"
        broken["tool_calls"][2]["function"]["name"] = "browse web{"
        server, bench = serve(script=[broken, "The report."])
        given = answer(bench.agent(bash()))
        assert given.text == "The report."
        results = [message["content"] for message in messages(server) if message["role"] == "tool"]
        assert results[0].startswith("The arguments are not valid JSON")
        assert '{"command": "ls' in results[0]
        assert results[1] == "The arguments must be one JSON object: [1]"
        assert results[2] == 'There is no tool named "browse web{". The tools: bash.'
        resent = [call["function"] for call in messages(server)[2]["tool_calls"]]
        assert resent == [
            {"name": "bash", "arguments": "{}"},
            {"name": "bash", "arguments": "{}"},
            {"name": "browse_web_", "arguments": '{"url": "x"}'},
        ]

    def test_what_the_model_sees_of_an_output_is_limited(self, serve: Serve) -> None:
        server, bench = serve(script=[tool_calls(("bash", {"command": "seq 1 100000"})), "The report."])
        answer(bench.agent(bash(), output_limit=1_000))
        (result,) = [message["content"] for message in messages(server) if message["role"] == "tool"]
        assert len(result) < 1_100
        assert result.startswith("1\n2\n")
        assert result.endswith("99999\n100000")
        assert "characters left out" in result

    def test_reasoning_is_sent_back_beside_tool_calls(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, "The report."], reasoning="I should look.")
        given = answer(bench.agent(bash()))
        assert messages(server)[2]["reasoning_content"] == "I should look."
        assert given.trajectory[0]["reasoning"] == "I should look."

    def test_a_slot_is_free_while_tools_run(self, tmp_path: Path) -> None:
        held: list[int] = []

        def look() -> str:
            """Look."""
            held.append(bench_.slots.held)
            return "ok"

        tool = FunctionTool("unused:look")
        tool._function = look
        with (
            Provider(script=[tool_calls(("look", {})), "Done."]) as server,
            bench(tmp_path, server.url, slots=1) as bench_,
        ):
            given = answers(bench_.agent(tool), [task(f"task {n}") for n in range(4)])
        assert [each.text for each in given] == ["Done."] * 4
        assert len(held) == 4
        assert server.max_in_flight == 1

    def test_a_task_in_chinese_is_worked_on_in_chinese(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, "报告。"])
        assert answer(bench.agent(bash(), max_steps=1), task("塔有多高？", language="zh")).text == "报告。"
        assert messages(server)[0]["content"].startswith("你是一名研究智能体")
        assert "步数已经用完" in messages(server)[-1]["content"]
        assert "观察: looked" in messages(server)[-1]["content"]

    def test_a_system_prompt_of_ones_own_stands_before_the_tasks(self, serve: Serve) -> None:
        server, bench = serve(script=["The report."])
        answer(bench.agent(bash(), system_prompt="Be brief."), task(system="You are a lawyer."))
        assert messages(server)[0] == {"role": "system", "content": "Be brief.\n\nYou are a lawyer."}

    def test_parameters_are_sent_as_they_are(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, "The report."])
        answer(bench.agent(bash(), params={"max_tokens": 77}, max_steps=1))
        assert [request.body["max_tokens"] for request in server.requests] == [77, 77]
        assert not any({"temperature", "stop"} & set(request.body) for request in server.requests)

    def test_without_tools_it_is_a_chat(self, serve: Serve) -> None:
        server, bench = serve(script=["The report."])
        assert answer(bench.agent()).text == "The report."
        assert "tools" not in server.requests[0].body


class TestReAct:
    def test_actions_are_run_until_the_final_report(self, serve: Serve) -> None:
        first = 'Thought: I look.\nAction: bash\nAction Input: {"command": "echo $((6*7))"}\nObservation: 41'
        server, bench = serve(script=[first, "Thought: good.\nFinal Report:\n# Tower\n\nIt is 42 m tall."], tools=False)
        given = answer(bench.agent(bash(), strategy="react"))
        assert given.text == "# Tower\n\nIt is 42 m tall."
        assert "tools" not in server.requests[0].body
        assert "Action Input" in messages(server)[0]["content"]
        assert messages(server)[-1] == {"role": "user", "content": "Observation: 42"}
        assert "41" not in json.dumps(messages(server))  # an observation that the model made up is dropped

    def test_a_thought_alone_is_asked_for_its_action(self, serve: Serve) -> None:
        server, bench = serve(script=["Thought: I should look it up.", "Final Report: 300 m"], tools=False)
        assert answer(bench.agent(bash(), strategy="react")).text == "300 m"
        assert messages(server)[-1]["content"].startswith("Observation: No action was found")

    def test_the_step_limit_asks_for_the_report(self, serve: Serve) -> None:
        act = 'Thought: again\nAction: bash\nAction Input: {"command": "echo looked"}'
        server, bench = serve(script=[act, act, "Final Report: 300 m"], tools=False)
        assert answer(bench.agent(bash(), strategy="react", max_steps=2)).text == "300 m"
        assert server.count() == 3

    def test_an_action_in_the_last_turn_is_no_report(self, serve: Serve) -> None:
        act = 'Thought: again\nAction: bash\nAction Input: {"command": "echo looked"}'
        _, bench = serve(script=[act], tools=False)
        assert answer(bench.agent(bash(), strategy="react", max_steps=2)).failure == "no_report"

    def test_chinese_labels(self, serve: Serve) -> None:
        act = '思考：先查。\n行动：bash\n行动输入：{"command": "echo 三百米"}'
        server, bench = serve(script=[act, "最终报告：\n塔高三百米。"], tools=False)
        assert answer(bench.agent(bash(), strategy="react"), task("塔有多高？", language="zh")).text == "塔高三百米。"
        assert messages(server)[-1]["content"] == "观察: 三百米"


class TestContextOverflow:
    FLOOD = tool_calls(("bash", {"command": "seq 1 2000"}))

    def test_the_report_is_written_from_a_trimmed_history(self, serve: Serve) -> None:
        server, bench = serve(script=[self.FLOOD, self.FLOOD, "The report."])
        server.faults.add(Fault(faults.context_length(), start=3, times=1))
        given = answer(bench.agent(bash()))
        assert given.text == "The report."
        assert given.trajectory[-1]["ended_by"] == "context_length"
        assert "tools" not in server.requests[-1].body
        older, newer = (
            message["content"] for message in messages(server) if message["content"].startswith("Observation")
        )
        assert len(older) < 500 < len(newer)
        assert "has become too long" in newer

    def test_it_is_trimmed_harder_until_it_fits(self, serve: Serve) -> None:
        server, bench = serve(script=[self.FLOOD, self.FLOOD, "The report."])
        server.faults.add(Fault(faults.context_length(), start=3, times=3))
        assert answer(bench.agent(bash())).text == "The report."
        lengths = [len(json.dumps(request.body["messages"])) for request in server.requests]
        assert lengths[2] > lengths[3] > lengths[4] > lengths[5]

    def test_a_replay_knows_of_the_overflow(self, serve: Serve) -> None:
        server, bench = serve(script=[self.FLOOD, "The report."])
        server.faults.add(Fault(faults.context_length(), start=2, times=2))
        first = answer(bench.agent(bash()))
        bench.gateway.mode = "offline"
        again = answer(bench.agent(bash()))
        assert (again.text, again.keys, again.trajectory) == (first.text, first.keys, first.trajectory)
        assert server.count() == 4

    def test_a_history_that_never_fits_excludes_the_grade(self, serve: Serve) -> None:
        server, bench = serve(script=[self.FLOOD, "unused"])
        server.faults.add(Fault(faults.context_length(), start=2))
        with pytest.raises(AnsweringError) as caught:
            answer(bench.agent(bash()))
        assert caught.value.reason == "context_length"
        assert len(caught.value.partial.replies) == 1
        assert server.count() == 2 + len(TRIMS) - 1

    def test_a_task_that_does_not_fit_has_no_last_turn(self, serve: Serve) -> None:
        server, bench = serve(script=["unused"])
        server.faults.add(Fault(faults.context_length()))
        with pytest.raises(CallError) as caught:
            answer(bench.agent(bash()))
        assert caught.value.reason == "context_length"
        assert server.count() == 1

    def test_the_step_limit_meets_an_overflow(self, serve: Serve) -> None:
        server, bench = serve(script=[self.FLOOD, self.FLOOD, "The report."])
        server.faults.add(Fault(faults.context_length(), start=3, times=1))
        given = answer(bench.agent(bash(), max_steps=2))
        assert given.text == "The report."
        assert given.trajectory[-1]["ended_by"] == "step_limit"


class TestTrajectory:
    def test_it_tells_every_step_in_plain_json(self, serve: Serve) -> None:
        _, bench = serve(script=[NARRATED, tool_calls(("bash", {"command": "echo a; exit 3"})), "The report."])
        given = answer(bench.agent(bash()))
        assert json.loads(json.dumps(given.trajectory)) == list(given.trajectory)
        first, second, end = given.trajectory
        assert first["text"] == "Let me search for the next source."
        assert [first["step"], second["step"]] == [1, 2]
        (call,) = second["calls"]
        assert (call["tool"], call["arguments"]) == ("bash", '{"command": "echo a; exit 3"}')
        assert (call["result"], call["is_error"]) == ("a\n[exit code 3]", False)
        assert call["seconds"] > 0
        assert second["usage"]["input_tokens"] > 0
        assert (end["ended_by"], end["report"], end["failure"]) == ("report", "The report.", None)
        assert [first["key"], second["key"], end["key"]] == list(given.keys)

    def test_its_texts_are_bounded(self, serve: Serve) -> None:
        _, bench = serve(script=[{**LOOK, "content": "x" * 100_000}, "y" * 100_000])
        given = answer(bench.agent(bash()))
        assert given.text == "y" * 100_000
        assert len(json.dumps(given.trajectory)) < 60_000

    def test_an_error_keeps_what_was_done(self, serve: Serve) -> None:
        server, bench = serve(script=[LOOK, LOOK, "unused"])
        server.faults.add(Fault(faults.error(400), start=3))
        with pytest.raises(AnsweringError) as caught:
            answer(bench.agent(bash()))
        partial = caught.value.partial
        assert partial.text is None
        assert len(partial.replies) == 2
        assert [entry.get("step") for entry in partial.trajectory] == [1, 2, None]
        assert partial.trajectory[-1]["ended_by"] == "bad_request"
