"""One try of a call: over the client that the endpoint names, with one limit of time and one kind of error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from pytest_rubrics.calls import litellm_client, openai_client
from pytest_rubrics.calls.completion import read_completion
from pytest_rubrics.calls.endpoint import Client
from pytest_rubrics.calls.errors import ProviderError, classify
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.wire import Crossing


class Received(NamedTuple):
    """What one try brought.

    Attributes:
        reply: The reply, without its cost and run.
        headers: Headers of the response, names in lower case; they say how much the provider still permits.
    """

    reply: Reply
    headers: Mapping[str, str]


async def send(
    request: Request,
    *,
    api_base: str | None,
    api_key: str | None,
    headers: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109
    client: Client = "litellm",
    crossing: Crossing | None = None,
    price: Price | None = None,
) -> Received:
    """Ask once.

    Args:
        request: What to ask.
        api_base: Address for the wire, or None for the provider's own.
        api_key: Key for the wire, or None where the client finds its own.
        headers: Extra HTTP headers.
        timeout: Seconds for the whole call; the HTTP client's own limits hold for single reads only.
        client: The library that makes the call.
        crossing: Where it waits for its slot, if it needs one; the time begins when it has it.
        price: What the endpoint's file says that it costs.

    Raises:
        ProviderError: The try failed.
        CallError: No call may start any more.
    """
    if client == "openai":
        openai_client.load()
    else:
        litellm_client.load_litellm()
    started = time.perf_counter()
    try:
        async with asyncio.timeout(None if crossing else timeout) as limit:
            if crossing:
                crossing.limit = limit
            if client == "openai":
                response, received_headers = await openai_client.complete(request, api_base, api_key, headers, crossing)
            else:
                response, received_headers = await litellm_client.complete(
                    request, api_base, api_key, headers, timeout, price, crossing
                )
        ended = time.perf_counter()
        if crossing:
            started, ended = crossing.sent_at or started, crossing.came_at or ended
        return Received(read_completion(response, ended - started), received_headers)
    except TimeoutError as error:
        raise ProviderError(f"no reply within {timeout:g} s", status=408, transient=True) from error
    except (asyncio.CancelledError, ProviderError):
        raise
    except Exception as error:
        if crossing and crossing.refusal:
            raise crossing.refusal from None
        raise classify(error) from error


async def close_clients() -> None:
    """Close all connections of the running loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await litellm_client.close()
            await openai_client.close()
