"""The HTTP session that LiteLLM is given for calls by OpenAI's SDK: its own, entered when there is a slot."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import httpx

from pytest_rubrics.calls.wire import current


class CrossingTransport(httpx.AsyncBaseTransport):
    """Exchanges requests where calls cross the wire.

    Args:
        make: Makes the transport of a loop, to which connections are bound.
    """

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._make = make
        self._inner: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncBaseTransport] = WeakKeyDictionary()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Exchange a request for its whole response."""
        loop, crossing = asyncio.get_running_loop(), current.get()
        if loop not in self._inner:
            self._inner[loop] = self._make()
        if crossing is None:
            return await self._inner[loop].handle_async_request(request)
        crossing.was_seen = True
        await crossing.enter()
        response = await self._inner[loop].handle_async_request(request)
        await response.aread()
        if response.is_success:
            await crossing.leave()
        return response

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        inner = self._inner.pop(asyncio.get_running_loop(), None)
        if inner is not None:
            await inner.aclose()


class CrossingSession(httpx.AsyncClient):
    """A session that stays open for other loops when a client in one of them closes it."""

    def __init__(self, transport: CrossingTransport, verify: ssl.SSLContext | str | bool) -> None:
        super().__init__(verify=verify, transport=transport, follow_redirects=True)
        self._crossing = transport

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await self._crossing.aclose()


def install(litellm: Any) -> CrossingSession | None:
    """Give LiteLLM the session, unless the user has given it one or has chosen another HTTP library."""
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, get_ssl_configuration

    if litellm.aclient_session is not None or not hasattr(AsyncHTTPHandler, "create_aiohttp_transport"):
        return None
    if not AsyncHTTPHandler.should_use_aiohttp_transport():
        return None
    verify = get_ssl_configuration()

    def make() -> Any:
        return AsyncHTTPHandler.create_aiohttp_transport(
            ssl_context=verify if isinstance(verify, ssl.SSLContext) else None,
            ssl_verify=verify if isinstance(verify, bool) else None,
        )

    session = CrossingSession(CrossingTransport(make), verify)
    litellm.aclient_session = session
    return session
