"""Direct calls through the gateway: real LiteLLM, a real store, and an endpoint on the test provider."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pytest_rubrics.calls.cache import ReplyStore
from pytest_rubrics.calls.endpoint import Client, Endpoint, Wire
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import LocalSlots, Turn
from pytest_rubrics.calls.pacing import Pacer
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request
from pytest_rubrics.calls.transport import close_clients
from pytest_rubrics.quiet import put_filter_first, without_warnings
from tests.support.provider import Provider
from tests.support.stores import opened

T = TypeVar("T")
STARTED_AT = 1_000_000.0  # long ago: every reply of a test is fresh
KEY = "sk-a-key-that-must-stay-secret-1234"


@contextmanager
def running_loop() -> Iterator[Callable[[Callable[[], Awaitable[T]]], T]]:
    """Give a function that runs coroutines in one loop; it has a thread of its own without warnings, like the engine's.

    Connections stay open from one coroutine to the next.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="test-loop"))  # LiteLLM does part of a call there

    async def call(work: Callable[[], Awaitable[T]]) -> T:
        return await work()

    def run(work: Callable[[], Awaitable[T]]) -> T:
        put_filter_first("test-loop")  # pytest replaces the filters for each test
        return asyncio.run_coroutine_threadsafe(call(work), loop).result(timeout=120)

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.get_loop().run_forever()

    with without_warnings("test-loop"):
        thread = threading.Thread(target=serve, name="test-loop")
        thread.start()
        try:
            yield run
        finally:
            asyncio.run_coroutine_threadsafe(close_clients(), loop).result(timeout=30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=30)


def in_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run one coroutine in such a loop."""
    with running_loop() as run:
        return run(work)


@dataclass
class Caller:
    """A gateway and an endpoint, for one process of a run.

    Attributes:
        server: The provider.
        store: The store of replies.
        slots: Calls in flight at most.
        timeout, retry_for: Of the endpoint, in seconds.
        price: Of the endpoint.
        settings: Of the gateway.
        pacer, client: Of the endpoint.
    """

    server: Provider
    store: ReplyStore
    slots: int = 8
    timeout: float = 20.0
    retry_for: float = 10.0
    price: Price | None = None
    model: str = "openai/model"
    settings: dict[str, Any] = field(default_factory=dict)
    pacer: Pacer = field(default_factory=Pacer)
    client: Client = "litellm"

    def __post_init__(self) -> None:
        self.gateway = Gateway(**{"store": self.store, "run": "run", "started_at": STARTED_AT, **self.settings})
        self.endpoint = self.new_endpoint()

    def new_endpoint(self, name: str = "name") -> Endpoint:
        """An endpoint with slots of its own."""
        return Endpoint(
            name=name,
            model=self.model,
            address=self.server.url,
            connect=lambda: Wire(self.server.url, KEY),
            timeout=self.timeout,
            retry_for=self.retry_for,
            slots=[LocalSlots(self.slots, lambda: None)],
            price=self.price or Price(1.0, 2.0),
            pacer=self.pacer,
            client=self.client,
        )

    def request(self, text: str = "a question", **fields: Any) -> Request:
        """A request with one message."""
        messages = [{"role": "user", "content": text}]
        return Request(model=self.model, address=self.server.url, messages=messages, **fields)

    async def ask(self, text: str = "a question", **fields: Any) -> Reply:
        """The reply to a text."""
        return await self.gateway.complete(self.request(text, **fields), self.endpoint, Turn(0))

    async def outcome(self, text: str = "a question", **fields: Any) -> Reply | Exception:
        """The reply to a text, or the error."""
        (outcome,) = await asyncio.gather(self.ask(text, **fields), return_exceptions=True)
        assert not isinstance(outcome, BaseException) or isinstance(outcome, Exception)
        return outcome


@contextmanager
def caller(server: Provider, directory: Path, **fields: Any) -> Iterator[Caller]:
    """A caller with a store in a folder."""
    store = opened(directory)
    try:
        yield Caller(server, store, **fields)
    finally:
        store.close()
