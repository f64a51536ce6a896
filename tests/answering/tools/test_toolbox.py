from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.answering.journal import Journal
from pytest_rubrics.answering.steps import ToolCall
from pytest_rubrics.answering.tools.function import FunctionTool
from pytest_rubrics.answering.tools.tool import Observation
from pytest_rubrics.answering.tools.toolbox import Toolbox
from tests.support.agents import Bench, bench

MODULE = "tests.support.agent_functions"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "http://127.0.0.1:9/v1") as made:
        yield made


def toolbox(own: Bench, *names: str, output_limit: int = 1000) -> Toolbox:
    tools = [FunctionTool(f"{MODULE}:{name}") for name in names]
    return Toolbox(tools, own.folder / "run", Journal(own.gateway), output_limit)


async def call(box: Toolbox, name: str, *, step: str = "step", index: int = 0, **arguments: object) -> Observation:
    await box.load("tools:run", anew=False)
    return await box.call(step, index, ToolCall(name, "", arguments), 10)


def test_tools_of_one_name_are_told_apart(own: Bench) -> None:
    box = toolbox(own, "search", "search")
    assert asyncio.run(call(box, "search_2", query="a", limit=1)).text == '["a 0"]'
    assert [tool.name for tool in box.definitions] == ["search", "search_2"]


def test_a_stored_list_of_tools_serves_until_it_is_asked_anew(own: Bench) -> None:
    async def names(box: Toolbox, *, anew: bool) -> list[str]:
        await box.load("tools:run", anew=anew)
        return [tool.name for tool in box.definitions]

    assert asyncio.run(names(toolbox(own, "search"), anew=False)) == ["search"]
    assert asyncio.run(names(toolbox(own, "fetch"), anew=False)) == ["search"]
    assert asyncio.run(names(toolbox(own, "fetch"), anew=True)) == ["fetch"]
    assert asyncio.run(names(toolbox(own, "search"), anew=False)) == ["fetch"]


def test_a_call_is_made_once_for_its_place_in_a_run(own: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def note(self: FunctionTool) -> object:
        def anything(value: str) -> str:
            calls.append(value)
            return value

        return anything

    monkeypatch.setattr(FunctionTool, "load", note)

    async def run() -> None:
        box = toolbox(own, "anything")
        await call(box, "anything", value="a")
        await call(box, "anything", value="a")  # the same place: once
        await call(box, "anything", value="a", index=1)
        await call(box, "anything", value="a", step="other")
        await call(box, "anything", value="b")

    asyncio.run(run())
    assert calls == ["a", "a", "a", "b"]


def test_a_call_that_was_interrupted_says_so_when_it_is_made_again(own: Bench) -> None:
    async def run() -> tuple[str, str]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await call(toolbox(own, "hang"), "hang")
        box = toolbox(own, "hang")
        await box.load("tools:run", anew=False)
        again = await box.call("step", 0, ToolCall("hang", "", {}), 0.2)
        return again.text.split("\n")[0], again.text.split("\n")[1]

    note, text = asyncio.run(run())
    assert note.startswith("[This call was interrupted and is made again")
    assert text == "No result after 0.2 seconds."


def test_long_results_are_cut_in_the_middle(own: Bench) -> None:
    seen = asyncio.run(call(toolbox(own, "search", output_limit=100), "search", query="x" * 50, limit=20))
    assert seen.text.startswith('["xxx')
    assert seen.text.endswith('19"]')
    assert len(seen.text) < 160
