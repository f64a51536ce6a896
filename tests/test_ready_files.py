"""Every ready model and judge file, through LiteLLM to a server that records what arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pytest_rubrics.calls.providers import API_KEY_VARIABLES, BASE_URL_VARIABLES, effective_api_base, provider_of
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.structured import response_format
from pytest_rubrics.calls.transport import close_clients, send
from pytest_rubrics.config import EndpointConfig, load_judge, load_model
from pytest_rubrics.judging.schemas import sheet_schema
from pytest_rubrics.workspace import Workspace, package_data
from tests.support.provider import Provider

# The first call of LiteLLM makes pydantic warn.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

READY = ("anthropic", "dashscope", "deepseek", "gemini", "ollama", "openai", "openrouter", "vllm")
PATHS = {"anthropic": "/v1/messages", "gemini": ":generateContent", "ollama_chat": "/api/chat"}
TEXT = '{"verdicts": []}'
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}

# What each provider answers, in its own shape.
ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "/v1/messages": {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "served",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 7},
    },
    ":generateContent": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
        "modelVersion": "served",
    },
    "/api/chat": {
        "model": "served",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": TEXT},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 5,
        "eval_count": 7,
    },
    "/chat/completions": {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT}}],
        "usage": USAGE,
    },
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    def answer(request: Any) -> tuple[int, Any]:
        known = [body for end, body in ANSWERS.items() if end in request.path]
        return (200, known[0]) if known else (404, {})  # LiteLLM asks Ollama about the model first

    with Provider(other=answer) as server:
        root = server.url.removesuffix("/v1")
        for provider, variables in BASE_URL_VARIABLES.items():
            # Only these ask for a path of their own below the address.
            base = root if provider in {"ollama_chat", "anthropic"} else f"{root}/v1/other"
            for name in variables:
                monkeypatch.setenv(name, base)
        monkeypatch.setenv("VLLM_API_BASE", f"{root}/v1/other")
        for variables in API_KEY_VARIABLES.values():
            for name in variables:
                monkeypatch.setenv(name, "sk-only-for-this-test")
        yield server


def ask(config: EndpointConfig, form: Mapping[str, Any] | None) -> Reply:
    request = Request(
        model=config.model,
        address=effective_api_base(config.model, config.api_base),
        messages=[{"role": "user", "content": "Question? Reply with JSON."}],
        params=config.params,
        extra_body=config.extra_body,
        response_format=form,
    )
    assert isinstance(request.address, str)
    address, key = request.address, config.api_key.resolve() if config.api_key else None

    async def once() -> Reply:
        try:
            return (await send(request, api_base=address, api_key=key, headers={}, timeout=60)).reply
        finally:
            await close_clients()

    return asyncio.run(once())


def check(server: Provider, config: EndpointConfig) -> Mapping[str, Any]:
    """Check address and model of the one request, and return its body."""
    provider = provider_of(config.model) or ""
    path = PATHS.get(provider, "/chat/completions")
    (recorded,) = (request for request in server.requests if path in request.path)
    name = config.model.partition("/")[2]
    assert name in (recorded.path if provider == "gemini" else recorded.body["model"])
    assert "Question?" in json.dumps(recorded.body)
    return dict(recorded.body)


@pytest.mark.parametrize("name", READY)
def test_a_ready_model_reaches_its_provider(server: Provider, name: str) -> None:
    config = load_model(name, Workspace(package_data())).config
    assert isinstance(config, EndpointConfig)
    reply = ask(config, None)
    assert reply.content == TEXT
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (5, 7)
    body = json.dumps(check(server, config))
    assert all(str(value) in body for value in config.params.values())


@pytest.mark.parametrize("name", READY)
def test_a_ready_judge_asks_for_a_schema_that_is_not_dropped(server: Provider, name: str) -> None:
    (member,) = load_judge(name, Workspace(package_data())).members
    schema = sheet_schema(["1", "7"], ["yes", "no"], fixed_order=False, longest=None)
    reply = ask(member.config, response_format("json_schema", schema))
    assert reply.content
    body = json.dumps(check(server, member.config))
    assert "rubric_id" in body
    assert "justification" in body
