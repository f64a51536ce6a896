from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_rubrics.calls.errors import ProviderError, classify
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.transport import send
from tests.support import faults
from tests.support.calls import in_loop
from tests.support.faults import Effect, Fault, openai_error
from tests.support.provider import Provider


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with Provider() as server:
        yield server


@pytest.fixture(autouse=True)
def healthy(server: Provider) -> Iterator[None]:
    yield
    server.faults.clear()


def failure(server: Provider, effect: Effect, *, timeout: float = 20.0, api_base: str | None = None) -> ProviderError:
    """What LiteLLM's error after one request comes to."""
    server.faults.add(Fault(effect))
    request = Request("openai/model", server.url, [{"role": "user", "content": "a question"}])

    async def once() -> None:
        await send(request, api_base=api_base or server.url, api_key="key", headers={}, timeout=timeout)

    before = server.count()
    with pytest.raises(ProviderError) as caught:
        in_loop(once)
    assert server.count() - before == (0 if api_base else 1), "LiteLLM or the SDK has tried again by itself"
    return caught.value


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_may_heal_is_transient(server: Provider, status: int) -> None:
    found = failure(server, faults.error(status))
    assert (found.status, found.reason, found.transient) == (status, "transport", True)
    assert found.rate_limited == (status == 429)


@pytest.mark.parametrize(
    "effect",
    [faults.reset(), faults.cut(), faults.html(), faults.invalid_json(), faults.text("")],
    ids=["reset", "cut", "web page", "broken JSON", "nothing"],
)
def test_trouble_on_the_wire_is_transient(server: Provider, effect: Effect) -> None:
    found = failure(server, effect)
    assert (found.reason, found.transient, found.rate_limited) == ("transport", True, False)


def test_a_dead_port_is_transient(server: Provider) -> None:
    found = failure(server, faults.hang(), api_base="http://127.0.0.1:9/v1")
    assert (found.reason, found.transient) == ("transport", True)


@pytest.mark.parametrize("effect", [faults.hang(), faults.drip()], ids=["silence", "a drip"])
def test_the_timeout_is_that_of_the_whole_call(server: Provider, effect: Effect) -> None:
    found = failure(server, effect, timeout=0.3)
    assert (found.status, found.reason, found.transient) == (408, "transport", True)
    assert str(found) == "no reply within 0.3 s"


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (faults.error(400), "bad_request"),
        (faults.error(404), "bad_request"),
        (faults.error(405), "bad_request"),
        (faults.error(413), "bad_request"),
        (faults.error(422), "bad_request"),
        (faults.error(401), "authentication"),
        (faults.error(403), "authentication"),
        (faults.error(402), "credit"),
        (faults.insufficient_quota(), "credit"),
        (faults.context_length(), "context_length"),
        (faults.error(413, openai_error("prompt is too long: 9001 tokens")), "context_length"),
    ],
)
def test_what_no_waiting_heals_is_final(server: Provider, effect: Effect, reason: str) -> None:
    found = failure(server, effect)
    assert (found.reason, found.transient, found.filtered) == (reason, False, False)


@pytest.mark.parametrize(
    "effect",
    [
        faults.filter_refusal(),
        faults.error(
            400, openai_error("Output data may contain inappropriate content.", code="data_inspection_failed")
        ),
        faults.error(403, openai_error("The model requires moderation and your input was flagged.")),
    ],
    ids=["Azure", "DashScope", "OpenRouter"],
)
def test_a_refusal_by_the_content_filter_is_told_from_a_bad_request(server: Provider, effect: Effect) -> None:
    found = failure(server, effect)
    assert (found.filtered, found.transient) == (True, False)


@pytest.mark.parametrize(
    "effect",
    [
        faults.no_choices(),
        faults.choices(None),
        faults.choices([{"index": 0, "finish_reason": "stop"}]),
        faults.choices([{"index": 0, "finish_reason": "stop", "message": None}]),
        faults.changed(
            lambda body: body["choices"][0]["message"].update(content=[{"type": "text", "text": "in parts"}])
        ),
    ],
    ids=["no choices", "null", "no message", "null message", "a list as text"],
)
def test_a_reply_without_a_message_is_malformed_and_not_asked_for_again(server: Provider, effect: Effect) -> None:
    found = failure(server, effect)
    assert (found.malformed, found.reason, found.transient) == (True, "malformed_response", False)
    assert "Traceback" not in str(found)


def test_an_error_with_status_200_is_an_error(server: Provider) -> None:
    found = failure(server, faults.text('{"error": {"message": "Provider returned error", "code": 502}}'))
    assert (found.status, found.transient) == (502, True)


def test_an_error_inside_a_choice_is_an_error(server: Provider) -> None:
    broken = {"error": {"code": 429, "message": "upstream is busy"}, "finish_reason": "error", "index": 0}
    found = failure(server, faults.choices([{**broken, "message": {"role": "assistant", "content": "The first wo"}}]))
    assert (found.status, found.rate_limited, str(found)) == (429, True, "the reply broke off: upstream is busy")


def test_seconds_of_retry_after_are_read(server: Provider) -> None:
    assert failure(server, faults.error(429, retry_after=7)).retry_after == 7


def test_a_date_in_retry_after_is_read(server: Provider) -> None:
    found = failure(server, faults.error(503, retry_after=30, http_date=True))
    assert found.retry_after is not None
    assert 10 < found.retry_after <= 30


def with_headers(**headers: str) -> Exception:
    error: Any = Exception("slow down")
    error.status_code = 429
    error.response = SimpleNamespace(headers={name.replace("_", "-"): value for name, value in headers.items()})
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": formatdate(time.time() - 100, usegmt=True)}, 0),
        ({}, None),
    ],
)
def test_odd_headers_are_survived(headers: dict[str, str], seconds: float | None) -> None:
    assert classify(with_headers(**headers)).retry_after == seconds


def test_a_missing_key_is_an_authentication_error_whatever_status_it_comes_with() -> None:
    error: Any = Exception("Missing credentials. Please pass an `api_key`, or set the OPENAI_API_KEY variable.")
    error.status_code = 500
    assert classify(error).reason == "authentication"


def test_the_error_code_is_in_the_text() -> None:
    error: Any = Exception("Input refused.")
    error.status_code = 400
    error.body = {"code": "content_filter"}
    assert classify(error).filtered
    assert str(classify(error)) == "Input refused. (content_filter)"


def test_an_exception_without_text_is_named() -> None:
    found = classify(ConnectionResetError())
    assert (str(found), found.transient) == ("ConnectionResetError", True)


@pytest.mark.parametrize("status", [200, 429])
def test_the_headers_of_a_response_are_handed_on_in_lower_case(status: int) -> None:
    with Provider(rate=(1, 60)) as server:
        request = Request(model="openai/model", address=server.url, messages=[{"role": "user", "content": "q"}])

        async def ask() -> Mapping[str, str]:
            return (await send(request, api_base=server.url, api_key="key", headers={}, timeout=30)).headers

        headers = in_loop(ask)
        if status == 429:
            with pytest.raises(ProviderError) as caught:
                in_loop(ask)
            headers = caught.value.headers
            assert 0 < float(headers["retry-after-ms"]) <= 60_000
    assert headers["x-ratelimit-limit-requests"] == "1"
    assert headers["x-ratelimit-remaining-requests"] == "0"
