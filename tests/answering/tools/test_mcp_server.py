from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_rubrics.answering.tools.mcp_server import McpSession, McpSource
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.variables import Secret
from tests.support.agents import answer, bench, is_running, until
from tests.support.provider import Provider, Script, tool_calls

pytest.importorskip("mcp", reason="the extra agents is not installed")

T = TypeVar("T")
SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
COMMAND = (sys.executable, str(SERVER))


def use(source: McpSource, work: Callable[[McpSession], Awaitable[T]]) -> T:
    """What work does in a session, which is closed at the end."""

    async def run() -> T:
        session = source.session(Path())
        try:
            return await work(session)
        finally:
            await session.close()

    return asyncio.run(run())


@pytest.fixture
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until(lambda: _is_open(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class TestSession:
    def test_the_tools_of_a_server_are_listed(self) -> None:
        tools = {tool.name: tool for tool in use(McpSource(COMMAND), lambda session: session.definitions())}
        assert tools["add"].description == "Add two numbers."
        assert set(tools["add"].parameters["properties"]) == {"a", "b"}
        assert "read.variable" in tools

    def test_results_and_errors_are_observations(self) -> None:
        async def work(session: McpSession) -> list[tuple[str, bool]]:
            calls: list[tuple[str, dict[str, object]]] = [
                ("add", {"a": 2, "b": 3}),
                ("fail", {}),
                ("add", {"a": "x"}),
                ("nothing", {}),
            ]
            seen = [await session.call(name, arguments, 30) for name, arguments in calls]
            return [(each.text, each.is_error) for each in seen]

        added, failed, wrong, unknown = use(McpSource(COMMAND), work)
        assert added == ("5", False)
        assert failed[1]
        assert "this tool fails" in failed[0]
        assert wrong[1]
        assert "validation error" in wrong[0]
        assert unknown[1]
        assert "nothing" in unknown[0]

    def test_structured_results_are_shown(self) -> None:
        seen = use(McpSource(COMMAND), lambda session: session.call("table", {}, 30))
        assert '"x": 2' in seen.text

    def test_a_tool_that_hangs_is_given_up(self) -> None:
        seen = use(McpSource(COMMAND), lambda session: session.call("hang", {}, 0.5))
        assert (seen.text, seen.is_error) == ("No result after 0.5 seconds.", True)

    def test_a_server_that_dies_is_started_again_for_the_next_call(self) -> None:
        async def work(session: McpSession) -> tuple[bool, str]:
            await session.call("remember", {"word": "one"}, 30)
            died = await session.call("die", {}, 30)
            return died.is_error, (await session.call("remember", {"word": "two"}, 30)).text

        assert use(McpSource(COMMAND), work) == (True, "two")

    def test_the_server_and_its_children_are_ended(self) -> None:
        async def work(session: McpSession) -> None:
            await session.call("spawn", {"seconds": "71600"}, 30)
            assert is_running("-X tag=71600")
            assert is_running("sleep 71600")

        use(McpSource((sys.executable, "-X", "tag=71600", str(SERVER))), work)
        until(lambda: not is_running("-X tag=71600") and not is_running("sleep 71600"))

    def test_the_environment_holds_what_the_yaml_names_and_no_other_secret(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "the-secret-word")
        monkeypatch.setenv("SEARCH_KEY_HERE", "the-other-word-1")
        source = McpSource(COMMAND, env={"SEARCH_KEY": Secret("${SEARCH_KEY_HERE}", name="SEARCH_KEY")})

        async def work(session: McpSession) -> list[str]:
            names = ("SEARCH_KEY", "OPENAI_API_KEY")
            return [(await session.call("read.variable", {"name": name}, 30)).text for name in names]

        assert use(source, work) == ["the-other-word-1", "unset"]

    def test_a_server_over_http(self, url: str) -> None:
        source = McpSource(url=url, headers={"X-Test": Secret("word", name="X-Test")})

        async def work(session: McpSession) -> tuple[str, str]:
            added = await session.call("add", {"a": 2, "b": 3}, 30)
            return added.text, (await session.call("header", {"name": "x-test"}, 30)).text

        assert use(source, work) == ("5", "word")

    @pytest.mark.parametrize(
        ("command", "reason"),
        [
            (("/no/such/program",), "not found"),
            ((sys.executable, "-c", "import sys; sys.exit('a key is missing')"), "a key is missing"),
        ],
    )
    def test_a_server_that_does_not_start_is_an_error(self, command: tuple[str, ...], reason: str) -> None:
        with pytest.raises(CallError, match=reason) as caught:
            use(McpSource(command), lambda session: session.definitions())
        assert command[0] in str(caught.value)

    def test_an_address_where_nobody_listens_is_an_error(self) -> None:
        with pytest.raises(CallError, match="cannot be used"):
            use(McpSource(url="http://127.0.0.1:9/mcp"), lambda session: session.definitions())

    def test_a_missing_variable_is_named(self) -> None:
        source = McpSource(COMMAND, env={"KEY": Secret("${RUBRICS_UNSET}", name="KEY", place="m.yaml:3, env.KEY")})
        with pytest.raises(CallError, match=r"m\.yaml:3, env\.KEY: the environment variable RUBRICS_UNSET is not set"):
            use(source, lambda session: session.definitions())


class TestAgent:
    def test_an_agent_uses_the_tools_of_a_server(self, tmp_path: Path) -> None:
        script: Script = [
            tool_calls(("add", {"a": 2, "b": 3}), ("read_variable", {"name": "PATH"}), ("fail", {})),
            "Five.",
        ]
        with Provider(script=script) as server, bench(tmp_path, server.url) as own:
            given = answer(own.agent(McpSource((sys.executable, "-X", "tag=71601", str(SERVER)))))
        assert given.text == "Five."
        added, read, failed = given.trajectory[0]["calls"]
        assert (added["result"], added["is_error"]) == ("5", False)
        assert "/" in read["result"]
        assert failed["is_error"]
        until(lambda: not is_running("-X tag=71601"))

    def test_a_replay_starts_no_server(self, tmp_path: Path) -> None:
        counted = tmp_path / "starts"
        source = McpSource(("/bin/sh", "-c", f"echo x >> {counted}; exec {sys.executable} {SERVER}"))
        with (
            Provider(script=[tool_calls(("add", {"a": 2, "b": 3})), "Five."]) as server,
            bench(tmp_path, server.url) as own,
        ):
            first = answer(own.agent(source))
            again = answer(own.agent(source))
            assert server.count() == 2
        assert first.trajectory == again.trajectory
        assert counted.read_text(encoding="utf-8") == "x\n"

    def test_a_resumed_run_learns_that_the_server_was_started_anew(self, tmp_path: Path) -> None:
        script: Script = [tool_calls(("remember", {"word": "one"})), tool_calls(("remember", {"word": "two"})), "Done."]
        with Provider(script=script) as server, bench(tmp_path, server.url) as own:
            assert answer(own.agent(McpSource(COMMAND), max_steps=1)).failure == "no_report"
            given = answer(own.agent(McpSource(COMMAND)))
        results = [call["result"] for entry in given.trajectory[:-1] for call in entry["calls"]]
        assert results[0] == "one"
        assert (
            results[1]
            == "[The server of this tool was started anew: what earlier calls had set up in it is gone.]\ntwo"
        )

    def test_a_secret_that_a_server_repeats_reaches_neither_model_nor_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SEARCH_KEY_HERE", "the-other-word-1")
        source = McpSource(COMMAND, env={"SEARCH_KEY": Secret("${SEARCH_KEY_HERE}", name="SEARCH_KEY")})
        script: Script = [tool_calls(("read_variable", {"name": "SEARCH_KEY"})), "Done."]
        with Provider(script=script) as server, bench(tmp_path, server.url) as own:
            given = answer(own.agent(source))
            assert "the-other-word-1" not in str([request.body for request in server.requests])
            assert "the-other-word-1" not in str(list(own.store.entries()))
        assert given.trajectory[0]["calls"][0]["result"] == "***"

    def test_nothing_is_paid_where_a_server_does_not_start(self, tmp_path: Path) -> None:
        with Provider(script=["Done."]) as server, bench(tmp_path, server.url) as own:
            with pytest.raises(CallError, match="not found"):
                answer(own.agent(McpSource(("/no/such/program",))))
            assert server.count() == 0
