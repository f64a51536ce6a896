"""The one place that talks to LiteLLM."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from pytest_rubrics.calls.errors import ProviderError, classify
from pytest_rubrics.calls.reply import Alternatives, Reply, Usage
from pytest_rubrics.calls.request import Request

LEAST_LOGPROB = -9.2  # of an alternative that is kept: natural logarithm of 1 in 10,000


class Received(NamedTuple):
    """What one try brought.

    Attributes:
        reply: The reply, without its cost and run.
        headers: Headers of the response, names in lower case; they say how much the provider still permits.
    """

    reply: Reply
    headers: Mapping[str, str]


@cache
def load_litellm() -> Any:
    """Import LiteLLM (about 2.4 s of CPU) and make it quiet: no price download, no log of its own, nothing dropped."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOG", "ERROR")
    import litellm

    litellm.suppress_debug_info = True
    litellm.drop_params = False
    litellm.telemetry = False
    for name in ("LiteLLM", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return litellm


async def close_clients() -> None:
    """Close the connections that LiteLLM keeps open for the running loop, and no others: it may have other users."""
    if load_litellm.cache_info().currsize == 0:
        return
    with suppress(Exception):  # they end with the process at the latest
        cache = load_litellm().in_memory_llm_clients_cache
        ending = cache.update_cache_key_with_event_loop("")
        async with asyncio.timeout(2):
            for key in [key for key in cache.cache_dict if key.endswith(ending)]:
                client = cache.cache_dict.pop(key)
                closing = getattr(client, "aclose", client.close)()
                if inspect.isawaitable(closing):
                    await closing


async def send(
    request: Request,
    *,
    api_base: str | None,
    api_key: str | None,
    headers: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109
) -> Received:
    """Ask once.

    Args:
        request: What to ask.
        api_base: Address for the wire, or None for the provider's own.
        api_key: Key for the wire, or None where LiteLLM finds its own.
        headers: Extra HTTP headers.
        timeout: Seconds for the whole call; the HTTP client's own limits hold for single reads only.

    Raises:
        ProviderError: The try failed.
    """
    litellm = load_litellm()
    started = time.perf_counter()
    try:
        async with asyncio.timeout(timeout):
            response = await litellm.acompletion(
                **_arguments(request, api_base, api_key, headers, timeout), num_retries=0, max_retries=0
            )
    except TimeoutError as error:
        raise ProviderError(f"no reply within {timeout:g} s", status=408, transient=True) from error
    except asyncio.CancelledError:
        raise
    except Exception as error:
        raise classify(error) from error
    return Received(_read(response, seconds=time.perf_counter() - started), _headers(response))


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


def _headers(response: Any) -> dict[str, str]:
    """The provider's own headers, which LiteLLM hands on with a prefix."""
    hidden = getattr(response, "_hidden_params", None) or {}
    prefix = "llm_provider-"
    headers = hidden.get("additional_headers") or {}
    return {name.removeprefix(prefix).lower(): str(value) for name, value in headers.items() if prefix in name}


def _read(response: Any, seconds: float) -> Reply:
    received = Reply(
        usage=_usage(getattr(response, "usage", None)),
        response_id=getattr(response, "id", None),
        served_model=getattr(response, "model", None),
        seconds=seconds,
        at=time.time(),
    )
    if not response.choices:
        return replace(received, malformed="the response holds no choices")
    choice = response.choices[0]
    if error := (getattr(choice, "provider_specific_fields", None) or {}).get("error"):
        raise _broken_off(error)
    message = choice.message
    return replace(
        received,
        content=message.content,
        reasoning=getattr(message, "reasoning_content", None),
        tool_calls=tuple(call.model_dump() for call in getattr(message, "tool_calls", None) or ()),
        finish_reason=choice.finish_reason,
        logprobs=_alternatives(getattr(choice, "logprobs", None)),
    )


def _alternatives(logprobs: Any) -> Alternatives:
    """The alternatives at each token that are more likely than 1 in 10,000; a stored reply stays small that way."""
    return [
        [
            (one.token, round(one.logprob, 4)),
            *(
                (other.token, round(other.logprob, 4))
                for other in getattr(one, "top_logprobs", None) or ()
                if other.token != one.token and other.logprob > LEAST_LOGPROB
            ),
        ]
        for one in getattr(logprobs, "content", None) or ()
    ]


def _broken_off(error: Any) -> ProviderError:
    """The error of a provider that failed after it had sent status 200; OpenRouter puts it inside the choice."""
    said = error if isinstance(error, dict) else {"message": str(error)}
    code = said.get("code")
    status = code if isinstance(code, int) else None
    return ProviderError(f"the reply broke off: {said.get('message')}", status=status, transient=True)


def _usage(usage: Any) -> Usage:
    def count(holder: Any, name: str) -> int:
        return int(getattr(holder, name, None) or 0)

    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        cached_tokens=count(getattr(usage, "prompt_tokens_details", None), "cached_tokens"),
        reasoning_tokens=count(getattr(usage, "completion_tokens_details", None), "reasoning_tokens"),
    )
