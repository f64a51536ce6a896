"""Faults that the test provider can be told to show.

A fault is an effect and the requests it befalls::

    server.faults.add(Fault(error(429, retry_after=1), kind="judge", times=2))
    server.faults.add(Fault(reset(), match="text of one task", start=3, times=1))
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from typing import Any, Literal

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply. A body that is no text is sent as JSON."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        return (self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)).encode()

    def response(self) -> web.Response:
        headers = {"Content-Type": "application/json", **self.headers}
        return web.Response(status=self.status, body=self.encoded(), headers=headers)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that waits for its reply, and the way to the good one."""

    request: web.BaseRequest
    good: Callable[[], Awaitable[Reply]]


Effect = Callable[[Exchange], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Fault:
    """An effect and the requests it befalls.

    Attributes:
        effect: What happens, one of the functions below.
        kind: ``answer``, ``judge`` or ``other``; None for all.
        match: A text that must stand in the request's messages, such as a task's question; None for any.
        start: The first matching request to befall, counted from 1.
        times: How many matching requests from there on; None for all.
    """

    effect: Effect
    kind: str | None = None
    match: str | None = None
    start: int = 1
    times: int | None = None


class Faults:
    """The faults in force. They may be changed from any thread while the server runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._seen: list[int] = []

    def add(self, *faults: Fault) -> None:
        """Put faults in force. Where several befall one request, the one added first wins; all count the request."""
        with self._lock:
            self._faults += faults
            self._seen += [0] * len(faults)

    def clear(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()
            self._seen.clear()

    def pick(self, kind: str, text: str) -> Effect | None:
        """Count a request with this text and return the effect that befalls it, or None."""
        picked = None
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.kind not in {None, kind} or (fault.match or "") not in text:
                    continue
                self._seen[index] += 1
                turn = self._seen[index] - fault.start
                if picked is None and turn >= 0 and (fault.times is None or turn < fault.times):
                    picked = fault.effect
        return picked


class RateLimit:
    """At most so much in any window of so many seconds. What is refused does not count.

    Args:
        n: How much: requests, or tokens.
        seconds: The window.
        unit: What is counted.
        headers: Whether replies say what is left, and refusals when to come again.
    """

    def __init__(
        self, n: int, seconds: float, *, unit: Literal["requests", "tokens"] = "requests", headers: bool = True
    ) -> None:
        self.n = n
        self.seconds = seconds
        self.unit = unit
        self.headers = headers
        self.accepted: list[tuple[float, int]] = []
        self.refused: list[float] = []
        self._taken: deque[tuple[float, int]] = deque()
        self._used: float = 0

    def take(self, now: float, amount: int = 1) -> tuple[bool, dict[str, str]]:
        """Take some at this time: whether there was room, and the headers in OpenAI's words."""
        wait = self._wait(now, amount)
        if wait <= 0:
            self._use(now, amount)
            self.accepted.append((now, amount))
        else:
            self.refused.append(now)
        if not self.headers:
            return wait <= 0, {}
        left, reset = self._left(now)
        said = {
            f"x-ratelimit-limit-{self.unit}": str(self.n),
            f"x-ratelimit-remaining-{self.unit}": str(int(left)),
            f"x-ratelimit-reset-{self.unit}": f"{math.ceil(reset * 1000)}ms",
        }
        if wait <= 0:
            return True, said
        # The header takes whole seconds; OpenAI adds milliseconds in one of its own.
        exact = {"Retry-After": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}
        return False, said | exact

    def used(self, since: float, until: float) -> float:
        """Which part was used of what could be taken in the whole windows between two moments."""
        first = math.ceil(since / self.seconds) * self.seconds
        windows = int((until - first) / self.seconds)
        taken = sum(amount for at, amount in self.accepted if first <= at < first + windows * self.seconds)
        return taken / (self.n * windows + self._stock(first))

    def _stock(self, at: float) -> float:
        """What could be taken at that moment beyond what the time after it brings."""
        return 0.0

    def _wait(self, now: float, amount: int) -> float:
        while self._taken and self._taken[0][0] <= now - self.seconds:
            self._used -= self._taken.popleft()[1]
        excess, wait = self._used + amount - self.n, 0.0
        for at, freed in self._taken:
            if excess <= 0:
                break
            excess -= freed
            wait = at + self.seconds - now
        return wait

    def _use(self, now: float, amount: int) -> None:
        self._taken.append((now, amount))
        self._used += amount

    def _left(self, now: float) -> tuple[float, float]:
        reset = self._taken[0][0] + self.seconds - now if self._taken else 0.0
        return self.n - self._used, reset


class TokenBucket(RateLimit):
    """A stock that refills evenly; the header tells when it will be full, as OpenAI's does."""

    _at = 0.0

    def _stock(self, at: float) -> float:
        used = last = 0.0
        for moment, amount in self.accepted:
            if moment >= at:
                break
            used = max(0.0, used - (moment - last) * self.n / self.seconds) + amount
            last = moment
        return self.n - max(0.0, used - (at - last) * self.n / self.seconds)

    def _wait(self, now: float, amount: int) -> float:
        self._used = max(0.0, self._used - (now - self._at) * self.n / self.seconds)
        self._at = now
        return (self._used + amount - self.n) * self.seconds / self.n

    def _use(self, now: float, amount: int) -> None:
        self._used += amount

    def _left(self, now: float) -> tuple[float, float]:
        return self.n - self._used, self._used * self.seconds / self.n


class FixedWindow(RateLimit):
    """So much in each window of the server's own clock."""

    _end = 0.0

    def _wait(self, now: float, amount: int) -> float:
        if now >= self._end:
            self._end = (now // self.seconds + 1) * self.seconds
            self._used = 0
        return 0.0 if self._used + amount <= self.n else self._end - now

    def _use(self, now: float, amount: int) -> None:
        self._used += amount

    def _left(self, now: float) -> tuple[float, float]:
        return self.n - self._used, self._end - now


# Refusals


def openai_error(message: str, *, code: str | None = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    """Return the body of an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error(status: int, body: Any = None, *, retry_after: float | None = None, http_date: bool = False) -> Effect:
    """Refuse with a status; ``retry_after`` in seconds adds the header, as a number or as an HTTP date."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        headers = {}
        if retry_after is not None:
            headers["Retry-After"] = formatdate(time() + retry_after, usegmt=True) if http_date else f"{retry_after:g}"
        text = openai_error(f"The test server refuses with {status}.", kind="server_error") if body is None else body
        return Reply(status, text, headers).response()

    return effect


def insufficient_quota() -> Effect:
    """Refuse with the 429 that no waiting heals: the credit is used up."""
    text = "You exceeded your current quota, please check your plan and billing details."
    return error(429, openai_error(text, code="insufficient_quota", kind="insufficient_quota"))


def context_length() -> Effect:
    """Refuse with OpenAI's 400 for a prompt that is longer than the context."""
    text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
    return error(400, openai_error(text, code="context_length_exceeded"))


def filter_refusal() -> Effect:
    """Refuse with Azure's 400 for a prompt that the content filter stopped."""
    text = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
    body = openai_error(text, code="content_filter")
    found = {"violence": {"filtered": True, "severity": "medium"}}
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": found}
    body["error"] |= {"param": "prompt", "status": 400, "innererror": inner}
    return error(400, body)


def echo_secret(status: int = 401) -> Effect:
    """Refuse with a body that repeats the Authorization header, as careless gateways do."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        secret = exchange.request.headers.get("Authorization", "")
        text = f"Incorrect API key provided: {secret.removeprefix('Bearer ')}. The header was: {secret}"
        return Reply(status, openai_error(text, code="invalid_api_key")).response()

    return effect


# Trouble on the wire


async def _until_closed() -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def hang() -> Effect:
    """Never answer; the connection stays open."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        return await _until_closed()

    return effect


def slow(seconds: float) -> Effect:
    """Wait before the good reply, on top of the server's latency."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return (await exchange.good()).response()

    return effect


def drip(seconds: float = 0.05) -> Effect:
    """Send headers, then one blank every few moments for ever: no read timeout of the client comes to pass."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(exchange.request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(seconds)

    return effect


def reset() -> Effect:
    """Reset the connection before any header."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        transport = exchange.request.transport
        assert transport is not None
        # With no time to linger, closing sends RST instead of FIN.
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
        return await _until_closed()

    return effect


def cut() -> Effect:
    """Close the connection in the middle of the good reply's body."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        reply = await exchange.good()
        body = reply.encoded()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        response = web.StreamResponse(status=reply.status, headers=headers)
        await response.prepare(exchange.request)
        await response.write(body[: len(body) // 2])
        if exchange.request.transport is not None:
            exchange.request.transport.close()
        return await _until_closed()

    return effect


# Replies with status 200 that are no good


def text(body: str, content_type: str = "application/json") -> Effect:
    """Answer 200 with this body, whatever was asked; an empty one too."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        return Reply(200, body, {"Content-Type": content_type}).response()

    return effect


def html() -> Effect:
    """Answer 200 with a web page, as proxies do."""
    return text("<!doctype html><html><body><h1>Service temporarily unavailable</h1></body></html>", "text/html")


def invalid_json() -> Effect:
    """Answer 200 with JSON that breaks off."""
    return text('{"id": "chatcmpl-1", "choices": [{"index": 0, "mess')


def changed(change: Callable[[dict[str, Any]], None]) -> Effect:
    """Let a function change the good completion in place."""

    async def effect(exchange: Exchange) -> web.StreamResponse:
        reply = await exchange.good()
        change(reply.body)
        return reply.response()

    return effect


def no_choices() -> Effect:
    """Leave out the key ``choices``."""
    return changed(lambda body: body.pop("choices"))


def choices(value: list[Any] | None) -> Effect:
    """Replace ``choices``, by an empty list or null."""
    return changed(lambda body: body.update(choices=value))


def content(value: str | None, finish_reason: str = "stop") -> Effect:
    """Replace the content: null, empty or blank; a cut-off text with ``length``; a judge's malformed reply."""

    def change(body: dict[str, Any]) -> None:
        body["choices"][0]["message"]["content"] = value
        body["choices"][0]["finish_reason"] = finish_reason

    return changed(change)


def filtered() -> Effect:
    """Answer 200 with no content and the finish reason ``content_filter``."""
    return content("", finish_reason="content_filter")


def missing_id(name: str) -> Effect:
    """Leave one criterion out of a judge's sheet, be it a row or a property."""

    def without(node: Any) -> Any:
        if isinstance(node, list):
            rows = [row for row in node if not (isinstance(row, dict) and str(row.get("rubric_id")) == name)]
            return [without(row) for row in rows]
        if isinstance(node, dict):
            return {key: without(value) for key, value in node.items() if key != name}
        return node

    def change(body: dict[str, Any]) -> None:
        message = body["choices"][0]["message"]
        message["content"] = json.dumps(without(json.loads(message["content"])), ensure_ascii=False)

    return changed(change)
