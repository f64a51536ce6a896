"""Calls through OpenAI's SDK, without LiteLLM: for servers of one's own that speak OpenAI's protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_rubrics.calls.errors import ProviderError, refusal, with_code
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.wire import Crossing
from pytest_rubrics.long_lived import long_lived

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

# The SDK would have 1,000 connections at most; how many calls are in flight is the business of the slots alone.
CONNECTIONS = 100_000

# Connections are bound to the loop that opened them.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str | None, str | None], AsyncOpenAI]]
_clients = WeakKeyDictionary()


@cache
def load() -> None:
    """Import the SDK, once: about 0.3 s of CPU, which no call should count as its own."""
    with long_lived():
        import openai  # noqa: F401


async def complete(
    request: Request,
    api_base: str | None,
    api_key: str | None,
    headers: Mapping[str, str],
    crossing: Crossing | None,
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Ask once; see `pytest_rubrics.calls.transport.send`."""
    import httpx2
    import openai

    try:
        if crossing:
            await crossing.enter()
        # Asked this way, the SDK builds no objects of its own for request and reply, which cost more than all the rest.
        response = await _client(api_base, api_key).post(
            "/chat/completions",
            cast_to=httpx2.Response,
            body=body(request),
            options={"headers": dict(headers), "timeout": None},  # the caller's limit holds for the whole call
        )
        if crossing:
            await crossing.leave()
    except openai.APIConnectionError as error:
        raise ProviderError(f"the connection failed: {error.__cause__ or error}", transient=True) from error
    except openai.APIStatusError as error:
        raise refusal(_words(error), error.status_code, error.response.headers) from error
    return _object(response.content), dict(response.headers)


def body(request: Request) -> dict[str, Any]:
    """The JSON that is sent: what LiteLLM sends for the same request to a server that it does not know."""
    formats = {"response_format": request.response_format, "tools": request.tools}
    return {
        **_given(request.params),
        **_given(formats),
        **request.extra_body,
        "model": request.model.removeprefix("openai/"),
        "messages": [_given(message) for message in request.messages],
    }


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _client(api_base: str | None, api_key: str | None) -> AsyncOpenAI:
    """The client of an address in the running loop."""
    import httpx2
    import openai

    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if (api_base, api_key) not in clients:
        limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        http_client = openai.DefaultAioHttpClient(limits=limits)
        clients[api_base, api_key] = openai.AsyncOpenAI(
            base_url=api_base, api_key=api_key, max_retries=0, http_client=http_client
        )
    return clients[api_base, api_key]


def _words(error: APIStatusError) -> str:
    said = error.body.get("message") if isinstance(error.body, dict) else None
    return with_code(str(said or error), error.body)


def _object(content: bytes) -> Mapping[str, Any]:
    """The JSON object of a response with status 200.

    Raises:
        ProviderError: It is none, as behind a proxy that is in trouble, or it says that the call failed.
    """
    try:
        response = json.loads(content)
    except ValueError as error:
        raise ProviderError(f"the response is no JSON: {error}", transient=True) from error
    if not isinstance(response, dict):
        raise ProviderError(f"the response is no JSON object: {str(response)[:200]}", transient=True)
    failure = response.get("error")
    said = failure if isinstance(failure, dict) else {"message": str(failure or "")}
    if said.get("message") or said.get("code") is not None:
        code = said.get("code", 422)  # a server that says nothing more is not asked again
        raise refusal(str(said.get("message", "")), code if isinstance(code, int) else None)
    return response


async def close() -> None:
    """Close the connections of the running loop."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        with suppress(Exception):  # they end with the process at the latest
            await client.close()
