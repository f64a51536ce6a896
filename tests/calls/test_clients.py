"""LiteLLM and OpenAI's SDK side by side: the same requests on the wire, the same replies, the same errors."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rubrics.calls import litellm_client
from pytest_rubrics.calls.endpoint import Client
from pytest_rubrics.calls.errors import ProviderError
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.structured import response_format
from pytest_rubrics.calls.transport import Received, send
from pytest_rubrics.judging.schemas import sheet_schema
from tests.support import faults
from tests.support.calls import running_loop
from tests.support.faults import Effect, Fault, openai_error
from tests.support.provider import Provider, tool_calls

CLIENTS: Sequence[Client] = ("litellm", "openai")
QUESTION = [{"role": "user", "content": "a question"}]
REQUEST = Request("openai/model", None, QUESTION)
Outcome: TypeAlias = Received | ProviderError


@dataclass(frozen=True)
class Both:
    """Both clients before one provider, in one loop.

    Attributes:
        server: The provider.
        run: Runs a coroutine in the loop.
    """

    server: Provider
    run: Callable[[Callable[[], Awaitable[Any]]], Any]

    def outcome(self, client: Client, request: Request, *, timeout: float = 20.0, **wire: Any) -> Outcome:
        """What comes of one try."""
        arguments: dict[str, Any] = {"api_base": self.server.url, "api_key": "key", "headers": {}, **wire}

        async def once() -> Outcome:
            try:
                return await send(request, client=client, timeout=timeout, **arguments)
            except ProviderError as error:
                return error

        return cast("Outcome", self.run(once))

    def outcomes(self, request: Request, **wire: Any) -> list[Outcome]:
        """What comes of one try by each client."""
        return [self.outcome(client, request, **wire) for client in CLIENTS]


@pytest.fixture(scope="module")
def module_wide() -> Iterator[Both]:
    with Provider(answer_bytes=50) as server, running_loop() as run:
        yield Both(server, run)


@pytest.fixture
def both(module_wide: Both) -> Iterator[Both]:
    yield module_wide
    module_wide.server.faults.clear()


# What is sent

NAMES = st.sampled_from(["model", "org/name:tag", "Qwen/Qwen3.5-27B", "gpt-oss-120b", "deepseek-r1", "o9"])
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCHEMA = sheet_schema(["1", "2"], ("yes", "no"), fixed_order=True, longest=100)
TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
            "additionalProperties": False,
        },
    },
}
KNOWN: Mapping[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([None, 0, 0.7, 1]),
    "top_p": st.sampled_from([None, 0.5, 1.0]),
    "max_tokens": st.sampled_from([None, 1, 32768]),
    "max_completion_tokens": st.just(100),
    "reasoning_effort": st.sampled_from([None, "none", "low", "high", "xhigh"]),
    "seed": st.integers(0, 9),
    "stop": st.sampled_from([["a", "b"], "a"]),
    "presence_penalty": st.sampled_from([0, 0.5]),
    "frequency_penalty": st.just(0.5),
    "logit_bias": st.just({"1": 2}),
    "logprobs": st.booleans(),
    "top_logprobs": st.sampled_from([None, 0, 5]),
    "parallel_tool_calls": st.booleans(),
    "service_tier": st.just("flex"),
    "store": st.just(False),
    "prompt_cache_key": TEXT,
    "safety_identifier": TEXT,
    "web_search_options": st.just({}),
    "modalities": st.just(["text"]),
}
OTHER: Mapping[str, st.SearchStrategy[Any]] = {
    "top_k": st.sampled_from([None, 20]),
    "min_p": st.just(0.1),
    "repetition_penalty": st.just(1.1),
    "enable_thinking": st.booleans(),
    "thinking_budget": st.just(1024),
    "reasoning": st.just({"effort": "high"}),
    "provider": st.just({"order": ["a"], "allow_fallbacks": False}),
    "ignore_eos": st.booleans(),
}
BODY: Mapping[str, st.SearchStrategy[Any]] = {
    "chat_template_kwargs": st.just({"enable_thinking": False}),
    "guided_choice": st.just(["yes", "no"]),
    "nothing": st.none(),
    "temperature": st.just(0.3),
    "seed": st.just(7),
    "日本": TEXT,
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXT}),
        st.just({"role": "assistant", "content": None, "tool_calls": [CALL]}),
        st.just({"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "hm"}),
        st.just({"role": "tool", "tool_call_id": "call_1", "content": "a file"}),
    ),
    max_size=4,
).map(lambda rest: [*QUESTION, *rest])
REQUESTS = st.builds(
    Request,
    model=NAMES.map(lambda name: f"openai/{name}"),
    address=st.none(),
    messages=MESSAGES,
    params=st.fixed_dictionaries({}, optional={**KNOWN, **OTHER}),
    extra_body=st.fixed_dictionaries({}, optional=BODY),
    response_format=st.sampled_from([None, response_format("json_schema", SCHEMA), {"type": "text"}]),
    tools=st.sampled_from([None, [TOOL]]),
)
HEADERS = st.sampled_from([{}, {"X-Team": "a b"}, {"Authorization": "Basic abc"}, {"User-Agent": "mine"}])
PRICES = st.sampled_from([None, Price(1.0, 2.0), Price(0.0, 0.0, cached_input=0.0)])
# Where the SDK says how long the HTTP client waits for a read: our own limit holds for the whole call.
UNLIKE = {"x-stainless-read-timeout", "x-stainless-raw-response", "content-length"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=REQUESTS, headers=HEADERS, price=PRICES)
def test_both_send_the_same(both: Both, request: Request, headers: Mapping[str, str], price: Price | None) -> None:
    for found in both.outcomes(request, headers=headers, price=price):
        assert isinstance(found, Received), found
    theirs, ours = both.server.requests[-2:]
    assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
    assert _telling(ours.headers) == _telling(theirs.headers)


def _telling(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in UNLIKE}


# What comes back

MESSAGES_BACK: Sequence[Mapping[str, Any]] = [
    {"content": "text"},
    {"content": ""},
    {"content": None},
    {"content": None, "refusal": "no"},
    {},
    {"content": "<think>hm</think>text"},
    {"content": "<thinking>hm\nhm</thinking>\n\ntext"},
    {"content": "<think>never ends"},
    {"content": "hm</think>text"},
    {"content": " <think>hm</think>text"},
    {"content": "<think></think><think>hm</think>text"},
    {"content": "text", "reasoning_content": "hm"},
    {"content": "<think>a</think>text", "reasoning_content": "hm"},
    {"content": "<think>a</think>text", "reasoning_content": None},
    {"content": "text", "reasoning_content": ""},
    {"content": "text", "reasoning": "hm"},
    {"content": "text", "reasoning": None, "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    {"content": "text", "tool_calls": []},
    {"content": "text", "tool_calls": None, "function_call": None, "annotations": [], "audio": None},
    tool_calls(("bash", {"command": "ls"}), ("read", {"path": "日本"})),
    {"content": "text", "tool_calls": [{"id": "a", "index": 0, "type": "function", "function": {"name": "f"}}]},
    {"content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"a": 1}}}]},
    {"content": None, "tool_calls": [{"id": "a", "type": None, "function": {"name": "f", "arguments": "no JSON"}}]},
    {"content": "text", "tool_calls": [{"id": "a"}]},
    {"content": 5},
    {"content": "😀 \ufeff\u200b"},
]
USAGES: Sequence[Any] = [
    None,
    {},
    {"prompt_tokens": 5},
    {"prompt_tokens": 5, "completion_tokens": None, "total_tokens": 5},
    {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12, "prompt_tokens_details": None},
    {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0}},
    {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": None}},
    {"prompt_tokens": 5, "completion_tokens": 7, "prompt_cache_hit_tokens": 2, "prompt_cache_miss_tokens": 3},
    {"prompt_tokens": 5, "completion_tokens": 7, "cache_read_input_tokens": 2, "prompt_cache_hit_tokens": 1},
    {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {}, "cache_read_input_tokens": 2},
    {"prompt_tokens": 5, "completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 4}},
    {"prompt_tokens": 5, "completion_tokens": 7, "reasoning_tokens": 4},
    {"prompt_tokens": 5, "completion_tokens": 7, "cost": 0.5, "completion_tokens_details": {"reasoning_tokens": None}},
]


def replies(both: Both, change: Callable[[dict[str, Any]], None], **fields: Any) -> list[Any]:
    """What both clients make of one response: a reply without what no two calls share, or the error."""
    both.server.faults.clear()

    def changed(body: dict[str, Any]) -> None:
        body["id"] = "id"
        change(body)

    both.server.faults.add(Fault(faults.changed(changed)))
    request = Request("openai/org/model", None, QUESTION, **fields)
    return [_comparable(found) for found in both.outcomes(request)]


def _comparable(found: Outcome) -> Any:
    if isinstance(found, ProviderError):
        assert found.malformed, found
        return kind_of(found)
    assert found.reply.at > 0
    assert found.reply.seconds > 0
    return replace(found.reply, at=0.0, seconds=0.0).to_row()


def kind_of(error: Outcome) -> tuple[Any, ...]:
    assert isinstance(error, ProviderError)
    wait = None if error.retry_after is None else round(error.retry_after / 3)
    return (error.reason, error.transient, error.status, wait, error.rate_limited, error.filtered, error.malformed)


@pytest.mark.parametrize("message", MESSAGES_BACK, ids=range(len(MESSAGES_BACK)))
@pytest.mark.parametrize("finish_reason", ["stop", "length", "tool_calls", None])
def test_both_read_the_same_message(both: Both, message: Mapping[str, Any], finish_reason: str | None) -> None:
    def change(body: dict[str, Any]) -> None:
        body["choices"][0].update(message={"role": "assistant", **message}, finish_reason=finish_reason)

    theirs, ours = replies(both, change)
    assert ours == theirs


@pytest.mark.parametrize("usage", USAGES, ids=range(len(USAGES)))
def test_both_count_the_same_tokens(both: Both, usage: Any) -> None:
    theirs, ours = replies(both, lambda body: body.update(usage=usage))
    assert ours == theirs


def test_both_know_the_same_finish_reasons(both: Both) -> None:
    litellm_client.load_litellm()
    # A constant of LiteLLM's; without it the test would ask of few.
    words = importlib.import_module("litellm.litellm_core_utils.core_helpers")._FINISH_REASON_MAP

    def finish(word: str, body: dict[str, Any]) -> None:
        body["choices"][0]["finish_reason"] = word

    for word in [*words, "abort", "anything else"]:
        theirs, ours = replies(both, partial(finish, word))
        assert (word, ours["finish_reason"]) == (word, theirs["finish_reason"])


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(model=None),
        lambda body: body.update(system_fingerprint="a", service_tier="default", created=1.5),
        lambda body: body.pop("usage"),
        lambda body: body.update(error=None),
        lambda body: body.update(error={}),
        lambda body: body["choices"][0].pop("finish_reason"),
        lambda body: body["choices"][0].update(stop_reason=7, token_ids=None, matched_stop=2),
        lambda body: body["choices"].append(body["choices"][0]),
    ],
    ids=["no model", "more", "no usage", "error null", "error empty", "no reason", "vLLM and SGLang", "two"],
)
def test_both_read_the_same_of_an_odd_response(both: Both, change: Callable[[dict[str, Any]], None]) -> None:
    theirs, ours = replies(both, change)
    assert ours == theirs


def test_both_keep_the_same_log_probabilities(both: Both) -> None:
    theirs, ours = replies(both, lambda body: None, params={"logprobs": True, "top_logprobs": 5})
    assert ours["logprobs"]
    assert ours == theirs


@pytest.mark.parametrize("client", CLIENTS)
def test_headers_are_handed_on_and_not_stored(both: Both, client: Client) -> None:
    with Provider(rate=(1, 60)) as server:
        good, refused = (both.outcome(client, REQUEST, api_base=server.url) for _ in range(2))
        assert isinstance(good, Received)
        assert good.headers["x-ratelimit-remaining-requests"] == "0"
        assert "x-ratelimit-remaining-requests" not in json.dumps(good.reply.to_row())
        assert isinstance(refused, ProviderError)
        assert refused.headers["x-ratelimit-limit-requests"] == "1"


def test_callbacks_of_litellm_are_told_the_price_of_the_endpoint(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = litellm_client.load_litellm()
    costs: asyncio.Queue[float] = asyncio.Queue()

    class Callback(litellm.integrations.custom_logger.CustomLogger):  # type: ignore[misc,name-defined]
        async def async_log_success_event(self, kwargs: Mapping[str, Any], **_: object) -> None:
            await costs.put(kwargs["response_cost"])

    monkeypatch.setattr(litellm, "_async_success_callback", [])  # where LiteLLM puts it at the first call
    monkeypatch.setattr(litellm, "callbacks", [Callback()])
    price = Price(input=3.0, output=7.0)
    found = both.outcome("litellm", REQUEST, price=price)
    assert isinstance(found, Received)
    assert both.run(lambda: asyncio.wait_for(costs.get(), 20)) == pytest.approx(price.cost(found.reply.usage))
    assert price.cost(found.reply.usage) > 0


# What goes wrong

ERRORS: Mapping[str, Effect] = {
    **{str(status): faults.error(status) for status in (400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 425, 429)},
    **{str(status): faults.error(status) for status in (500, 502, 503, 504, 529)},
    "429 and seconds": faults.error(429, retry_after=7),
    "503 and a date": faults.error(503, retry_after=30, http_date=True),
    "credit": faults.insufficient_quota(),
    "context": faults.context_length(),
    "long prompt": faults.error(413, openai_error("prompt is too long: 9001 tokens")),
    "Azure's filter": faults.filter_refusal(),
    "DashScope's filter": faults.error(400, openai_error("Inappropriate content.", code="data_inspection_failed")),
    "OpenRouter's filter": faults.error(403, openai_error("The model requires moderation.")),
    "key repeated": faults.echo_secret(),
    "text as an error": faults.error(400, "no JSON"),
    "web page as an error": faults.error(502, "<html><h1>Bad gateway</h1></html>"),
    "list as an error": faults.error(500, ["no", "object"]),
    "reset": faults.reset(),
    "cut": faults.cut(),
    "web page": faults.html(),
    "broken JSON": faults.invalid_json(),
    "nothing": faults.text(""),
    "null": faults.text("null"),
    "a list": faults.text("[]"),
    "no choices": faults.no_choices(),
    "choices null": faults.choices(None),
    "choices empty": faults.choices([]),
    "no message": faults.choices([{"index": 0, "finish_reason": "stop"}]),
    "message null": faults.choices([{"index": 0, "finish_reason": "stop", "message": None}]),
    "content in parts": faults.changed(
        lambda body: body["choices"][0]["message"].update(content=[{"type": "text", "text": "in parts"}])
    ),
    "error and 200": faults.text('{"error": {"message": "Provider returned error", "code": 502}}'),
    "rate limit and 200": faults.text('{"error": {"message": "slow down", "code": 429}}'),
    "error of words and 200": faults.text('{"error": {"message": "overloaded", "code": "server_overloaded"}}'),
    "error without code and 200": faults.text('{"error": {"message": "overloaded"}}'),
    "error as text and 200": faults.text('{"error": "out of order"}'),
    "error in a choice": faults.choices(
        [
            {
                "error": {"code": 429, "message": "upstream is busy"},
                "finish_reason": "error",
                "index": 0,
                "message": {"role": "assistant", "content": "The first wo"},
            }
        ]
    ),
    "empty content": faults.content(""),
    "content null": faults.content(None),
    "cut off": faults.content("The first wo", "length"),
    "filtered": faults.filtered(),
}


@pytest.mark.parametrize("effect", ERRORS.values(), ids=ERRORS)
def test_both_say_the_same_of_a_failure(both: Both, effect: Effect) -> None:
    both.server.faults.add(Fault(effect))
    before = both.server.count()
    theirs, ours = both.outcomes(REQUEST)
    assert both.server.count() - before == 2, "a client has tried again by itself"
    if isinstance(ours, ProviderError):
        assert isinstance(theirs, ProviderError)
        assert kind_of(ours) == kind_of(theirs)
        assert str(ours)
    else:
        assert isinstance(theirs, Received)
        strip = {"at": 0.0, "seconds": 0.0, "response_id": ""}
        assert replace(ours.reply, **strip) == replace(theirs.reply, **strip)  # type: ignore[arg-type]


@pytest.mark.parametrize("effect", [faults.hang(), faults.drip(), faults.slow(5)], ids=["silence", "drip", "slow"])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_limit_of_time_holds_for_the_whole_call(both: Both, client: Client, effect: Effect) -> None:
    both.server.faults.add(Fault(effect))
    found = both.outcome(client, REQUEST, timeout=0.3)
    assert isinstance(found, ProviderError)
    assert (found.status, found.transient, str(found)) == (408, True, "no reply within 0.3 s")


def test_both_say_the_same_of_a_dead_port(both: Both) -> None:
    kinds = [kind_of(found) for found in both.outcomes(REQUEST, api_base="http://127.0.0.1:9/v1")]
    assert kinds == [("transport", True, None, None, False, False, False)] * 2


def test_both_say_the_same_of_a_missing_key(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    kinds = [kind_of(found) for found in both.outcomes(REQUEST, api_key=None)]
    assert kinds == [("authentication", False, 401, None, False, False, False)] * 2


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_but_the_slots_limits_the_calls_in_flight(both: Both, client: Client) -> None:
    with Provider(answer_bytes=50) as server:
        server.pause()

        async def together() -> None:
            wire: dict[str, Any] = {"api_base": server.url, "api_key": "key", "headers": {}, "timeout": 60}
            calls = [asyncio.create_task(send(REQUEST, client=client, **wire)) for _ in range(600)]
            await asyncio.to_thread(server.wait_for, 600, timeout=30)
            server.resume()
            await asyncio.gather(*calls)

        both.run(together)
        assert server.max_in_flight == 600


@pytest.mark.parametrize("client", CLIENTS)
def test_only_the_first_call_freezes_the_heap(both: Both, client: Client) -> None:
    both.outcome(client, REQUEST)
    frozen = gc.get_freeze_count()
    both.outcome(client, REQUEST)
    assert gc.get_freeze_count() <= frozen
