"""The controller's side of a run on a cluster: its actors, the workers on the nodes, and who makes which grade."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError, RayTaskError

from pytest_rubrics import __version__
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.cluster.limiter import Limiter
from pytest_rubrics.cluster.paces import Paces
from pytest_rubrics.cluster.replies import Replies
from pytest_rubrics.cluster.shipping import shipment
from pytest_rubrics.cluster.starting import ClusterError, actor, join, leave
from pytest_rubrics.cluster.worker import Status, Worker
from pytest_rubrics.grades import Grade
from pytest_rubrics.grading import STOPPED, excluded
from pytest_rubrics.jobs import Job

if TYPE_CHECKING:
    from pytest_rubrics.calls.limits import Turn
    from pytest_rubrics.plan import BenchmarkPlan, Case
    from pytest_rubrics.wiring import Wiring

LOOK_EVERY = 1.0  # seconds between two looks at nodes and workers
HEAD_START = 20.0  # seconds that a run waits for further workers
PATIENCE = 120.0  # seconds without any worker, after which grades are excluded
MOST_DEATHS = 4  # of workers under one grade, which may be what they die of
CLOSING = 30.0  # seconds for the actors to hand over what they have


@dataclass(slots=True, eq=False)
class _Member:
    """A worker as the controller knows it."""

    node: str
    actor: Any
    name: str = field(default_factory=lambda: uuid4().hex)
    host: str = ""
    grading: int = 0
    is_refused: bool = False  # by a provider, for want of a key
    status: Status = field(default_factory=Status)
    burial: asyncio.Task[None] | None = None


@dataclass(slots=True, repr=False)
class Cluster:
    """Has grades made by workers, one on each node that has a CPU for it; nodes may come and go.

    Attributes:
        wiring: The controller's own parts; their counts mirror what the workers have done.
        warn: Takes a message for the user.
    """

    wiring: Wiring
    warn: Callable[[str], None]
    _shipment: Any
    _replies: Any
    _limiters: Mapping[str, Any]
    _paces: Any
    _recruiting: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by node
    _members: list[_Member] = field(default_factory=list)
    _dead: list[_Member] = field(default_factory=list)
    _left_out: list[str] = field(default_factory=list)
    _is_open: bool = False
    _is_stopped: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def start(cls, wiring: Wiring, cases: Sequence[tuple[BenchmarkPlan, Case]], warn: Callable[[str], None]) -> Cluster:
        """Join the cluster and start the actors of this node.

        Args:
            wiring: The controller's own parts, with jobs.
            cases: The cases of the jobs.
            warn: Takes a message for the user.

        Raises:
            ClusterError: It cannot be joined.
        """
        join()
        config, here = wiring.plan.config, ray.get_runtime_context().get_node_id()
        shared: dict[str, Any] = {"num_cpus": 0, "max_task_retries": -1}
        replies = actor(Replies, here, config.cache_dir, config.run, config.max_cost, **shared)
        limiters = {name: actor(Limiter, here, slots.count, **shared) for name, slots in wiring.pools.items()}
        paces = actor(Paces, here, {id_: endpoint.pacer for id_, endpoint in wiring.endpoints.items()}, **shared)
        return cls(wiring, warn, ray.put(shipment(wiring, cases)), replies, limiters, paces)

    async def open(self) -> None:
        """Wait for the workers, and look after all nodes from now on.

        Raises:
            ClusterError: No node can have one.
        """
        await self._look()
        began = time.monotonic()
        while not all(recruit.done() for recruit in self._recruiting.values()):
            # A node whose CPUs are all in use gets its worker later.
            if time.monotonic() > began + (HEAD_START if self._members else PATIENCE):
                break
            await asyncio.sleep(0.05)
        if not self._members:
            why = self._left_out or ["no node has a free CPU for a worker"]
            raise ClusterError("\n".join(["no node of the Ray cluster can grade:", *why]))
        for line in self._left_out:
            self.warn(f"left out: {line}")
        self._is_open = True
        self._begin(self._tend())

    async def grade(self, index: int, job: Job, turn: Turn) -> Grade:
        """Have a grade made, again elsewhere when its worker dies; replies that had arrived are not asked for again."""
        deaths = 0
        while not self._is_stopped:
            member = await self._idlest()
            if member is None:
                return excluded(job, CallError("error", "no node of the Ray cluster is left that can grade"))
            try:
                grade = await self._made_by(member, index, turn)
            except RayTaskError as error:
                raise error.cause from error
            except ActorDiedError:
                await self._bury(member)
                deaths += 1
                if deaths == MOST_DEATHS:
                    return excluded(job, CallError("error", f"{deaths} workers of the cluster died under this grade"))
            except RayError:  # the connection was broken, or the grade lost on its way
                await asyncio.sleep(LOOK_EVERY)
            else:
                if not (grade.reason == "authentication" and self._is_refused(member, grade)):
                    return grade
        return excluded(job, STOPPED)

    def stop(self) -> None:
        """Start no further call; calls in flight go on."""
        self._is_stopped = True
        for member in self._members:
            member.actor.stop.remote()

    def close(self) -> dict[str, Any]:
        """End all actors and leave the cluster.

        Returns:
            Rows that could not be stored.
        """
        unsaved: dict[str, Any] = {}
        try:
            with suppress(RayError, GetTimeoutError):
                for rows in ray.get([member.actor.unsaved.remote() for member in self._members], timeout=CLOSING):
                    unsaved |= rows
            with suppress(RayError, GetTimeoutError):
                for message in ray.get(self._replies.messages.remote(), timeout=CLOSING):
                    self.warn(message)
                ray.get(self._replies.close.remote(), timeout=CLOSING)
        finally:
            leave()
        return unsaved

    async def _idlest(self) -> _Member | None:
        end = time.monotonic() + PATIENCE
        while not (self._is_open and self._members):
            if self._is_stopped or time.monotonic() > end:
                return None
            await asyncio.sleep(0.2)
        # Where all are refused they say so at once.
        able = [member for member in self._members if not member.is_refused] or self._members
        return min(able, key=lambda member: member.grading)

    async def _made_by(self, member: _Member, index: int, turn: Turn) -> Grade:
        member.grading += 1
        try:
            grade: Grade = await member.actor.grade.remote(index, turn.rank)
            return grade
        finally:
            member.grading -= 1

    def _is_refused(self, member: _Member, grade: Grade) -> bool:
        """Give a worker without a working key no more grades, if others are left; whether they are."""
        others = [other for other in self._members if other is not member and not other.is_refused]
        if others and not member.is_refused:
            member.is_refused = True
            self.warn(f"{member.host} gets no more grades: {grade.error}")
        return bool(others)

    # Nodes and their workers

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            with suppress(RayError):
                await self._look()
                for message in await self._replies.messages.remote():
                    self.warn(message)

    async def _look(self) -> None:
        for node in await asyncio.to_thread(ray.nodes):
            id_ = node["NodeID"]
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1 and id_ not in self._recruiting:
                self._recruiting[id_] = self._begin(self._recruit(id_, node["NodeManagerHostname"]))

    async def _recruit(self, node: str, host: str) -> None:
        """Start the worker of a node, or leave the node out."""
        member = _Member(node, actor(Worker, node, num_cpus=1), host=host)
        try:
            version, member.host = await member.actor.describe.remote()
            if version != __version__:
                raise ClusterError(f"it has pytest-rubrics {version}, and the controller {__version__}")
            shared = (self._replies, self._limiters, self._paces)
            await member.actor.prepare.remote(self._shipment, member.name, *shared)
        except (RayError, ClusterError) as error:
            self._leave_out(f"{host}: {_last_line(error)}")
            return
        self._members.append(member)
        self._begin(self._follow(member))

    def _leave_out(self, line: str) -> None:
        self._left_out.append(line)
        if self._members:
            self.warn(f"left out: {line}")

    async def _follow(self, member: _Member) -> None:
        while member.burial is None:
            try:
                member.status = await member.actor.status.remote()
            except ActorDiedError:
                await self._bury(member)
            except RayError:  # it will be there again, or dead
                pass
            self._mirror()
            await asyncio.sleep(LOOK_EVERY)

    async def _bury(self, member: _Member) -> None:
        """Give back what a dead worker held, once."""
        if member.burial is None:
            member.burial = self._begin(self._give_back(member))
        await asyncio.shield(member.burial)

    async def _give_back(self, member: _Member) -> None:
        self._members.remove(member)
        self._dead.append(member)
        member.status.in_flight = {}
        self.warn(f"the worker on {member.host} died; what it was grading is graded elsewhere")
        with suppress(RayError):
            await asyncio.gather(*(one.forget.remote(member.name) for one in (self._replies, *self._limiters.values())))
        del self._recruiting[member.node]  # it gets another, if it is still there

    def _mirror(self) -> None:
        """Show the sums of all workers as the controller's own counts."""
        every = [member.status for member in (*self._members, *self._dead)]
        for id_, endpoint in self.wiring.endpoints.items():
            endpoint.in_flight = sum(status.in_flight.get(id_, 0) for status in every)
            endpoint.rate_limited = sum(status.rate_limited.get(id_, 0) for status in every)
        progress, counters = self.wiring.grader.progress, self.wiring.gateway.counters
        progress.answered.update(*(status.answered for status in every))
        progress.judged.update(*(status.judged for status in every))
        counters.calls = sum(status.calls for status in every)
        counters.spent_usd = sum(status.spent_usd for status in every)


def _last_line(error: Exception) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return next((line for line in lines if "No module named" in line), lines[-1] if lines else type(cause).__name__)
