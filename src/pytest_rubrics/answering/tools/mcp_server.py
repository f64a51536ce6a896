"""Tools of MCP servers, through the official client library (``pip install "pytest-rubrics[agents]"``)."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pytest_rubrics.answering.tools.tool import Definition, Observation
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.redaction import redact, register_secret
from pytest_rubrics.variables import Secret, UnsetVariableError

if TYPE_CHECKING:
    from mcp import Client

START_TIMEOUT = 120.0  # seconds; a server may have to be fetched first, as npx does
CLOSE_TIMEOUT = 15.0
_MAY_BE_CREDENTIAL = re.compile("key|token|secret|passw|auth|cookie", re.IGNORECASE)
_LOST = "The server of this tool was started anew: what earlier calls had set up in it is gone."


@dataclass(frozen=True, slots=True)
class McpSource:
    """A configured MCP server: a command that speaks over its standard input and output, or a URL.

    Attributes:
        command: Program and arguments.
        env: Variables for it, beside HOME, PATH and the like.
        url: Address of a server with streamable HTTP.
        headers: Headers for it.
        root: Where the program starts.
    """

    command: Sequence[str] = ()
    env: Mapping[str, Secret] = field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    root: Path = Path()

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides the results."""
        return {"mcp": self.url or list(self.command)}

    @property
    def name(self) -> str:
        """For messages."""
        return self.url or " ".join(self.command)

    async def check(self, folder: Path) -> None:
        """Only whether the client library is there: a server is tried when its tools are listed.

        Raises:
            CallError: It is not.
        """
        if importlib.util.find_spec("mcp") is None:
            raise CallError("error", 'MCP tools need a package more: pip install "pytest-rubrics[agents]"')

    def session(self, folder: Path) -> McpSession:
        """Begin an agent run; the server is connected when it is first needed."""
        return McpSession(self)


@dataclass(slots=True)
class McpSession:
    """A connection of one agent run.

    It lives in a task of its own: the library's cancel scopes must be left by the task that entered them, and a server
    that breaks off must not cancel the agent.
    """

    source: McpSource
    _client: Client | None = None
    _serving: asyncio.Task[None] | None = None
    _ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def definitions(self) -> Sequence[Definition]:
        """The tools of the server.

        Raises:
            CallError: It cannot be reached, or does not answer.
        """
        try:
            client = await self._connected()
            tools, cursor = [], None
            async with asyncio.timeout(START_TIMEOUT):
                while True:
                    page = await client.list_tools(cursor=cursor)
                    tools += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except CallError:
            raise
        except Exception as error:
            raise self._unusable(_text(error)) from error
        return [Definition(tool.name, tool.description or "", tool.input_schema) for tool in tools]

    def lost(self) -> str | None:
        """Its state, whatever it was."""
        return _LOST

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Observation:
        """Run a tool of the server; a server that has ended is started again for the next call."""
        started = time.perf_counter()
        try:
            client = await self._connected()
            async with asyncio.timeout(seconds):
                result = await client.call_tool(name, dict(arguments))
        except TimeoutError:
            return Observation(f"No result after {seconds:g} seconds.", True, time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - whatever a server does wrong is for the model to see
            if _is_closed(error):
                await self.close()
            return Observation(_text(error), True, time.perf_counter() - started)
        return Observation(_shown(result), bool(result.is_error), time.perf_counter() - started)

    async def close(self) -> None:
        """Disconnect; a server that was started is ended, its children too."""
        serving, self._serving, self._client = self._serving, None, None
        if serving is not None:
            self._ending.set()
            done, _ = await asyncio.wait([serving], timeout=CLOSE_TIMEOUT)
            if not done:
                serving.cancel()
                await asyncio.wait([serving])
            if not serving.cancelled():
                serving.exception()  # a server that breaks off at the end is no news

    async def discard(self) -> None:
        """Nothing is kept."""

    async def _connected(self) -> Client:
        if self._client is None:
            await self.source.check(Path())
            await self.close()
            self._ending = asyncio.Event()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(ready))
            try:
                async with asyncio.timeout(START_TIMEOUT):
                    self._client = await ready
            except TimeoutError:
                await self.close()
                raise self._unusable(f"no connection after {START_TIMEOUT:g} seconds") from None
        return self._client

    async def _serve(self, ready: asyncio.Future[Client]) -> None:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            try:
                async with AsyncExitStack() as stack:
                    client = await self._open(stack, said)
                    ready.set_result(client)
                    await self._ending.wait()
            except Exception as error:
                if ready.done():
                    raise
                said.seek(0)
                tail = " ".join(said.read().split())[-500:]
                ready.set_exception(self._unusable(_text(error) + (f"; it said: {tail}" if tail else "")))

    async def _open(self, stack: AsyncExitStack, said: IO[str]) -> Client:
        await asyncio.to_thread(importlib.import_module, "mcp")  # takes a second
        from mcp import Client, StdioServerParameters, stdio_client

        source = self.source
        try:
            env, headers = _resolved(source.env), _resolved(source.headers)
        except UnsetVariableError as error:
            raise CallError("error", str(error)) from error
        if source.url is None:
            program, *arguments = _with_its_children(source.command)
            parameters = StdioServerParameters(command=program, args=arguments, env=env, cwd=source.root)
            return await stack.enter_async_context(Client(stdio_client(parameters, errlog=said)))  # type: ignore[arg-type]
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=START_TIMEOUT))
        return await stack.enter_async_context(Client(streamable_http_client(source.url, http_client=http)))

    def _unusable(self, reason: str) -> CallError:
        return CallError("error", redact(f"the MCP server {self.source.name} cannot be used: {reason}"))


def _resolved(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The values, of which those that may be credentials are kept out of what the server says."""
    values = {name: secret.resolve() for name, secret in secrets.items()}
    for name, value in values.items():
        if _MAY_BE_CREDENTIAL.search(name):
            register_secret(value)
    return values


def _with_its_children(command: Sequence[str]) -> Sequence[str]:
    """A command that ends what the server has started when the server ends; the library does so only by force."""
    return command if os.name == "nt" else ("/bin/sh", "-c", '"$@"; kill -9 0', "sh", *command)


def _is_closed(error: Exception) -> bool:
    from mcp_types import CONNECTION_CLOSED

    return getattr(error, "code", None) == CONNECTION_CLOSED or type(error).__name__ == "ClosedResourceError"


def _text(error: BaseException) -> str:
    """What an error says; of a group of errors, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return redact(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _shown(result: Any) -> str:
    """The text of a result; of pictures and sounds only what they are."""
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and hasattr(block.resource, "text"):
            parts.append(block.resource.text)
        else:
            parts.append(f"[{block.type}, not shown]")
    if not parts and result.structured_content is not None:
        import json

        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) or "[no output]"
