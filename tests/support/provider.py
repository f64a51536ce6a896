"""An OpenAI-compatible server on loopback that knows the right verdicts and can be told to fail.

In a test, which it serves from a thread of its own::

    with Provider(truth=truth_of(tasks)) as server:
        server.faults.add(Fault(error(429, retry_after=1), times=2))
        ...  # call server.url
        assert server.count("judge") == len(tasks)

As a process of its own, which prints its URL and runs until it is terminated::

    python tests/support/provider.py --port 0 --latency 0.2 --data FILE_OR_FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from types import TracebackType
from typing import Any, Literal

from aiohttp import web

if __package__ in {None, ""}:  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.faults import Exchange, Fault, Faults, RateLimit, Reply, openai_error
from tests.support.judge import CannotJudgeError, Judge, TruthSource, requested_schema
from tests.support.replies import Body, Message, completion, default_answer, question_of, text_of, tool_calls
from tests.support.truth import criteria_truth_of, expert_score, published_tasks, truth_of

__all__ = [
    "Fault",
    "Provider",
    "Recorded",
    "criteria_truth_of",
    "expert_score",
    "published_tasks",
    "separate_provider",
    "tool_calls",
    "truth_of",
]

FORMATS = ("text", "json_object", "json_schema")
Script = Sequence[str | Message]


@dataclass(slots=True)
class Recorded:
    """A request as it came.

    Attributes:
        method: HTTP method.
        path: Path with the query.
        headers: Headers; names are found in any case.
        body: The JSON body, or the text where it is no JSON.
        kind: ``judge`` for a chat whose model begins with "judge" after any provider prefix, ``answer`` for any other
            chat, ``other`` for all else.
        at: When it had arrived, in seconds of ``time.monotonic()``.
        status: Status of the reply; None while there is none, and for good when the client or the server broke off.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    kind: str
    at: float
    status: int | None = None


class Provider:
    """The server. Used as a context manager; raises at the end what went wrong inside, such as in ``answers``.

    Args:
        host: Address that it listens at.
        port: Port; 0 takes a free one.
        latency: Seconds before every good reply.
        latency_spread: Sigma of the logarithm of an answer's latency, whose median is then ``latency``; each question
            has its own, see ``latency_factor``.
        answers: The answer to a request, as text or as an assistant message. By default a text in the language of the
            question that holds the question's hash.
        answer_bytes: Length of the default answer.
        script: Replies of a conversation in turn; as many assistant messages as a request holds, so many are done. The
            last one repeats. A mapping gives the replies for each text that the first user message contains.
        truth: Verdicts of a sheet, see ``Judge``.
        criteria_truth: Verdicts by a criterion's text, see ``Judge``.
        accepts: The strongest ``response_format`` that is accepted; a stronger one gets a 400.
        ignore_format: Ignore a stronger one instead.
        tools: Whether requests with tools are accepted; else they get a 400.
        reasoning: Text sent as ``reasoning_content`` with every reply.
        logprobs: Whether log probabilities are sent when asked for.
        rate: Number of requests and seconds; more of them in such a window get a 429 with Retry-After. Or a limit of
            another kind, such as ``FixedWindow``.
        api_key: The bearer token to insist on.
        other: Reply to any other path, as status and JSON.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        latency: float = 0.0,
        latency_spread: float = 0.0,
        answers: Callable[[Body], str | Message] | None = None,
        answer_bytes: int = 8192,
        script: Script | Mapping[str, Script] | None = None,
        truth: TruthSource | None = None,
        criteria_truth: Mapping[str, bool] | None = None,
        accepts: Literal["json_schema", "json_object", "text"] = "json_schema",
        ignore_format: bool = False,
        tools: bool = True,
        reasoning: str | None = None,
        logprobs: bool = True,
        rate: tuple[int, float] | RateLimit | None = None,
        api_key: str | None = None,
        other: Callable[[Recorded], tuple[int, Any]] | None = None,
    ) -> None:
        self.faults = Faults()
        self.max_in_flight = 0
        self._host = host
        self._port = port
        self._latency = latency
        self._latency_spread = latency_spread
        self._answers = answers
        self._answer_bytes = answer_bytes
        self._script = script
        self._judge = Judge(truth, criteria_truth)
        self.accept(accepts)
        self._ignore_format = ignore_format
        self._tools = tools
        self._reasoning = reasoning
        self._logprobs = logprobs
        self._limit = RateLimit(*rate) if isinstance(rate, tuple) else rate
        self._api_key = api_key
        self._other = other
        self._requests: list[Recorded] = []
        self._arrival = threading.Condition()
        self._in_flight = 0
        self._last_reply = 0.0
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="provider", daemon=True)
        self._started: Future[str] = Future()

    # What tests use, from any thread

    def __enter__(self) -> Provider:
        self._thread.start()
        self._started.result(timeout=30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(timeout=10)
        if self._thread.is_alive():
            raise TimeoutError("the test server did not end within 10 seconds")
        if self._errors and error is None:
            raise self._errors[0]

    @property
    def url(self) -> str:
        """The API's base, such as ``http://127.0.0.1:PORT/v1``."""
        return self._started.result(timeout=0) + "/v1"

    @property
    def requests(self) -> list[Recorded]:
        """All requests so far in the order of arrival, but those for /health."""
        with self._arrival:
            return list(self._requests)

    def count(self, kind: str | None = None) -> int:
        """Return how many requests of a kind have arrived; None counts all."""
        return sum(kind in {None, request.kind} for request in self.requests)

    def wait_for(self, n: int, kind: str | None = None, timeout: float = 10) -> None:
        """Block until n requests of a kind have arrived.

        Raises:
            TimeoutError: When fewer came in ``timeout`` seconds.
        """

        def arrived() -> int:
            return sum(kind in {None, request.kind} for request in self._requests)

        with self._arrival:
            if not self._arrival.wait_for(lambda: arrived() >= n, timeout):
                raise TimeoutError(f"{arrived()} of {n} requests (kind {kind or 'any'}) came in {timeout} seconds")

    @property
    def in_flight(self) -> int:
        """Requests that have no reply yet."""
        return self._in_flight

    def accept(self, strongest: Literal["json_schema", "json_object", "text"]) -> None:
        """Take no stronger ``response_format`` from now on."""
        self._accepted = FORMATS[: FORMATS.index(strongest) + 1]

    def pause(self) -> None:
        """Let requests arrive and wait, until ``resume``."""
        self._in_loop(self._gate.clear)

    def resume(self) -> None:
        """Go on with the requests that wait."""
        self._in_loop(self._gate.set)

    def _in_loop(self, function: Callable[[], None]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(function)
        self._loop.call_soon_threadsafe(done.set)
        if not done.wait(timeout=10):
            raise TimeoutError("the test server did not react within 10 seconds")

    # The server's thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._gate = asyncio.Event()
        self._gate.set()
        # Cancellation frees the handler of a client that has gone. Without it a hanging one would count as in flight.
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.05)
        await runner.setup()
        try:
            # The usual backlog of 128 makes a burst of connections wait a second for the kernel's next try.
            await web.TCPSite(runner, self._host, self._port, backlog=4096).start()
            self._started.set_result(f"http://{self._host}:{runner.addresses[0][1]}")
            await self._closing.wait()
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = _parsed(await request.content.read())
        if request.path == "/health":
            return self._health().response()
        record = Recorded(
            request.method, request.path_qs, request.headers, body, _kind(request, body), at=time.monotonic()
        )
        self._arrived(record)
        try:
            await self._gate.wait()
            response = await self._respond(request, record)
        except Exception as error:  # noqa: BLE001 - shown where the test can see it: when the server is left
            self._errors.append(error)
            response = Reply(500, openai_error(f"the test server failed: {error!r}")).response()
        finally:
            self._in_flight -= 1
            self._last_reply = time.monotonic()
        record.status = response.status
        return response

    def _arrived(self, record: Recorded) -> None:
        with self._arrival:
            self._requests.append(record)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
            self._arrival.notify_all()

    async def _respond(self, request: web.BaseRequest, record: Recorded) -> web.StreamResponse:
        if self._api_key is not None and request.headers.get("Authorization") != f"Bearer {self._api_key}":
            return Reply(401, openai_error("Incorrect API key provided.", code="invalid_api_key")).response()
        headers: dict[str, str] = {}
        if self._limit:
            unit = self._limit.unit
            used = 1 if unit == "requests" else self._good(record, {}).body["usage"]["total_tokens"]
            is_free, headers = self._limit.take(time.monotonic(), used)
            if not is_free:
                body = openai_error(f"Rate limit reached for {unit} per min.", code="rate_limit_exceeded", kind=unit)
                return Reply(429, body, headers).response()

        async def good() -> Reply:
            await asyncio.sleep(self._latency_of(record))
            return self._good(record, headers)

        text = text_of(record.body) if record.kind != "other" else record.path
        effect = self.faults.pick(record.kind, text)
        return await effect(Exchange(request, good)) if effect else (await good()).response()

    def _latency_of(self, record: Recorded) -> float:
        if record.kind != "answer" or not self._latency_spread:
            return self._latency
        return self._latency * latency_factor(question_of(record.body), self._latency_spread)

    def _good(self, record: Recorded, headers: dict[str, str]) -> Reply:
        if record.kind != "other":
            try:
                return Reply(200, self._completion(record.body, record.kind), headers)
            except _RefusedError as refusal:
                return Reply(400, openai_error(str(refusal)), headers)
            except CannotJudgeError as refusal:
                return Reply(400, openai_error(f"The test server cannot judge this: {refusal}"), headers)
        if (record.method, record.path) == ("GET", "/v1/models"):
            return Reply(200, {"object": "list", "data": [{"id": "model", "object": "model"}]}, headers)
        status, body = self._other(record) if self._other else (404, openai_error(f"Unknown path {record.path}"))
        return Reply(status, body, headers)

    def _completion(self, body: Body, kind: str) -> dict[str, Any]:
        schema = requested_schema(body) if self._format(body) == "json_schema" else None
        if body.get("tools") and not self._tools:
            raise _RefusedError("This model does not support tools.")
        if kind == "judge":
            reply: str | Message = self._judge.reply(body, schema)
        else:
            self._judge.learn(question_of(body))
            reply = self._answer(body)
        message = {"content": reply} if isinstance(reply, str) else reply
        return completion(body, message, reasoning=self._reasoning, logprobs=self._logprobs)

    def _format(self, body: Body) -> str:
        """Return the response format in force, after the checks that OpenAI makes too."""
        kind: str = (body.get("response_format") or {}).get("type", "text")
        if kind not in self._accepted:
            if self._ignore_format:
                return "text"
            raise _RefusedError(f"Invalid parameter: 'response_format' of type '{kind}' is not supported.")
        if kind == "json_object" and "json" not in text_of(body).lower():
            raise _RefusedError(
                "'messages' must contain the word 'json' to use 'response_format' of type 'json_object'."
            )
        return kind

    def _answer(self, body: Body) -> str | Message:
        question = question_of(body)
        script: Script | None
        if isinstance(self._script, Mapping):
            script = next((replies for text, replies in self._script.items() if text in question), None)
        else:
            script = self._script
        if script:
            done = sum(message.get("role") == "assistant" for message in body["messages"])
            reply: str | Message = script[min(done, len(script) - 1)]
            return reply
        return self._answers(body) if self._answers else default_answer(question, self._answer_bytes)

    def _health(self) -> Reply:
        counts = {kind: self.count(kind) for kind in ("answer", "judge", "other")}
        first = min((request.at for request in self.requests), default=self._last_reply)
        span = max(0.0, self._last_reply - first)  # from the first request to the last reply
        figures = {"max_in_flight": self.max_in_flight, "cpu_seconds": time.process_time(), "span_seconds": span}
        return Reply(200, {**counts, **figures})


class _RefusedError(Exception):
    """The request asks for a feature that is switched off."""


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _kind(request: web.BaseRequest, body: Any) -> str:
    if (request.method, request.path) != ("POST", "/v1/chat/completions") or not isinstance(body, dict):
        return "other"
    return "judge" if str(body.get("model")).rsplit("/", 1)[-1].startswith("judge") else "answer"


def latency_factor(question: str, spread: float) -> float:
    """How much longer than the median the answer to a question takes: lognormal over questions, the same every time."""
    digest = hashlib.sha256(question.encode("utf-8")).digest()
    share = (int.from_bytes(digest[:6], "big") + 0.5) / 2**48
    return math.exp(spread * NormalDist().inv_cdf(share))


@contextmanager
def separate_provider(*arguments: str) -> Iterator[str]:
    """Run the server in a process of its own, with command-line arguments, and give its URL."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, encoding="utf-8")
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, "the test server did not start"
            yield url
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="OpenAI-compatible test server; prints its URL and runs until terminated."
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every reply")
    parser.add_argument("--latency-spread", type=float, default=0.0, help="sigma of the logarithm of answers' latency")
    parser.add_argument("--answer-bytes", type=int, default=8192, help="length of an answer")
    parser.add_argument("--data", type=Path, help="published tasks, for the verdicts: a file or a folder")
    options = parser.parse_args()
    truth = truth_of(published_tasks(options.data)) if options.data else None
    terminated = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: terminated.set())
    with Provider(
        port=options.port,
        latency=options.latency,
        latency_spread=options.latency_spread,
        answer_bytes=options.answer_bytes,
        truth=truth,
    ) as server:
        print(server.url, flush=True)
        terminated.wait()


if __name__ == "__main__":
    main()
