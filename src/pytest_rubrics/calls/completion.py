"""Reads a chat completion in OpenAI's shape, which LiteLLM gives every provider's reply."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_rubrics.calls.errors import ProviderError
from pytest_rubrics.calls.reply import Alternatives, Reply, Usage

LEAST_LOGPROB = -9.2  # of an alternative that is kept: natural logarithm of 1 in 10,000

# Servers that give reasoning no field of its own put it before the answer.
_THOUGHT = re.compile(r"<(?:think|thinking|budget:thinking)>(.*?)</(?:think|thinking|budget:thinking)>(.*)", re.DOTALL)
# What other providers call OpenAI's finish reasons; any word that is not here is ``stop``. The tests ask LiteLLM.
_FINISH_REASONS = {
    native: reason
    for reason, natives in {
        "length": "length max_tokens MAX_TOKENS CONTINUATION compaction pause_turn model_context_window_exceeded",
        "tool_calls": "tool_calls tool_use TOOL_CALL",
        "function_call": "function_call",
        "content_filter": (
            "content_filter content_filtered refusal sensitive guardrail_intervened ERROR_TOXIC SAFETY RECITATION"
            " LANGUAGE OTHER BLOCKLIST PROHIBITED_CONTENT SPII ESCALATION NO_IMAGE IMAGE_SAFETY IMAGE_RECITATION"
            " IMAGE_PROHIBITED_CONTENT IMAGE_OTHER"
        ),
    }.items()
    for native in natives.split()
}


def read_completion(response: Mapping[str, Any], seconds: float) -> Reply:
    """The reply in a response, without its cost and run.

    Args:
        response: The JSON object.
        seconds: Time of the call.

    Raises:
        ProviderError: It holds no message, or the provider broke off.
    """
    try:
        return _read(response, seconds)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"the response is no chat completion ({type(error).__name__}: {error})"
        raise ProviderError(message, status=200, reason="malformed_response", malformed=True) from error


def _read(response: Mapping[str, Any], seconds: float) -> Reply:
    received = Reply(
        usage=_usage(response.get("usage") or {}),
        response_id=response.get("id"),
        served_model=response.get("model"),
        seconds=seconds,
        at=time.time(),
    )
    choices = response["choices"]
    if not isinstance(choices, list):
        raise TypeError("choices is no list")
    if not choices:
        return replace(received, malformed="the response holds no choices")
    choice = choices[0]
    # LiteLLM moves fields that it does not know.
    if error := choice.get("error") or (choice.get("provider_specific_fields") or {}).get("error"):
        raise _broken_off(error)
    message = choice["message"]
    reasoning, content = _reasoning_and_content(message)
    calls = tuple(_tool_call(call) for call in message.get("tool_calls") or ())
    finish_reason = choice.get("finish_reason") or "stop"
    return replace(
        received,
        content=content,
        reasoning=reasoning,
        tool_calls=calls,
        finish_reason="tool_calls" if calls and finish_reason == "stop" else _FINISH_REASONS.get(finish_reason, "stop"),
        logprobs=_alternatives(choice.get("logprobs") or {}),
    )


def _reasoning_and_content(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    content = message.get("content")
    if not isinstance(content, str | None):
        raise TypeError("content is no text")
    for name in ("reasoning_content", "reasoning"):
        if name in message:
            return message[name], content
    thought = _THOUGHT.match(content or "")
    return (thought[1], thought[2]) if thought else (None, content)


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments)
    return {
        **call,
        "id": call.get("id") or f"{uuid.uuid4()}",
        "type": call.get("type") or "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _alternatives(logprobs: Mapping[str, Any]) -> Alternatives:
    """The alternatives at each token that are more likely than 1 in 10,000; a stored reply stays small that way."""
    return [
        [
            (one["token"], round(one["logprob"], 4)),
            *(
                (other["token"], round(other["logprob"], 4))
                for other in one.get("top_logprobs") or ()
                if other["token"] != one["token"] and other["logprob"] > LEAST_LOGPROB
            ),
        ]
        for one in logprobs.get("content") or ()
    ]


def _broken_off(error: Any) -> ProviderError:
    """The error of a provider that failed after it had sent status 200; OpenRouter puts it inside the choice."""
    said = error if isinstance(error, dict) else {"message": str(error)}
    code = said.get("code")
    status = code if isinstance(code, int) else None
    return ProviderError(f"the reply broke off: {said.get('message')}", status=status, transient=True)


def _usage(usage: Mapping[str, Any]) -> Usage:
    asked, written = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    # Some servers count beside the details: in the words of Anthropic, of DeepSeek, and of older OpenAI servers.
    cached = (usage.get("cache_read_input_tokens"), usage.get("prompt_cache_hit_tokens"), asked.get("cached_tokens"))
    reasoning = (written.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    return Usage(
        input_tokens=int(usage.get("prompt_tokens") or 0),
        output_tokens=int(usage.get("completion_tokens") or 0),
        cached_tokens=_first(cached),
        reasoning_tokens=_first(reasoning),
    )


def _first(counts: tuple[Any, ...]) -> int:
    return next((count for count in counts if isinstance(count, int)), 0)
