"""Which calls a grade would make, found out by going through it with the stored replies; none is made.

The engine works as it always does, in cache mode ``offline``: replies and results of tools are looked up, and a grade
ends where one is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from pytest_rubrics.calls.cache import ReplyStore, StoreError
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway, Opening
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request
from pytest_rubrics.grading import Grader, Retry
from pytest_rubrics.jobs import Job
from pytest_rubrics.plan import Plan
from pytest_rubrics.wiring import Seat, Wiring

if TYPE_CHECKING:
    from pydantic import JsonValue

Role = Literal["model", "judge"]
Asked = tuple[Endpoint, Request, Reply | None]

ANSWER_TOKENS = 3_000  # of an answer, where no stored reply of the model tells better
VERDICT_TOKENS = 60  # of one criterion's verdict with its justification, likewise


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A call that a grade would make.

    Attributes:
        role: ``model`` or ``judge``.
        endpoint: Whom it asks.
        request: What it asks.
        reply: The stored reply, or None.
        is_exact: Whether the request is what would be sent; else a stand-in takes the place of an answer.
        assumed_tokens: Length of the reply, where no stored one tells better.
        times: Number of such calls: the first missing one of an agent stands for those that would follow it too.
    """

    role: Role
    endpoint: Endpoint
    request: Request
    reply: Reply | None
    is_exact: bool
    assumed_tokens: float
    times: int = 1


@dataclass(slots=True)
class Outlook:
    """What lies ahead of one job.

    Attributes:
        calls: Its calls, in their order.
        answer: The stored answer, or None.
        is_made_elsewhere: Whether the answer is missing and no endpoint would be called for it.
    """

    calls: list[Foreseen] = field(default_factory=list)
    answer: str | None = None
    is_made_elsewhere: bool = False

    @property
    def answer_calls(self) -> int:
        """Number of calls of the answer."""
        return sum(call.times for call in self.calls if call.role == "model")


@dataclass(slots=True)
class RehearsalGateway(Gateway):
    """Looks replies up and calls nobody.

    Attributes:
        asked: What was asked since the last `take`.
    """

    asked: list[Asked] = field(default_factory=list)

    async def complete(self, request: Request, endpoint: Endpoint, turn: Turn, opening: Opening | None = None) -> Reply:
        """The stored reply to a request.

        Raises:
            CallError: It is not stored.
        """
        reply = self._stored(request.key())
        if endpoint.send is None:  # a program of the user's is no call that could be counted
            self.asked.append((endpoint, request, reply))
        if reply is None:
            raise CallError("cache_miss", "the reply is not stored")
        return reply

    def take(self) -> list[Asked]:
        """What was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The running parts of a plan on stored replies.

    Attributes:
        wiring: The parts.
        gateway: The gateway that they are built on.
    """

    wiring: Wiring
    gateway: RehearsalGateway

    async def look_ahead(
        self, job: Job, *, stand_in: str = "", answer_calls: int = 1, retry: Retry | None = None
    ) -> Outlook:
        """Find out what a job would call.

        Args:
            job: The job.
            stand_in: A text as long as an answer, where the answer is not stored.
            answer_calls: Calls of an answer, where they are not stored.
            retry: Which outcomes of former runs are asked for anew.
        """
        caller = job.contender.endpoint
        grade = await Grader(self.gateway, retry).grade(0, job, Turn(0))
        asked = self.gateway.take()
        is_missing = grade.reason == "cache_miss" and grade.answer is None
        outlook = Outlook(answer=grade.answer, is_made_elsewhere=is_missing and caller is None)
        outlook.calls += _answer_calls(job, [one for one in asked if one[0] is caller], answer_calls, is_missing)
        outlook.calls += _judge_calls(job, [one for one in asked if one[0] is not caller], is_exact=True)
        if is_missing:
            with suppress(CallError):
                await job.bench.judge.judge(job.task, stand_in, job.repeat, Turn(0), anew=False)
            outlook.calls += _judge_calls(job, self.gateway.take(), is_exact=False)
        return outlook


@contextmanager
def rehearsal(plan: Plan, notes: list[str]) -> Iterator[Rehearsal]:
    """A rehearsal of a plan; nothing is written, and no folder is made.

    Args:
        plan: The run.
        notes: Takes what a user should know.
    """
    store = _StoredReplies(_open(plan, notes))
    wiring = Wiring(plan, Seat(), cast("ReplyStore", store))
    former = wiring.gateway
    gateway = RehearsalGateway(wiring.store, former.run, former.started_at, mode="offline")
    wiring.gateway = gateway
    try:
        yield Rehearsal(wiring, gateway)
    finally:
        store.close()


def has_replies(folder: Path) -> bool:
    """Whether a folder is a cache of replies."""
    return (folder / "cache.db").exists()


def _answer_calls(job: Job, asked: Sequence[Asked], usual: int, is_missing: bool) -> Iterator[Foreseen]:
    stored = [(endpoint, request, reply) for endpoint, request, reply in asked if reply is not None]
    yield from (Foreseen("model", *one, True, ANSWER_TOKENS) for one in stored)
    caller = job.contender.endpoint
    if is_missing and caller is not None:
        # Where even the first request is unknown, such as an agent's before its tools are, the prompt stands for it.
        prompt = Request(caller.model, caller.address, [{"role": "user", "content": job.task.prompt}])
        missing = next((request for _, request, reply in asked if reply is None), None)
        times = max(1, usual - len(stored))
        yield Foreseen("model", caller, missing or prompt, None, missing is not None, ANSWER_TOKENS, times)


def _judge_calls(job: Job, asked: Sequence[Asked], *, is_exact: bool) -> Iterator[Foreseen]:
    """The calls of a judge, or of each of a panel; the verdicts are shared out evenly among them."""
    counts = Counter(endpoint.name for endpoint, _, _ in asked)
    for endpoint, request, reply in asked:
        tokens = VERDICT_TOKENS * len(job.task.criteria) / counts[endpoint.name]
        yield Foreseen("judge", endpoint, request, reply, is_exact, tokens)


def _open(plan: Plan, notes: list[str]) -> ReplyStore | None:
    folder = plan.config.cache_dir
    if not has_replies(folder):
        return None
    try:
        return ReplyStore(folder, warn=notes.append)
    except StoreError as error:
        notes.append(f"as if nothing were stored: {error}")
        return None


@dataclass(frozen=True, slots=True)
class _StoredReplies:
    """The store as a rehearsal sees it: it can be read, if there is one."""

    store: ReplyStore | None

    def get(self, key: str) -> JsonValue | None:
        """The value of a row; None where there is none."""
        return self.store.get(key) if self.store else None

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin with a prefix."""
        return self.store.keys(prefix) if self.store else []

    async def put(self, rows: Mapping[str, JsonValue]) -> None:
        """Store nothing."""

    async def claim(self, key: str) -> bool:
        """There is nobody to keep away."""
        return True

    async def release(self, key: str) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Close the store."""
        if self.store:
            self.store.close()
