"""How much of what a provider permits is used, and how many calls it refuses: real HTTP, real gateways, real minutes.

    python perf/rate_limit.py                 # every kind of limit, one process and two: about eleven minutes
    python perf/rate_limit.py --only "sliding window, 5 a second"
    python perf/rate_limit.py --simulated 20  # the same on a simulated clock, 20 times each: about a minute

The servers for one process run at the same time, each with clients of its own, then those for two. A figure that is
not reached is marked.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pytest_rubrics.calls.cache import ReplyStore  # noqa: E402
from pytest_rubrics.calls.endpoint import Endpoint, Wire  # noqa: E402
from pytest_rubrics.calls.errors import CallError  # noqa: E402
from pytest_rubrics.calls.gateway import Gateway  # noqa: E402
from pytest_rubrics.calls.limits import LocalSlots, Turn, share_of  # noqa: E402
from pytest_rubrics.calls.pacing import Pacer  # noqa: E402
from pytest_rubrics.calls.prices import Price  # noqa: E402
from pytest_rubrics.calls.request import Request  # noqa: E402
from pytest_rubrics.calls.transport import close_clients  # noqa: E402
from tests.calls.test_pace import Simulation  # noqa: E402
from tests.support.faults import FixedWindow, RateLimit, TokenBucket  # noqa: E402
from tests.support.provider import Provider  # noqa: E402

CONCURRENCY = 64
LATENCY = 0.3
KINDS = {"sliding window": RateLimit, "token bucket": TokenBucket, "fixed window": FixedWindow}
FIRST = 60.0  # seconds that are not counted


@dataclass(frozen=True, slots=True)
class Case:
    """One server and its clients."""

    name: str
    limit: RateLimit
    processes: int = 1
    rpm: float = 0.0


def cases() -> list[Case]:
    """What is measured."""
    found = []
    for processes in (1, 2):
        for words, kind in (
            ("sliding window", RateLimit),
            ("token bucket", TokenBucket),
            ("fixed window", FixedWindow),
        ):
            found.append(Case(f"{words}, 5 a second", kind(5, 1.0), processes))
            found.append(Case(f"{words}, 300 a minute", kind(300, 60.0), processes))
            if processes == 1:
                found.append(Case(f"{words}, 60,000 tokens a minute", kind(60_000, 60.0, unit="tokens")))
                found.append(Case(f"{words}, 5 a second, no headers", kind(5, 1.0, headers=False)))
                found.append(Case(f"{words}, 300 a minute, no headers", kind(300, 60.0, headers=False)))
                tokens = kind(60_000, 60.0, unit="tokens", headers=False)
                found.append(Case(f"{words}, 60,000 tokens a minute, no headers", tokens))
    found.append(Case("sliding window, 300 a minute, rpm: 300", RateLimit(300, 60.0), 2, rpm=300))
    return found


async def client(url: str, folder: Path, seconds: float, number: int, processes: int, rpm: float) -> None:
    """Call as fast as the gateway allows."""
    warnings.simplefilter("ignore")
    store = ReplyStore(folder / "replies", warn=print)
    gateway = Gateway(store, run="run", started_at=0.0)
    endpoint = Endpoint(
        name="model",
        model="openai/model",
        address=url,
        connect=lambda: Wire(url, "key"),
        timeout=30.0,
        retry_for=180.0,
        slots=[LocalSlots(share_of(CONCURRENCY, number, processes), lambda: None)],
        price=Price(0.0, 0.0),
        client="openai",  # many processes at once: LiteLLM would take 200 MB in each
        pacer=Pacer(folder / "limits" / "server", rpm or None),
    )
    end, questions = time.monotonic() + seconds, count()

    async def ask() -> None:
        while time.monotonic() < end:
            which = next(questions)
            text = f"Question {which} of process {number}. " + "More of it. " * (which * 7919 % 200)
            request = Request("openai/model", url, [{"role": "user", "content": text}])
            await gateway.complete(request, endpoint, Turn(which))

    tasks = [asyncio.create_task(ask()) for _ in range(2 * CONCURRENCY)]
    await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        if task.done() and isinstance(error := task.exception(), CallError):
            print(f"a call was given up: {error}")
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await close_clients()
    store.close()


def measure(chosen: Sequence[Case], seconds: float) -> None:
    """Run all cases at once and print their rows."""
    with ExitStack() as stack:
        started = []
        for case in chosen:
            server = stack.enter_context(Provider(rate=case.limit, latency=LATENCY, answer_bytes=400))
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            command = [sys.executable, "-W", "ignore", __file__, "--client", server.url, folder, str(seconds)]
            clients = [
                subprocess.Popen([*command, str(number), str(case.processes), str(case.rpm)])
                for number in range(case.processes)
            ]
            started.append((case, clients))
        for case, clients in started:
            for process in clients:
                process.wait()
            used, refused = result(case.limit)
            print(f"{case.name:52} {case.processes:9}  {used:7.1f}  {refused:9.2f}{mark(used, refused)}", flush=True)


def result(limit: RateLimit) -> tuple[float, float]:
    """Percent of what was permitted that was used, and of the calls that were refused, after the first minute.

    What was used is counted in whole windows of the server's clock, since in a part of one the server may permit
    nothing, or all of it.
    """
    begin = min(limit.accepted)[0]
    end = max(limit.accepted)[0] - 5  # the processes do not end at once
    refused = sum(begin + FIRST <= at < end for at in limit.refused)
    accepted = sum(begin + FIRST <= at < end for at, _ in limit.accepted)
    return 100 * limit.used(begin + FIRST, end), 100 * refused / max(1, accepted + refused)


def mark(used: float, refused: float) -> str:
    """What is written behind a row that misses the aim."""
    return "" if used >= 95 and refused < 1 else "  <- missed"


def simulate(case: Case, seconds: float, times: int) -> str:
    """A row of many runs on a simulated clock, in which every process stalls now and then."""
    results = []
    for seed in range(times):
        simulation = Simulation(
            copy.deepcopy(case.limit),
            rpm=case.rpm or None,
            processes=case.processes,
            slots=CONCURRENCY // case.processes,
            tokens=lambda source: source.randrange(100, 700),
            seed=seed,
            stalls=0.1,
        )
        simulation.run(seconds)
        results.append(result(simulation.limit))
    reached = sum(not mark(used, refused) for used, refused in results)
    used, refused = (sum(figures) / times for figures in zip(*results, strict=True))
    return f"{case.name:52} {case.processes:9}  {used:7.1f}  {refused:9.2f}  {reached} of {times}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="the rows that begin so")
    parser.add_argument("--simulated", type=int, metavar="N", help="run each N times on a simulated clock instead")
    parser.add_argument("--seconds", type=float, default=330.0, help="length of the run")
    parser.add_argument("--client", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        url, folder, seconds, number, processes, rpm = options.client
        asyncio.run(client(url, Path(folder), float(seconds), int(number), int(processes), float(rpm)))
    else:
        print(f"{'server':52} processes   used %  refused %", flush=True)
        chosen = [case for case in cases() if case.name.startswith(options.only)]
        if options.simulated:
            for case in chosen:
                print(simulate(case, options.seconds, options.simulated), flush=True)
            return
        for processes in (1, 2):
            measure([case for case in chosen if case.processes == processes], options.seconds)


if __name__ == "__main__":
    main()
