"""Calls through LiteLLM: any provider, in its own protocol."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_rubrics.calls import litellm_listeners
from pytest_rubrics.calls.litellm_executor import first_only_prepares
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.wire import Crossing, current
from pytest_rubrics.long_lived import long_lived
from pytest_rubrics.quiet import put_filter_first

if TYPE_CHECKING:
    from pytest_rubrics.calls.litellm_session import CrossingSession

CONNECTIONS = 100_000
UNHEARD = Price(input=1.0, output=1.0)  # of a model that LiteLLM does not know, where nobody is told what a call costs


@cache
def load_litellm() -> Any:
    """Import LiteLLM (about 2.4 s of CPU) and make it quiet: no price download, no log of its own, nothing dropped."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOG", "ERROR")
    # How many calls are in flight is the business of the slots alone; these would be 1,000, and 500 for a host.
    os.environ.setdefault("AIOHTTP_CONNECTOR_LIMIT", str(CONNECTIONS))
    os.environ.setdefault("AIOHTTP_CONNECTOR_LIMIT_PER_HOST", str(CONNECTIONS))
    with long_lived():
        import litellm

    litellm.suppress_debug_info = True
    litellm.drop_params = False
    litellm.telemetry = False
    for name in ("LiteLLM", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # The import has put filters back that were those of some test by then.
    put_filter_first(threading.current_thread().name)
    return litellm


@cache
def _session() -> CrossingSession | None:
    """Our session, which LiteLLM uses where it calls by OpenAI's SDK, or None."""
    from pytest_rubrics.calls.litellm_session import install

    return install(load_litellm())


_seen: dict[str, bool] = {}  # whether calls to a model came by in our session


def crosses_by_itself(model: str) -> bool:
    """Whether a call to a model surely enters its crossing in our session; of others LiteLLM may show no such moment.

    It calls a server of one's own by the SDK. Models that it knows, it may call another way.
    """
    if _session() is None:
        return False
    if model in _seen:
        return _seen[model]
    return model.startswith("openai/") and not model.startswith("openai/responses/") and listed(model) is None


@cache
def listed(model: str) -> Mapping[str, Any] | None:
    """What LiteLLM's own table holds of a model, or None."""
    try:
        return load_litellm().get_model_info(model)  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 - by a plain Exception it says that it does not know a model
        return None


def note_crossing(model: str, *, was_seen: bool) -> None:
    """Learn from a call that went through; one that did not come by is enough."""
    _seen[model] = was_seen and _seen.get(model, True)


async def complete(
    request: Request,
    api_base: str | None,
    api_key: str | None,
    headers: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109
    price: Price | None,
    crossing: Crossing | None,
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Ask once; see `pytest_rubrics.calls.transport.send`."""
    is_ours = crosses_by_itself(request.model)
    if crossing and not is_ours:
        await crossing.enter()
    current.set(crossing)
    litellm = load_litellm()
    arguments = _arguments(request, api_base, api_key, headers, timeout)
    is_heard = litellm_listeners.are_any(litellm, arguments)
    if not is_heard and listed(request.model) is None:
        price = UNHEARD
    with first_only_prepares(is_ours), litellm_listeners.logged(is_heard):
        response = await litellm.acompletion(**arguments, **_price(price), num_retries=0, max_retries=0)
    if crossing:
        note_crossing(request.model, was_seen=crossing.was_seen)
    completion = response.model_dump(warnings=False)
    for choice in completion["choices"]:
        choice["message"].setdefault(
            "reasoning_content", None
        )  # LiteLLM has looked for it, and leaves out what is None
    return completion, _headers(response)


def _arguments(
    request: Request, api_base: str | None, api_key: str | None, headers: Mapping[str, str], timeout: float
) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        **request.params,
        "model": request.model,
        "messages": [dict(message) for message in request.messages],
        "timeout": timeout,
        "drop_params": False,
    }
    optional = {
        "api_base": api_base,
        "api_key": api_key,
        "extra_body": dict(request.extra_body) or None,
        "extra_headers": dict(headers) or None,
        "response_format": request.response_format,
        "tools": request.tools,
    }
    arguments.update({name: value for name, value in optional.items() if value is not None})
    return arguments


def _price(price: Price | None) -> dict[str, float]:
    """USD per token, for LiteLLM's callbacks; untold it looks for them, and long where it does not know the model."""
    if price is None:
        return {}
    costs = {
        "input_cost_per_token": price.input,
        "output_cost_per_token": price.output,
        "cache_read_input_token_cost": price.cached_input,
    }
    return {name: cost / 1e6 for name, cost in costs.items() if cost is not None}


def _headers(response: Any) -> dict[str, str]:
    """The provider's own headers, which LiteLLM hands on with a prefix."""
    hidden = getattr(response, "_hidden_params", None) or {}
    prefix = "llm_provider-"
    headers = hidden.get("additional_headers") or {}
    return {name.removeprefix(prefix).lower(): str(value) for name, value in headers.items() if prefix in name}


async def close() -> None:
    """Close the connections that LiteLLM keeps open for the running loop, and no others: it may have other users."""
    if load_litellm.cache_info().currsize == 0:
        return
    with suppress(Exception):  # they end with the process at the latest
        if session := _session():
            await session.aclose()
        cache = load_litellm().in_memory_llm_clients_cache
        ending = cache.update_cache_key_with_event_loop("")
        for key in [key for key in cache.cache_dict if key.endswith(ending)]:
            client = cache.cache_dict.pop(key)
            closing = getattr(client, "aclose", client.close)()
            if inspect.isawaitable(closing):
                await closing
