"""Turns a plan into the running parts: gateway, endpoints, answerers, judges and jobs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pytest_rubrics.answering.chat import ChatAnswerer
from pytest_rubrics.calls.cache import ReplyStore, StoreError
from pytest_rubrics.calls.endpoint import Endpoint, Wire
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import LocalSlots, SharedSlots, Slots, share_of
from pytest_rubrics.calls.pacing import Pacer
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.providers import effective_api_base
from pytest_rubrics.calls.structured import StructuredOutput
from pytest_rubrics.config import AgentModel, CommandModel, EndpointConfig, RecordedModel, load_prices
from pytest_rubrics.engine import Engine
from pytest_rubrics.grading import Grader
from pytest_rubrics.jobs import Answerer, Bench, Contender, Job, Judge
from pytest_rubrics.judging.asking import Asker
from pytest_rubrics.judging.criterion import CriterionForm
from pytest_rubrics.judging.judge import RubricJudge
from pytest_rubrics.judging.logprob import PARAMS as LOGPROBS
from pytest_rubrics.judging.panel import PanelJudge
from pytest_rubrics.judging.sheet import SheetForm
from pytest_rubrics.ordering import order_of_beginning
from pytest_rubrics.plan import BenchmarkPlan, Case, Plan, Templates, criteria_per_call
from pytest_rubrics.progress import Snapshot
from pytest_rubrics.variables import UnsetVariableError
from pytest_rubrics.workers import WHOLE, Part

if TYPE_CHECKING:
    from pytest_rubrics.answering.serving.leases import Lease
    from pytest_rubrics.benchmarks import Benchmark
    from pytest_rubrics.cluster.controller import Cluster
    from pytest_rubrics.config import LoadedJudge, LoadedModel, Member
    from pytest_rubrics.tasks import Language


@dataclass(frozen=True, slots=True)
class Seat:
    """Which of the processes of a run this one is.

    Attributes:
        number: Counted from 0, among those that share its cache.
        count: Number of processes that call and share its cache.
        may_launch: False once this process should start nothing more.
        part: What of items, slots and money falls to these processes; the rest is for hosts with caches of their own.
    """

    number: int = 0
    count: int = 1
    may_launch: Callable[[], bool] = lambda: True
    part: Part = WHOLE

    def share(self, limit: int) -> int:
        """Slots of this process."""
        return share_of(len(self.part.of(limit)), self.number, self.count)


def wire(
    plan: Plan,
    cases: Sequence[tuple[BenchmarkPlan, Case]],
    seat: Seat,
    *,
    held_back: Collection[int],
    stops_early: bool,
    begins_with_tests: bool = False,
    warn: Callable[[str], None],
    expected: Sequence[float | None] = (),
) -> Wiring:
    """Open the store, build every part and start the engine.

    Args:
        plan: What the run will do.
        cases: The selected cases, in the order of their items.
        seat: Which process this is.
        held_back: Indices of cases that only run when a test waits for them.
        stops_early: Whether the run stops at a failure, so that working far ahead would be waste.
        begins_with_tests: Whether nothing is to begin before the first test, for the run may still be refused.
        warn: Takes a message for the user.
        expected: Seconds that the answer to each case is expected to take; nothing is known where it is empty.

    Raises:
        StoreError: The cache directory cannot be used.
        ClusterError: The Ray cluster cannot be used.
    """
    wiring = Wiring(plan, seat, ReplyStore(plan.config.cache_dir, warn=warn))
    engine = wiring.engine
    engine.jobs = wiring.jobs(cases)
    engine.begins_with_tests = begins_with_tests
    mine, everything = seat.part.of(len(cases)), range(len(cases))
    engine.held_back = frozenset(held_back) | (frozenset(everything) - frozenset(mine))
    if stops_early:
        engine.lead = max(1, seat.share(plan.config.concurrency))
    else:
        known = [expected[index] if expected else None for index in mine]
        feeds = _feeds_judges(plan, cases, engine.jobs)
        order = order_of_beginning(known, seat.number, seat.count, feeds_judges=feeds)
        engine.order = [mine[place] for place in order]
        engine.order += [index for index in everything if index not in mine]
    if plan.config.engine == "ray":
        from pytest_rubrics.cluster.controller import Cluster

        engine.grader = wiring.cluster = Cluster.start(wiring, cases, warn)
    engine.launch()
    if wiring.cluster is not None:
        try:
            engine.wait_for(wiring.cluster.open())
        except BaseException:
            wiring.close()
            raise
    return wiring


def _feeds_judges(plan: Plan, cases: Sequence[tuple[BenchmarkPlan, Case]], jobs: Sequence[Job]) -> bool:
    """Whether judges that share no slots with the models have more than one call to make for an answer."""
    benchmarks = {one.benchmark.name: one.benchmark for one, _ in cases}.values()
    if all(criteria_per_call(benchmark, one) is None for benchmark in benchmarks for one in plan.judge.members):
        return False
    models = {id(slots) for job in jobs if job.contender.endpoint for slots in job.contender.endpoint.slots}
    judges = {id(slots) for job in jobs for endpoint in job.bench.judge_endpoints for slots in endpoint.slots}
    return not models & judges


@dataclass(slots=True, repr=False)
class Wiring:
    """Builds each part once.

    Attributes:
        plan: What the run will do.
        seat: Which process this is.
        store: The store of replies.
        grader: Makes grades in this process.
        cluster: Makes them elsewhere, in place of the grader; None where there is none.
        pools: The limits by name.
        endpoints: What is called, by role and name.
    """

    plan: Plan
    seat: Seat
    store: ReplyStore
    engine: Engine = field(init=False)
    gateway: Gateway = field(init=False)
    grader: Grader = field(init=False)
    cluster: Cluster | None = None
    pools: dict[str, Slots] = field(default_factory=dict)
    endpoints: dict[tuple[str, str], Endpoint] = field(default_factory=dict)
    _leases: list[Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.plan.config
        self.gateway = Gateway(
            store=self.store,
            run=config.run,
            started_at=config.started_at,
            mode=config.cache_mode,
            max_cost=None if config.max_cost is None else config.max_cost * self.seat.part.share,
            may_launch=self.seat.may_launch,
        )
        self.grader = Grader(self.gateway, config.retry)
        self.engine = Engine(self.grader, jobs=(), endpoints=self.endpoints.values(), may_wait=self.seat.may_launch)

    def jobs(self, cases: Sequence[tuple[BenchmarkPlan, Case]]) -> list[Job]:
        """The jobs of the selected cases, in their order."""
        contenders = {model.name: self._contender(model) for model in self.plan.models}
        benches = {plan.benchmark.name: self.bench(plan, self.plan.judge, plan.templates) for plan, _ in cases}
        return [
            Job(case.task, contenders[case.model], benches[plan.benchmark.name], case.repeat) for plan, case in cases
        ]

    def snapshot(self) -> Snapshot:
        """What this process has done so far."""
        endpoints = self.endpoints.values()
        return Snapshot(
            answered=len(self.grader.progress.answered),
            judged=len(self.grader.progress.judged),
            in_flight=sum(endpoint.in_flight for endpoint in endpoints),
            rate_limited=sum(endpoint.rate_limited for endpoint in endpoints),
            spent_usd=self.gateway.counters.spent_usd,
        )

    def close(self, say_that_it_waits: Callable[[int], None] = lambda count: None) -> str | None:
        """Stop the engine, store what is left and give up local servers.

        Args:
            say_that_it_waits: Called with the number of calls in flight, if there are any to wait for.

        Returns:
            A message where replies could not be stored.
        """
        self.engine.shut_down(say_that_it_waits)
        if self.cluster is not None:
            self._keep(self.cluster.close())
        message = None
        if self.gateway.unsaved:
            try:
                path = self.store.spill(self.gateway.unsaved)
                count = len(self.gateway.unsaved)
                message = f"the cache was full: {count} rows are in {path}; rubrics cache import {path}"
            except StoreError as error:
                message = str(error)
        self.store.close()
        for endpoint in self.endpoints.values():
            endpoint.pacer.close()
        for lease in self._leases:
            lease.close()
        return message

    def _keep(self, rows: dict[str, Any]) -> None:
        """Store what workers could not store; their store may have died, and this one not."""
        if not rows:
            return
        try:
            asyncio.run(self.store.put(rows))
        except StoreError:
            self.gateway.unsaved.update(rows)

    def _contender(self, model: LoadedModel) -> Contender:
        config = model.config
        if isinstance(config, CommandModel):
            from pytest_rubrics.answering.command import command_answerer

            slots = [self.pool(f"command {model.name}", config.max_concurrency)]
            command = command_answerer(model.name, config, self.gateway, slots, self.plan.workspace.root)
            self.endpoints["model", model.name] = command.endpoint
            return Contender(model.name, config.track, command, None)
        if isinstance(config, RecordedModel):
            from pytest_rubrics.answering.recorded import RecordedAnswerer

            recorded = RecordedAnswerer(model.name, self.plan.answers[model.name])
            return Contender(model.name, config.track, recorded, None)
        endpoint = self._endpoint("model", model.name, config)
        answerer: Answerer
        if isinstance(config, AgentModel):
            from pytest_rubrics.answering.factory import agent_answerer

            root, cache = self.plan.workspace.root, self.plan.config.cache_dir
            answerer = agent_answerer(self.gateway, endpoint, config, root, cache)
        else:
            answerer = ChatAnswerer(self.gateway, endpoint, config.params, config.extra_body)
        return Contender(model.name, config.track, answerer, endpoint)

    def bench(self, plan: BenchmarkPlan, judge: LoadedJudge, templates: Mapping[str, Templates]) -> Bench:
        """How a benchmark is judged by a judge with these prompts of its members."""
        seats = judge.seats
        marker: Judge
        if len(seats) == 1:
            ((_, member),) = seats
            marker = self._marker(plan.benchmark, member, templates[member.name], None)
        else:
            marker = PanelJudge(
                {
                    seat: self._marker(
                        plan.benchmark,
                        member,
                        templates[member.name],
                        None if seat == judge.name else seat,  # the first of several readings is that of one alone
                    )
                    for seat, member in seats
                },
                judge.decide,
            )
        endpoints = [self.judge_endpoint(member) for member in judge.members]
        return Bench(judge.name, marker, endpoints, plan.benchmark.scoring)

    def judge_endpoint(self, member: Member) -> Endpoint:
        """Where a judge is called."""
        return self._endpoint("judge", member.name, member.config)

    def _marker(self, benchmark: Benchmark, member: Member, templates: Templates, seat: str | None) -> RubricJudge:
        config = member.config
        endpoint = self.judge_endpoint(member)
        asker = Asker(
            self.gateway,
            endpoint,
            StructuredOutput(self.gateway, endpoint, config.reply),
            {**LOGPROBS, **config.params} if config.verdict == "logprob" else config.params,
            config.extra_body,
            config.attempts,
            seat,
        )
        texts = cast("Mapping[str, Mapping[Language, str]]", templates)
        sheet = SheetForm(
            asker,
            texts.get("sheet", {}),
            config.show_weights,
            fixed_order=config.serve is not None,
            max_justification=config.max_justification,
        )
        single = CriterionForm(
            asker,
            texts,
            config.show_weights,
            ternary=config.scale == "ternary",
            max_justification=config.max_justification,
            chunk_size=min(config.chunk_size, config.context_limit),
        )
        language = None if config.language == "match" else config.language
        group_size = criteria_per_call(benchmark, member)
        return RubricJudge(sheet, single, group_size, config.context_limit, config.on_missing, language)

    def _endpoint(self, role: str, name: str, config: EndpointConfig) -> Endpoint:
        if (role, name) not in self.endpoints:
            address = self._address(config)
            limits = [self.pool(f"address {address}", self.plan.config.concurrency)]
            if config.max_concurrency is not None:
                limits.insert(0, self.pool(f"{role} {name}", config.max_concurrency))
            self.endpoints[role, name] = Endpoint(
                name=name,
                model=config.model,
                address=address,
                connect=lambda: self._connect(config, address),
                timeout=config.timeout,
                retry_for=config.retry_for,
                slots=limits,
                price=self._price(config),
                max_tokens=_max_tokens(config.params),
                client=config.client or "litellm",
                pacer=self._pacer(config, address),
            )
        return self.endpoints[role, name]

    def _pacer(self, config: EndpointConfig, address: str | Mapping[str, Any] | None) -> Pacer:
        """The pace at an address, or of this model alone if its file states one: providers may limit either."""
        is_own = config.rpm is not None or config.tpm is not None
        name = json.dumps([config.model if is_own else config.model.partition("/")[0], address], sort_keys=True)
        return Pacer(self.plan.config.cache_dir / "limits" / _short(name), config.rpm, config.tpm)

    def _address(self, config: EndpointConfig) -> str | dict[str, Any] | None:
        if config.serve is None:
            return effective_api_base(config.model, config.api_base)
        from pytest_rubrics.answering.serving.weights import identity

        return identity(config.serve, self.plan.workspace.root, self._servers)

    @property
    def _servers(self) -> Path:
        return self.plan.workspace.root / ".cache" / "servers"

    def _connect(self, config: EndpointConfig, address: str | Mapping[str, Any] | None) -> Wire:
        if config.serve is not None:
            return self._lease(config)
        try:
            key = config.api_key.resolve() if config.api_key else None
            headers = {header: value.resolve() for header, value in config.headers.items()}
        except UnsetVariableError as error:
            raise CallError("authentication", str(error)) from error
        api_base = address if isinstance(address, str) else None
        if (
            key is None
            and api_base is not None
            and config.model.startswith("openai/")
            and not os.environ.get("OPENAI_API_KEY")
        ):
            key = "none"  # both clients want some key even where the server asks for none
        return Wire(api_base, key, headers)

    def _lease(self, config: EndpointConfig) -> Wire:
        from pytest_rubrics.answering.serving.leases import lease
        from pytest_rubrics.answering.serving.settings import ServingError

        assert config.serve is not None
        try:
            held = lease(config.serve, self.plan.workspace.root, self._servers)
        except ServingError as error:
            raise CallError("transport", str(error)) from error
        self._leases.append(held)
        return Wire(held.api_base, held.api_key)

    def pool(self, name: str, limit: int) -> Slots:
        """A limit, made when it is first asked for; the share of it that this process has."""
        if name not in self.pools:
            share, shared = self.seat.share(limit), len(self.seat.part.of(limit))
            if shared < self.seat.count:
                self.pools[name] = SharedSlots(self.plan.config.cache_dir / "slots" / _short(name), shared)
            else:
                self.pools[name] = LocalSlots(share, self.engine.wake)
        return self.pools[name]

    def _price(self, config: EndpointConfig) -> Price | None:
        given = config.price or load_prices(self.plan.workspace).get(config.model)
        if given is None:
            return Price(0.0, 0.0) if config.serve is not None else None
        return Price(given.input, given.output, given.cached_input)


def _max_tokens(params: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = params.get(name)
        if isinstance(value, int):
            return value
    return None


def _short(name: str) -> str:
    import hashlib

    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:16]
