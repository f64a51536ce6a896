"""The background loop: works ahead of the tests, answers then judges, and hands over grades."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
from array import array
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.litellm_executor import LiteLLMExecutor
from pytest_rubrics.grades import Grade
from pytest_rubrics.jobs import Job
from pytest_rubrics.ordering import ranks_in
from pytest_rubrics.quiet import without_warnings

T = TypeVar("T")

FINISHED_AHEAD = 200  # grades that may wait for their tests before the look-ahead pauses
KEPT = 300  # grades that are kept for their tests; those in flight come in after the pause has begun
THREADS = "rubrics-engine"
GRACE = 3.0  # seconds that calls in flight get to arrive once the run is interrupted
LOOK_EVERY = 0.05  # seconds between two looks, at the end, whether all have arrived


class Grading(Protocol):
    """Makes grades, here or elsewhere."""

    async def grade(self, index: int, job: Job, turn: Turn) -> Grade:
        """The grade of a job."""

    def stop(self) -> None:
        """Start no further call; calls in flight go on."""


@dataclass(slots=True, repr=False)
class _Running:
    turn: Turn
    task: asyncio.Task[Grade]


@dataclass(slots=True, repr=False)
class Engine:
    """Grades jobs ahead of the tests that wait for them.

    Attributes:
        grader: Makes the grades.
        jobs: The selected jobs, in the order of the tests.
        held_back: Jobs that only run when a test waits for them, such as those of skipped items.
        order: All indices, in the order in which the look-ahead begins the jobs.
        lead: Most jobs that the look-ahead may be ahead of the awaited one (with ``-x``), or None. With it the order is
            that of the tests.
        begins_with_tests: Whether nothing begins before the first test waits.
        endpoints: Whom it may call, programs too; the end waits for what is in flight there.
        may_wait: False once the run is interrupted elsewhere: then the end waits a moment only.
    """

    grader: Grading
    jobs: Sequence[Job]
    held_back: frozenset[int] = frozenset()
    order: Sequence[int] = ()
    lead: int | None = None
    begins_with_tests: bool = False
    endpoints: Collection[Endpoint] = ()
    may_wait: Callable[[], bool] = lambda: True
    _begun: set[int] = field(default_factory=set)
    _running: dict[int, _Running] = field(default_factory=dict)
    _finished: dict[int, _Running] = field(default_factory=dict)
    _forgotten: set[int] = field(default_factory=set)
    _ranks: array[int] = field(default_factory=lambda: array("q"))  # of each job in the order
    _any_will_do: bool = False
    _awaited: int | None = None
    _feeding: asyncio.Task[None] | None = None
    _stopping: bool = False
    _is_interrupted: bool = False
    _is_waiting: bool = False  # the look-ahead, for room
    _changed: asyncio.Event = field(default_factory=asyncio.Event)  # the look-ahead may have room
    _news: asyncio.Event = field(default_factory=asyncio.Event)  # a grade is there, or the look-ahead waits
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _thread: threading.Thread | None = None

    def launch(self) -> None:
        """Start the loop in its own thread and begin to work ahead."""
        self.order = self.order or range(len(self.jobs))
        self._ranks = ranks_in(self.order)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=THREADS, daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def grade(self, index: int, tick: Callable[[], None], every: float = 0.5) -> Grade:
        """Wait for one grade; it goes to the front of every queue. Called once for an index.

        Args:
            index: Index of the job.
            tick: Called now and then while waiting.
            every: Seconds between two ticks.
        """
        ready = self._take(index)
        return self._wait(self._hand_over(index), tick, every) if ready is None else ready

    def first_finished(self, indices: Collection[int], tick: Callable[[], None], every: float = 0.5) -> int:
        """Wait until one of these jobs has its grade, and say which was the first.

        While the look-ahead finds replies in the cache it is let go on: two threads that both compute slow each other.

        Args:
            indices: Jobs whose grades have not been handed over.
            tick: Called now and then while waiting.
            every: Seconds between two ticks.
        """
        ready = self._finished_of(indices) if self._has_settled() else None
        return self._wait(self._first_finished(indices), tick, every) if ready is None else ready

    def _wait(self, coroutine: Coroutine[Any, Any, T], tick: Callable[[], None], every: float) -> T:
        waiting = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        while True:
            try:
                return waiting.result(timeout=every)
            except concurrent.futures.TimeoutError:
                if waiting.done():
                    raise
                tick()

    def _take(self, index: int) -> Grade | None:
        """A grade that is ready: on a replay most are, and to ask the loop's thread would cost more than the grade."""
        running = self._finished.get(index)
        if running is None or running.task.cancelled() or running.task.exception():
            return None
        self._awaited = index
        self._finished.pop(index, None)
        if self._is_waiting:
            self._loop.call_soon_threadsafe(self._changed.set)
        return running.task.result()

    def wake(self) -> None:
        """Look again whether a job can start: a slot or a grade has been given back."""
        self._changed.set()

    def interrupt(self) -> None:
        """Start nothing more; calls in flight get a moment to arrive, and are stored when they do."""
        self._is_interrupted = True
        self._stop_launching()

    def _stop_launching(self) -> None:
        self._stopping = True
        self.grader.stop()

    def shut_down(self, say_that_it_waits: Callable[[int], None] = lambda count: None) -> None:
        """Start nothing more, let calls in flight arrive, and end the thread.

        They are paid for, and other processes may wait for them, so they get as long as they need. An interrupted run
        ends after a moment; a Ctrl-C meanwhile says the same.

        Args:
            say_that_it_waits: Called with the number of calls in flight, if there are any to wait for.
        """
        self._stop_launching()
        if self._thread is None:
            return
        in_flight = sum(endpoint.in_flight for endpoint in self.endpoints)
        if in_flight and not self._is_interrupted:
            say_that_it_waits(in_flight)
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        try:
            ending.result()
        except KeyboardInterrupt:
            self._is_interrupted = True
            ending.result(timeout=GRACE + 30)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
            self._thread = None

    def _run(self) -> None:
        from pytest_rubrics.calls.transport import close_clients

        asyncio.set_event_loop(self._loop)
        self._feeding = self._loop.create_task(self._work_ahead())
        self._feeding.add_done_callback(lambda _: self._news.set())
        self._loop.set_default_executor(LiteLLMExecutor(thread_name_prefix=THREADS))
        with without_warnings(THREADS):
            self._loop.run_forever()
            rest = asyncio.all_tasks(self._loop)  # the look-ahead, and LiteLLM's own
            for task in rest:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
            self._loop.run_until_complete(close_clients())
        self._loop.close()

    async def _end(self) -> None:
        tasks = [running.task for running in self._running.values()]
        latest = math.inf
        # What only waits, for a slot or for another process, is not waited for.
        while tasks and any(endpoint.in_flight for endpoint in self.endpoints):
            now = self._loop.time()
            if self._is_interrupted or not self.may_wait():
                latest = min(latest, now + GRACE)
            if now >= latest:
                break
            await asyncio.wait(tasks, timeout=LOOK_EVERY)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work_ahead(self) -> None:
        for index in self._order():
            while not (self._stopping or (self._may_begin() and self._has_room(index))):
                self._changed.clear()
                self._is_waiting = True
                self._news.set()
                await self._changed.wait()
            self._is_waiting = False
            if self._stopping:
                return
            if index not in self._begun and index not in self.held_back:
                self._begin(index)
                await asyncio.sleep(0)  # a job that needs no call must not hold up the loop

    def _order(self) -> Iterator[int]:
        if self.lead is None:
            yield from self.order
            return
        count = len(self.jobs)
        position = 0
        while True:  # with -x the look-ahead follows the awaited job
            position = max(position, self._awaited or 0)
            if position >= count:
                return
            yield position
            position += 1

    def _may_begin(self) -> bool:
        return self._awaited is not None or not self.begins_with_tests

    def _has_room(self, index: int) -> bool:
        if self.lead is not None and (self._awaited is None or index >= self._awaited + self.lead):
            return False
        test_is_waiting = self._any_will_do or self._awaited in self._running
        if len(self._finished) >= FINISHED_AHEAD // (2 if self._is_waiting else 1) and not test_is_waiting:
            return False
        endpoints = self.jobs[index].endpoints
        widest = sum(endpoint.width for endpoint in endpoints)
        return endpoints[0].idle > 0 and len(self._running) < 2 * widest + 8

    def _begin(self, index: int) -> _Running:
        self._begun.add(index)
        turn = Turn(rank=self._ranks[index])
        running = _Running(turn, self._loop.create_task(self.grader.grade(index, self.jobs[index], turn)))
        self._running[index] = running
        running.task.add_done_callback(lambda _: self._finish(index))
        return running

    def _finish(self, index: int) -> None:
        self._finished[index] = self._running.pop(index)
        if len(self._finished) > KEPT:
            self._forget_one()
        self._changed.set()
        self._news.set()

    def _forget_one(self) -> None:
        """Drop a scored grade that no test has asked for: the cache gives it again, and it costs memory here.

        Under xdist most grades belong to tests of other workers; alone, this happens where tests keep their order
        behind a slow one, and where one benchmark waits for another.
        """
        for index, running in list(self._finished.items()):  # the tests' thread takes from it meanwhile
            task = running.task
            if index != self._awaited and not task.cancelled() and not task.exception() and task.result().metrics:
                if self._finished.pop(index, None) is not None:
                    self._forgotten.add(index)
                return

    def _finished_of(self, indices: Collection[int]) -> int | None:
        for group in (self._finished, self._forgotten):
            for index in list(group):  # in either thread
                if index in indices:
                    return index
        return None

    def _has_settled(self) -> bool:
        """Whether the look-ahead has begun what it can for now."""
        return self._is_waiting or self._feeding is None or self._feeding.done()

    async def _first_finished(self, indices: Collection[int]) -> int:
        try:
            while True:
                ready = self._finished_of(indices)
                if self._has_settled():
                    if ready is not None:
                        return ready
                    if not self._is_waiting and not self._running:
                        return next(iter(indices))  # nobody else begins it
                if ready is None and not self._any_will_do:
                    self._changed.set()
                self._any_will_do = ready is None
                self._news.clear()
                await self._news.wait()
        finally:
            self._any_will_do = False

    async def _hand_over(self, index: int) -> Grade:
        self._awaited = index
        running = self._running.get(index) or self._finished.get(index) or self._begin(index)
        running.turn.rank = -1
        self._forgotten.discard(index)
        self._changed.set()
        try:
            return await asyncio.shield(running.task)
        finally:
            self._finished.pop(index, None)
            self._changed.set()
