from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pytest_rubrics.calls import litellm_client, litellm_listeners
from pytest_rubrics.calls.errors import ProviderError
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.transport import send
from tests.support import faults
from tests.support.calls import in_loop
from tests.support.faults import Fault
from tests.support.provider import Provider

REQUEST = Request("openai/model", None, [{"role": "user", "content": "a question"}])


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(answer_bytes=50) as server:
        yield server


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """LiteLLM without callbacks; what a call adds to its lists is taken back."""
    litellm = litellm_client.load_litellm()
    for name in litellm_listeners._NAMES + litellm_listeners._MOVED:
        if isinstance(getattr(litellm, name, None), list):
            monkeypatch.setattr(litellm, name, [])
    return litellm


async def call(server: Provider) -> None:
    await send(REQUEST, api_base=server.url, api_key="key", headers={}, timeout=20)


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_call_is_logged_where_somebody_hears_of_it(
    server: Provider, litellm: Any, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    async def begun_by_a_call() -> set[str]:
        await call(server)
        return {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]

    monkeypatch.setattr(litellm, "success_callback", [lambda *_: None] if is_heard else [])
    assert ("_client_async_logging_helper" in in_loop(begun_by_a_call)) is is_heard


@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_is_told_what_became_of_a_call(
    server: Provider, litellm: Any, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    class Callback(litellm.integrations.custom_logger.CustomLogger):  # type: ignore[misc]
        async def async_log_success_event(self, kwargs: Mapping[str, Any], **_: object) -> None:
            await told.put(kwargs["model"])

        async def async_log_failure_event(self, kwargs: Mapping[str, Any], **_: object) -> None:
            await told.put(type(kwargs["exception"]).__name__)

    async def run() -> str:
        monkeypatch.setattr(litellm, "callbacks", [Callback()])
        try:
            await call(server)
        except ProviderError:
            assert fails
        return await asyncio.wait_for(told.get(), 20)

    if fails:
        server.faults.add(Fault(faults.error(500)))
    assert in_loop(run) == ("InternalServerError" if fails else "model")


@pytest.mark.parametrize("name", litellm_listeners._NAMES)
def test_a_callback_of_one_call_hears_of_it(name: str, litellm: Any) -> None:
    assert litellm_listeners.are_any(litellm, {name: ["langfuse"]})
    assert not litellm_listeners.are_any(litellm, {name: None, "model": "openai/model"})


def test_a_budget_of_litellms_own_is_kept(litellm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "max_budget", 1.0)
    assert litellm_listeners.are_any(litellm, {})
