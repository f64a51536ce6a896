"""The background loop: works ahead of the tests, answers then judges, and hands over grades."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pytest_rubrics.answering.answer import Answer, AnsweringError
from pytest_rubrics.calls.cache import StoreError
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.reply import Reply, Usage
from pytest_rubrics.grades import Grade, now
from pytest_rubrics.judging.verdicts import Judgement, JudgingError
from pytest_rubrics.quiet import without_warnings
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.tasks import Task

Retry = Literal["excluded", "failed", "all"]
Part = Literal["answer", "judge", "malformed"]  # the last: of the judge only what it could not be read on

NOTHING: Collection[Part] = frozenset()
EVERYTHING: Collection[Part] = frozenset({"answer", "judge"})

FINISHED_AHEAD = 1_000  # grades that may wait for their tests; bounds the memory of a long replay
THREADS = "rubrics-engine"
GRACE = 3.0  # seconds that calls in flight get to arrive after the run was stopped


class Answerer(Protocol):
    """Turns a task into an answer."""

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The answer, or CallError."""


class Judge(Protocol):
    """Turns an answer into verdicts."""

    async def judge(
        self, task: Task, answer: str, repeat: int, turn: Turn, *, anew: bool, mend: bool = False
    ) -> Judgement:
        """All verdicts, or CallError; with ``mend`` those are asked anew that could not be read."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A model under test.

    Attributes:
        name: Display name.
        track: ``vanilla``, ``search`` or ``agent``.
        answerer: How it answers.
        endpoint: Where it is called; None where answers are ready.
    """

    name: str
    track: str
    answerer: Answerer
    endpoint: Endpoint | None


@dataclass(frozen=True, slots=True)
class Bench:
    """How the tasks of one benchmark are judged and scored.

    Attributes:
        judge_name: Display name of the judge.
        judge: How it judges.
        judge_endpoints: Where it is called: one address, or those of a panel's members.
        scoring: The formula.
    """

    judge_name: str
    judge: Judge
    judge_endpoints: Sequence[Endpoint]
    scoring: Scoring


@dataclass(frozen=True, slots=True)
class Job:
    """One grade to make."""

    task: Task
    contender: Contender
    bench: Bench
    repeat: int

    @property
    def endpoints(self) -> list[Endpoint]:
        """The endpoints it calls, in the order of the calls."""
        return [e for e in (self.contender.endpoint, *self.bench.judge_endpoints) if e is not None]


@dataclass(slots=True)
class Progress:
    """What this process has done so far, as indices of jobs."""

    answered: set[int] = field(default_factory=set)
    judged: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Running:
    turn: Turn
    task: asyncio.Task[Grade]


@dataclass(slots=True)
class Engine:
    """Grades jobs ahead of the tests that wait for them.

    Attributes:
        gateway: The way of every call.
        jobs: The selected jobs, in the order of the tests.
        held_back: Jobs that only run when a test waits for them, such as those of skipped items.
        start: Index at which the look-ahead begins; it wraps around.
        lead: Most jobs that the look-ahead may be ahead of the awaited one (with ``-x``), or None.
        retry: Which outcomes of former runs are asked for anew.
        progress: Counts for the status line.
    """

    gateway: Gateway
    jobs: Sequence[Job]
    held_back: frozenset[int] = frozenset()
    start: int = 0
    lead: int | None = None
    retry: Retry | None = None
    progress: Progress = field(default_factory=Progress)
    _begun: set[int] = field(default_factory=set)
    _running: dict[int, _Running] = field(default_factory=dict)
    _finished: dict[int, _Running] = field(default_factory=dict)
    _awaited: int | None = None
    _feeding: asyncio.Task[None] | None = None
    _stopping: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def launch(self) -> None:
        """Start the loop in its own thread and begin to work ahead."""
        self._thread = threading.Thread(target=self._run, name=THREADS, daemon=True)
        self._thread.start()

    def grade(self, index: int, tick: Callable[[], None], every: float = 0.5) -> Grade:
        """Wait for one grade; it goes to the front of every queue. Called once for an index.

        Args:
            index: Index of the job.
            tick: Called now and then while waiting.
            every: Seconds between two ticks.
        """
        waiting = asyncio.run_coroutine_threadsafe(self._hand_over(index), self._loop)
        while True:
            try:
                return waiting.result(timeout=every)
            except concurrent.futures.TimeoutError:
                if waiting.done():
                    raise
                tick()

    def wake(self) -> None:
        """Look again whether a job can start: a slot or a grade has been given back."""
        self._changed.set()

    def stop_launching(self) -> None:
        """Start nothing more; calls in flight go on and are stored when they arrive."""
        self._stopping = True
        self.gateway.stop(CallError("interrupted", "the run was stopped"))

    def shut_down(self) -> None:
        """Stop, give calls in flight a moment to arrive, and end the thread."""
        self.stop_launching()
        if self._thread is None:
            return
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        try:
            ending.result(timeout=GRACE + 30)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
            self._thread = None

    def _run(self) -> None:
        from pytest_rubrics.calls.transport import close_clients

        asyncio.set_event_loop(self._loop)
        self._feeding = self._loop.create_task(self._work_ahead())
        # LiteLLM does part of a call in the loop's executor.
        self._loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(thread_name_prefix=THREADS))
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
        if tasks and any(endpoint.in_flight for endpoint in self._endpoints()):
            await asyncio.wait(tasks, timeout=GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _endpoints(self) -> list[Endpoint]:
        found = {id(endpoint): endpoint for job in self.jobs for endpoint in job.endpoints}
        return list(found.values())

    async def _work_ahead(self) -> None:
        for index in self._order():
            while not (self._stopping or self._has_room(index)):
                self._changed.clear()
                await self._changed.wait()
            if self._stopping:
                return
            if index not in self._begun and index not in self.held_back:
                self._begin(index)
                await asyncio.sleep(0)  # a job that needs no call must not hold up the loop

    def _order(self) -> Iterator[int]:
        count = len(self.jobs)
        if self.lead is None:
            yield from ((self.start + step) % count for step in range(count))
            return
        position = 0
        while True:  # with -x the look-ahead follows the awaited job
            position = max(position, self._awaited or 0)
            if position >= count:
                return
            yield position
            position += 1

    def _has_room(self, index: int) -> bool:
        if self.lead is not None and (self._awaited is None or index >= self._awaited + self.lead):
            return False
        test_is_waiting = self._awaited in self._running
        if len(self._finished) >= FINISHED_AHEAD and not test_is_waiting:
            return False
        endpoints = self.jobs[index].endpoints
        widest = sum(endpoint.width for endpoint in endpoints)
        return endpoints[0].idle > 0 and len(self._running) < 2 * widest + 8

    def _begin(self, index: int) -> _Running:
        self._begun.add(index)
        turn = Turn(rank=(index - self.start) % len(self.jobs))
        running = _Running(turn, self._loop.create_task(self._grade(index, turn)))
        self._running[index] = running
        running.task.add_done_callback(lambda _: self._finish(index))
        return running

    def _finish(self, index: int) -> None:
        self._finished[index] = self._running.pop(index)
        if len(self._finished) > FINISHED_AHEAD:
            self._forget_one()
        self._changed.set()

    def _forget_one(self) -> None:
        """Drop a scored grade that no test has asked for: the cache gives it again, and it costs memory here.

        Under xdist most grades belong to tests of other workers; alone, this happens behind a very slow first task.
        """
        for index, running in self._finished.items():
            task = running.task
            if index != self._awaited and not task.cancelled() and not task.exception() and task.result().metrics:
                del self._finished[index]
                return

    async def _hand_over(self, index: int) -> Grade:
        self._awaited = index
        running = self._running.get(index) or self._finished.get(index) or self._begin(index)
        running.turn.rank = -1
        self._changed.set()
        try:
            return await asyncio.shield(running.task)
        finally:
            self._finished.pop(index, None)
            self._changed.set()

    async def _grade(self, index: int, turn: Turn) -> Grade:
        job = self.jobs[index]
        grade = await self._once(index, job, turn, anew=EVERYTHING if self.retry == "all" else NOTHING)
        anew = parts_to_retry(grade, self.retry)
        return await self._once(index, job, turn, anew=anew) if anew else grade

    async def _once(self, index: int, job: Job, turn: Turn, *, anew: Collection[Part]) -> Grade:
        grade = _blank(job)
        try:
            answer = await job.contender.answerer.answer(job.task, job.repeat, turn, anew="answer" in anew)
            self.progress.answered.add(index)
            self._account(grade, "answer", answer.replies, answer.keys)
            _take_answer(grade, answer)
            if answer.text is None:
                _fail(grade, job.bench.scoring, answer.failure or "empty", answer.error)
            else:
                judgement = await job.bench.judge.judge(
                    job.task, answer.text, job.repeat, turn, anew="judge" in anew, mend="malformed" in anew
                )
                self._account(grade, "judge", judgement.replies, judgement.keys)
                _score(grade, job.bench.scoring, judgement)
                self.progress.judged.add(index)
        except JudgingError as error:
            self._account(grade, "judge", error.partial.replies, error.partial.keys)
            grade.verdicts = _verdict_rows(error.partial)
            _exclude(grade, error)
        except AnsweringError as error:
            self._account(grade, "answer", error.partial.replies, error.partial.keys)
            grade.trajectory = list(error.partial.trajectory)
            _exclude(grade, error)
        except CallError as error:
            _exclude(grade, error)
        except StoreError as error:
            _exclude(grade, CallError("error", str(error)))
        grade.finished_at = now()
        return grade

    def _account(self, grade: Grade, part: str, replies: Sequence[Reply], keys: Sequence[str]) -> None:
        own = [reply for reply in replies if self.gateway.is_own(reply)]
        usage = sum((reply.usage for reply in replies), Usage())
        grade.usage[part] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        grade.cost_usd[part] = _total([reply.cost_usd for reply in replies])
        spent = _total([reply.cost_usd for reply in own])
        grade.spent_usd = None if grade.spent_usd is None or spent is None else grade.spent_usd + spent
        grade.cached[part] = bool(replies) and not own
        grade.seconds[part] = round(sum(reply.seconds for reply in replies), 3)
        served = sorted({reply.served_model for reply in replies if reply.served_model})
        grade.served_model[part] = ", ".join(served) or None
        grade.keys[part] = list(keys)


def parts_to_retry(grade: Grade, retry: Retry | None) -> Collection[Part]:
    """The parts of a grade that ``--retry`` asks anew: those whose stored replies made it what it is.

    Other exclusions come from calls that failed. Nothing of them is stored, so they have just been made again.
    """
    match retry, grade.state, grade.reason:
        case "failed", "failed", _:
            return EVERYTHING
        case "excluded", "excluded", "malformed_response":
            return EVERYTHING
        case "excluded", "excluded", "judge_malformed":
            return {"malformed"}
    return NOTHING


def _blank(job: Job) -> Grade:
    task = job.task
    return Grade(
        benchmark=task.benchmark,
        task_id=task.id,
        key=task.key,
        subset=task.subset,
        model=job.contender.name,
        track=job.contender.track,
        judge=job.bench.judge_name,
        repeat=job.repeat,
        state="excluded",
        usage={part: {"input_tokens": 0, "output_tokens": 0} for part in ("answer", "judge")},
    )


def _take_answer(grade: Grade, answer: Answer) -> None:
    grade.answer = answer.text
    grade.truncated = answer.truncated
    grade.finish_reason = answer.finish_reason
    grade.trajectory = list(answer.trajectory)


def _fail(grade: Grade, scoring: Scoring, reason: str, error: str | None) -> None:
    grade.state = "failed"
    grade.reason = reason
    grade.error = error or _FAILURES.get(reason)
    grade.metrics = {scoring.metric: 0.0}
    grade.passed = None if scoring.pass_at is None else False


_FAILURES: Mapping[str, str] = {
    "empty": "the model's reply was empty",
    "empty_length": "the token limit was reached before any text of the answer",
    "filtered": "the provider's content filter withheld the answer",
    "no_report": "the agent ended without a report",
}


def _score(grade: Grade, scoring: Scoring, judgement: Judgement) -> None:
    unjudged = [criterion.weight for criterion in judgement.missing]
    grade.state = "scored"
    grade.verdicts = _verdict_rows(judgement)
    grade.metrics = scoring.of_verdicts(grade.verdicts, unjudged=unjudged, averages=judgement.averages)
    grade.passed = scoring.passes(grade.metrics[scoring.metric])
    if judgement.missing:
        ids = ", ".join(criterion.id for criterion in judgement.missing)
        grade.error = f"unjudged criteria: {ids}; the score is the middle of what they allow"


def _exclude(grade: Grade, error: CallError) -> None:
    grade.state = "excluded"
    grade.reason = error.reason
    grade.error = str(error)


def _verdict_rows(judgement: Judgement) -> list[dict[str, object]]:
    return [verdict.to_row() for verdict in judgement.verdicts]


def _total(costs: Sequence[float | None]) -> float | None:
    """Sum of costs; unknown as soon as one is unknown."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
