"""A worker: makes grades on one node of a cluster, many at once on the event loop of its actor."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pytest_rubrics import __version__

if TYPE_CHECKING:
    from pytest_rubrics.calls.cache import ReplyStore
    from pytest_rubrics.grades import Grade
    from pytest_rubrics.jobs import Job
    from pytest_rubrics.plan import Plan
    from pytest_rubrics.wiring import Wiring

# An endpoint of a run: model or judge, and its name.
EndpointId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Shipment:
    """What all workers are given, once.

    Attributes:
        plan: What the run does.
        cases: Benchmark and id of each case, in the order of the jobs.
        addresses: Where each endpoint is for the controller; it is part of the keys of replies.
        limits: The cluster's limits: calls in flight, by name.
    """

    plan: Plan
    cases: Sequence[tuple[str, str]]
    addresses: Mapping[EndpointId, object]
    limits: Mapping[str, int]


@dataclass(slots=True)
class Status:
    """What a worker has done so far.

    Attributes:
        in_flight, rate_limited: Calls on the wire and replies of status 429, by endpoint.
        answered, judged: Indices of jobs.
        calls, spent_usd: What it has paid.
    """

    in_flight: Mapping[EndpointId, int] = field(default_factory=dict)
    rate_limited: Mapping[EndpointId, int] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    judged: set[int] = field(default_factory=set)
    calls: int = 0
    spent_usd: float = 0.0


class WrongNodeError(Exception):
    """This node cannot grade; the text says why."""


class Worker:
    """The actor."""

    def __init__(self) -> None:
        self._wiring: Wiring | None = None
        self._jobs: Sequence[Job] = ()

    async def describe(self) -> tuple[str, str]:
        """Version of this package and name of the host; asked before anything else is sent."""
        return __version__, socket.gethostname()

    async def prepare(
        self, shipment: Shipment, name: str, replies: Any, limiters: Mapping[str, Any], paces: Any
    ) -> None:
        """Build the parts of the run.

        Args:
            shipment: What the run does.
            name: Of this worker; it holds claims and slots under it.
            replies: Handle of the store of replies.
            limiters: Handles of the limiters by name.
            paces: Handle of the endpoints' paces.

        Raises:
            WrongNodeError: This node differs from the controller's in a way that matters.
        """
        from pytest_rubrics.cluster.limiter import RemoteSlots
        from pytest_rubrics.cluster.paces import RemotePacer
        from pytest_rubrics.cluster.replies import RemoteReplies
        from pytest_rubrics.wiring import Seat, Wiring

        plan = shipment.plan
        if any(model.config.kind in {"agent", "command"} for model in plan.models) and not plan.workspace.root.is_dir():
            raise WrongNodeError(f"the workspace {plan.workspace.root} is not there, and programs are started in it")
        wiring = Wiring(plan, Seat(), cast("ReplyStore", RemoteReplies(replies, name)))
        wiring.pools |= {pool: RemoteSlots(limiters[pool], name, limit) for pool, limit in shipment.limits.items()}
        plans = plan.benchmarks
        self._jobs = wiring.jobs([(plans[name], plans[name].cases[case]) for name, case in shipment.cases])
        for id_, endpoint in wiring.endpoints.items():
            if endpoint.address != shipment.addresses[id_]:
                raise WrongNodeError(
                    f"its environment leads {' '.join(id_)} to {endpoint.address}, the controller's to "
                    f"{shipment.addresses[id_] or 'the provider'}"
                )
            endpoint.pacer = RemotePacer(paces, id_, counts_tokens=endpoint.pacer.counts_tokens)
        self._wiring = wiring

    async def grade(self, index: int, rank: int) -> Grade:
        """Make one grade.

        Args:
            index: Index of the job.
            rank: Place in the queues for slots.
        """
        from pytest_rubrics.calls.limits import Turn

        assert self._wiring is not None
        grade = await self._wiring.grader.grade(index, self._jobs[index], Turn(rank))
        if grade.reason == "authentication":  # the environment is each host's own
            grade.error = f"{grade.error} (on host {socket.gethostname()})"
        return grade

    async def status(self) -> Status:
        """What this worker has done so far."""
        assert self._wiring is not None
        endpoints = self._wiring.endpoints
        progress, counters = self._wiring.grader.progress, self._wiring.gateway.counters
        return Status(
            {id_: endpoint.in_flight for id_, endpoint in endpoints.items()},
            {id_: endpoint.rate_limited for id_, endpoint in endpoints.items()},
            progress.answered,
            progress.judged,
            counters.calls,
            counters.spent_usd,
        )

    async def stop(self) -> None:
        """Start no further call; calls in flight go on."""
        assert self._wiring is not None
        self._wiring.grader.stop()

    async def unsaved(self) -> dict[str, Any]:
        """Rows that could not be stored."""
        assert self._wiring is not None
        return self._wiring.gateway.unsaved
