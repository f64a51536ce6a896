"""CPU time that one call costs, by what makes it, against a server that answers at once: a table of perf/README.md.

Run it as ``python perf/call_overhead.py``; it needs what the tests need. Each way is measured in a process of its own:
bare aiohttp, OpenAI's SDK, ``litellm.acompletion``, and the gateway of this package with either client and a store on
disk. Printed are the medians of five rounds, in milliseconds of CPU time of the calling process. What was spent before
the first round, for imports and first calls, has a column of its own, in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from harness import Client, machine, median_of, print_table, provider

ROUNDS = 5
CONCURRENCY = 32
ANSWER_BYTES = 8192
QUESTION = "What does the law say of this case, and what would you advise the client? " * 15  # about 1 kB

Call = Callable[[str], Awaitable[object]]


def messages(text: str) -> list[dict[str, Any]]:
    """A chat with one message, which no other call has."""
    return [{"role": "user", "content": f"{text}: {QUESTION}"}]


@asynccontextmanager
async def with_aiohttp(url: str) -> AsyncIterator[Call]:
    """The least that a call can cost."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call(text: str) -> object:
            body = {"model": "model", "messages": messages(text)}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                return json.loads(await response.read())["choices"][0]["message"]["content"]

        yield call


@asynccontextmanager
async def with_openai(url: str) -> AsyncIterator[Call]:
    """OpenAI's SDK as its users call it."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="key", base_url=url, max_retries=0) as client:

        async def call(text: str) -> object:
            response = await client.chat.completions.create(model="model", messages=messages(text))  # type: ignore[arg-type]
            return response.choices[0].message.content

        yield call


@asynccontextmanager
async def with_litellm(url: str) -> AsyncIterator[Call]:
    """LiteLLM as its users call it."""
    from pytest_rubrics.calls.litellm_client import load_litellm

    litellm = load_litellm()

    async def call(text: str) -> object:
        response = await litellm.acompletion(
            model="openai/model",
            messages=messages(text),
            api_base=url,
            api_key="key",
            num_retries=0,
            max_retries=0,
        )
        return response.choices[0].message.content

    yield call


def with_gateway(client: Client, *, is_heard: bool = False) -> Callable[[str], Any]:
    """The gateway of this package: key, slot, claim, call, and the reply stored; a callback may hear of each call."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Call]:
        from pytest_rubrics.calls.cache import ReplyStore
        from pytest_rubrics.calls.endpoint import Endpoint, Wire
        from pytest_rubrics.calls.gateway import Gateway
        from pytest_rubrics.calls.limits import LocalSlots, Turn
        from pytest_rubrics.calls.litellm_client import load_litellm
        from pytest_rubrics.calls.request import Request

        if is_heard:
            load_litellm().success_callback.append(lambda *_: None)

        def warn(sentence: str) -> None:
            raise AssertionError(sentence)

        with tempfile.TemporaryDirectory() as folder:
            store = ReplyStore(Path(folder) / "cache", warn=warn)
            gateway = Gateway(store, run="run", started_at=time.time())
            endpoint = Endpoint(
                name="model",
                model="openai/model",
                address=url,
                connect=lambda: Wire(url, "key"),
                timeout=60,
                retry_for=0,
                slots=[LocalSlots(CONCURRENCY, lambda: None)],
                client=client,
            )
            numbers = count()

            async def call(text: str) -> object:
                request = Request("openai/model", url, messages(text))
                return (await gateway.complete(request, endpoint, Turn(next(numbers)))).content

            try:
                yield call
            finally:
                store.close()

    return opened


WAYS: dict[str, Callable[[str], Any]] = {
    "aiohttp": with_aiohttp,
    "openai": with_openai,
    "litellm": with_litellm,
    "gateway, client: litellm": with_gateway("litellm"),
    "gateway, client: litellm, a callback": with_gateway("litellm", is_heard=True),
    "gateway, client: openai": with_gateway("openai"),
}


async def rounds(way: str, url: str, calls: int) -> dict[str, Any]:
    """CPU seconds before the first round, and of a call in each round."""
    from pytest_rubrics.calls.transport import close_clients

    async with AsyncExitStack() as stack:
        call = await stack.enter_async_context(WAYS[way](url))
        stack.push_async_callback(close_clients)

        async def together(name: str, number: int) -> None:
            texts = iter([f"{name}.{n}" for n in range(number)])

            async def work() -> None:
                for text in texts:
                    assert await call(text)

            await asyncio.gather(*(work() for _ in range(CONCURRENCY)))

        await together("first", CONCURRENCY)
        before = time.process_time()
        spent = []
        for number in range(ROUNDS):
            start = time.process_time()
            await together(f"round {number}", calls)
            spent.append((time.process_time() - start) / calls)
        return {"before": before, "spent": spent}


def measure(way: str, url: str, calls: int) -> dict[str, Any]:
    """Measure in a loop like the engine's: in a thread whose warnings are dropped."""
    from pytest_rubrics.quiet import without_warnings

    found: list[dict[str, Any]] = []
    with without_warnings("loop"):
        thread = threading.Thread(target=lambda: found.append(asyncio.run(rounds(way, url, calls))), name="loop")
        thread.start()
        thread.join()
    return found[0]


def main() -> None:
    """Measure every way, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=640, help="calls of a round")
    parser.add_argument("--way", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.way, options.url, options.calls)))
        return
    rows = []
    with provider("--answer-bytes", str(ANSWER_BYTES)) as url:
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way, "--url", url, "--calls", str(options.calls)]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
            found = json.loads(done.stdout)
            rows.append((way, f"{median_of(found['spent']) * 1000:.2f}", f"{found['before']:.2f}"))
    title = f"{CONCURRENCY} calls in flight, answers of {ANSWER_BYTES} bytes, on {machine()}"
    print_table(title, ("way", "CPU of a call, ms", "CPU before, s"), rows)


if __name__ == "__main__":
    main()
