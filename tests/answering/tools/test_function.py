from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.answering.tools.function import FunctionTool
from pytest_rubrics.answering.tools.tool import Definition, Observation
from pytest_rubrics.calls.errors import CallError
from tests.support.agents import answer, bench
from tests.support.provider import Provider, Script, tool_calls

MODULE = "tests.support.agent_functions"


def definition(name: str) -> Definition:
    (found,) = asyncio.run(FunctionTool(f"{MODULE}:{name}").definitions())
    return found


def call(name: str, seconds: float = 10, **arguments: Any) -> Observation:
    return asyncio.run(FunctionTool(f"{MODULE}:{name}").call(name, arguments, seconds))


def test_the_schema_comes_from_the_signature_and_the_docstring() -> None:
    found = definition("search")
    assert (found.name, found.description) == ("search", "Search the library.")
    assert found.parameters["required"] == ["query"]
    assert found.parameters["properties"]["query"]["description"] == "Words to look for."
    assert found.parameters["properties"]["limit"]["default"] == 3
    assert definition("nothing").parameters["properties"] == {}


def test_it_is_called_with_checked_arguments() -> None:
    assert json.loads(call("search", query="塔", limit=2).text) == ["塔 0", "塔 1"]
    assert call("fetch", url="x").text == "page x"
    assert call("nothing").text == "[no result]"


def test_arguments_that_do_not_fit_are_told() -> None:
    seen = call("search", query=3, size=1)
    assert seen.is_error
    assert seen.text.startswith("The arguments do not fit: ")
    assert "query: Input should be a valid string" in seen.text
    assert "size: Unexpected keyword argument" in seen.text


@pytest.mark.parametrize(
    ("kind", "text"), [("lookup", "LookupError: nothing there"), ("exit", "SystemExit"), ("validation", "Point")]
)
def test_what_it_raises_is_told(kind: str, text: str) -> None:
    seen = call("fail", kind=kind)
    assert seen.is_error
    assert text in seen.text
    assert "do not fit" not in seen.text


def test_one_that_hangs_is_given_up() -> None:
    seen = call("hang", seconds=0.2)
    assert (seen.text, seen.is_error) == ("No result after 0.2 seconds.", True)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no.such.module:name", "No module named 'no'"),
        (f"{MODULE}:missing", "no attribute 'missing'"),
        (f"{MODULE}:not_a_function", "it is no function"),
        (f"{MODULE}:by_position", "by position only"),
    ],
)
def test_what_cannot_be_used_is_an_error(path: str, reason: str) -> None:
    with pytest.raises(CallError, match=reason) as caught:
        asyncio.run(FunctionTool(path).definitions())
    assert path in str(caught.value)


def test_an_agent_calls_functions(tmp_path: Path) -> None:
    script: Script = [tool_calls(("search", {"query": "a", "limit": 1}), ("fail", {"kind": "x"})), "Done."]
    tools = [FunctionTool(f"{MODULE}:{name}") for name in ("search", "fail")]
    with Provider(script=script) as server, bench(tmp_path, server.url) as own:
        given = answer(own.agent(*tools))
        assert [tool["function"]["name"] for tool in server.requests[0].body["tools"]] == ["search", "fail"]
    assert [call["result"] for call in given.trajectory[0]["calls"]] == ['["a 0"]', "LookupError: nothing there"]
