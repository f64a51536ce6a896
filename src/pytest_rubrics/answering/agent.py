"""Research agents: a model that calls tools step by step until it writes its report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_rubrics.answering.agent_prompts import LABELS, Limit, final_request, system_prompt
from pytest_rubrics.answering.answer import Answer, AnsweringError
from pytest_rubrics.answering.journal import Journal, digest
from pytest_rubrics.answering.steps import Step, ToolCall, Trim, as_plain_text
from pytest_rubrics.answering.strategies import Strategy, StrategyName, strategy
from pytest_rubrics.answering.tools.tool import Observation, ToolSource
from pytest_rubrics.answering.tools.toolbox import Toolbox, identities
from pytest_rubrics.answering.trajectory import trajectory
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway, Opening
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Message, Request
from pytest_rubrics.tasks import Task

VERSION = 1
# What is tried in turn when the conversation is longer than the model's context.
TRIMS: Sequence[Trim | None] = (None, Trim(0.5, 4_000), Trim(0.25, 2_000), Trim(0.1, 1_000), Trim(0.02, 300))


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How an agent works.

    Attributes:
        strategy: How it calls tools.
        max_steps: Replies with tool calls, at most.
        time_limit: Seconds of model and tools, without any waiting for a slot.
        output_limit: Characters of one tool result.
        tool_timeout: Seconds of one tool call.
        system_prompt: Replaces ours.
    """

    strategy: StrategyName = "function_calling"
    max_steps: int = 50
    time_limit: float = 3600.0
    output_limit: int = 20_000
    tool_timeout: float = 120.0
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AgentAnswerer:
    """Answers tasks with an agent.

    Attributes:
        gateway: The way of every call.
        endpoint: Where the model is.
        params: Sampling parameters, sent as they are.
        extra_body: Fields that only this provider knows.
        settings: How it works.
        tools: What it works with.
        folder: Where files of unfinished runs are kept.
    """

    gateway: Gateway
    endpoint: Endpoint
    params: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    settings: AgentSettings
    tools: Sequence[ToolSource]
    folder: Path

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The report on one task.

        A run that was interrupted goes on at the step it had reached; with ``anew`` a finished one is made again.

        Raises:
            CallError: There is no report, and it is not the model's fault; an `AnsweringError` where steps were paid.
        """
        identity = self._identity(task, repeat)
        journal = Journal(self.gateway)
        toolbox = Toolbox(self.tools, self.folder / identity[:32], journal, self.settings.output_limit)
        async with self._alone(identity), toolbox:
            run = await self._begin(_Run(self, task, repeat, turn, identity, journal, toolbox), anew=anew)
            return await run.answer()

    def _identity(self, task: Task, repeat: int) -> str:
        """Name of a run: what decides its course, but for its limits."""
        return digest(
            {
                "version": VERSION,
                "model": self.endpoint.model,
                "address": self.endpoint.address,
                "params": self.params,
                "extra_body": self.extra_body,
                "strategy": self.settings.strategy,
                "system": self.system(task),
                "prompt": task.prompt,
                "tools": identities(self.tools),
                "repeat": repeat,
            }
        )

    def system(self, task: Task) -> str:
        """The system message, without what the strategy adds."""
        return system_prompt(task.language, self.settings.system_prompt, task.system_prompt)

    @asynccontextmanager
    async def _alone(self, identity: str) -> AsyncIterator[None]:
        """Hold the run's claim: whoever comes second waits, and then finds every step in the cache."""
        store, claim = self.gateway.store, f"agent:{identity}"
        while not await store.claim(claim):
            await store.wait(claim)
        try:
            yield
        finally:
            await asyncio.shield(store.release(claim))

    async def _begin(self, run: _Run, *, anew: bool) -> _Run:
        await run.prepare(relist=self.gateway.mode == "refresh", anew=False)
        # A run without an end only lacks a reply or a tool's result: to go on is all that is to be done anew.
        if anew and run.has_ended:
            await run.prepare(relist=True, anew=True)
        return run


@dataclass(slots=True)
class _Run:
    """One agent at work on one task."""

    agent: AgentAnswerer
    task: Task
    repeat: int
    turn: Turn
    identity: str
    journal: Journal
    toolbox: Toolbox
    strategy: Strategy = field(init=False)
    first: Request = field(init=False)
    opening: Opening = field(init=False)
    steps: list[Step] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    async def prepare(self, *, relist: bool, anew: bool) -> None:
        """Make the first request, which decides the keys of all."""
        agent = self.agent
        await self.toolbox.load(f"tools:{self.identity}", anew=relist)
        self.strategy = strategy(agent.settings.strategy, self.toolbox.definitions, self.task.language)
        system = "\n\n".join(filter(None, [agent.system(self.task), self.strategy.protocol()]))
        question = Request(
            model=agent.endpoint.model,
            address=agent.endpoint.address,
            messages=[
                *([{"role": "system", "content": system}] if system else []),
                {"role": "user", "content": self.task.prompt},
            ],
            params=agent.params,
            extra_body=agent.extra_body,
            tools=self.strategy.wire_tools(),
            repeat=self.repeat,
        )
        self.opening = agent.gateway.opening(question, anew=anew)
        self.first = question.again(self.opening.attempt)

    @property
    def has_ended(self) -> bool:
        """Whether this round came to an end before."""
        return bool(self.journal.get(self._end_row) == self.first.key())

    @property
    def _end_row(self) -> str:
        return f"ended:{self.identity}"

    async def answer(self) -> Answer:
        """Work until there is a report, or none to be had."""
        try:
            answer = await self._work()
        except CallError as error:
            if error.reason in {"malformed_response", "context_length"}:  # what going on cannot mend
                await self._end()
            if not self.replies:
                raise
            raise AnsweringError(error.reason, str(error), self._answer(None, ended_by=error.reason)) from error
        await self._end()
        return answer

    async def _end(self) -> None:
        if not self.has_ended:
            await self.journal.put(self._end_row, self.first.key())
        await self.toolbox.discard()

    async def _work(self) -> Answer:
        if self.journal.get(self.first.key()) is None:
            await self.toolbox.discard()  # of a former round that was not finished
        while True:
            limit = self._limit_reached()
            if limit is not None:
                return await self._final_turn(limit)
            request = replace(self.first, messages=[*self.first.messages, *self.strategy.history(self.steps)])
            try:
                reply = await self._ask(request)
            except CallError as error:
                if error.reason != "context_length" or not self.steps:
                    raise
                return await self._final_turn("context_length")
            text, calls = self.strategy.read(reply)
            if not calls:
                return self._report(reply, text, ended_by="report")
            self.steps.append(await self._step(request.key(), reply, text, calls))

    def _limit_reached(self) -> Limit | None:
        if len(self.steps) >= self.agent.settings.max_steps:
            return "step_limit"
        return "time_limit" if self._seconds_left(self.steps) <= 0 else None

    def _seconds_left(self, steps: Sequence[Step]) -> float:
        # Stored times are counted, not the clock: a resumed or replayed run meets its limit at the same step.
        return self.agent.settings.time_limit - sum(step.seconds for step in steps)

    async def _ask(self, request: Request) -> Reply:
        key = request.key()
        if self.steps and self.journal.get(f"overflow:{key}"):
            raise CallError("context_length", "the conversation is longer than the model's context")
        gateway = self.agent.gateway
        if self.journal.get(key) is None and gateway.mode != "offline":
            await self.toolbox.check()
        opening = None if self.replies else self.opening
        try:
            reply = await gateway.complete(request, self.agent.endpoint, self.turn, opening)
        except CallError as error:
            if self.steps and error.reason == "context_length":  # an error is in no cache, and a replay must know it
                await self.journal.put(f"overflow:{key}", True)
            raise
        self.replies.append(reply)
        self.keys.append(key)
        if reply.malformed is not None:
            raise CallError("malformed_response", f"{self.agent.endpoint.name}: {reply.malformed}")
        return reply

    async def _step(self, key: str, reply: Reply, text: str, calls: Sequence[ToolCall]) -> Step:
        step = Step(key, reply, text, calls, [])
        for index, call in enumerate(calls):
            left = self._seconds_left([*self.steps, step])
            if left <= 0:
                observation = Observation("Not run: the time is up.", is_error=True)
            else:
                seconds = min(self.agent.settings.tool_timeout, max(1.0, left))
                observation = await self.toolbox.call(key, index, call, seconds)
            step = replace(step, observations=[*step.observations, observation])
        return step

    async def _final_turn(self, limit: Limit) -> Answer:
        """One more turn without tools, for the report; as much is trimmed as the model's context asks for."""
        trims = TRIMS[1:] if limit == "context_length" else TRIMS
        for number, trim in enumerate(trims, start=1):
            try:
                reply = await self._ask(replace(self.first, messages=self._final_messages(limit, trim), tools=None))
            except CallError as error:
                if error.reason != "context_length" or number == len(trims):
                    raise
                continue
            return self._report(reply, self.strategy.read_report(reply), ended_by=limit)
        raise AssertionError("the last trim either returns or raises")

    def _final_messages(self, limit: Limit, trim: Trim | None) -> list[Message]:
        # As plain text: without tool definitions some providers refuse a history with tool calls.
        *history, last = as_plain_text(self.steps, LABELS[self.task.language], trim)
        content = f"{last['content']}\n\n{final_request(self.task.language, limit)}"
        return [*self.first.messages, *history, {**last, "content": content}]

    def _report(self, reply: Reply, text: str, *, ended_by: str) -> Answer:
        if reply.finish_reason == "content_filter":
            return self._answer(None, ended_by=ended_by, failure="filtered")
        if not text.strip():
            failure = "empty_length" if reply.finish_reason == "length" else "no_report"
            return self._answer(None, ended_by=ended_by, failure=failure)
        return self._answer(text, ended_by=ended_by, truncated=reply.finish_reason == "length")

    def _answer(
        self, text: str | None, *, ended_by: str, failure: str | None = None, truncated: bool = False
    ) -> Answer:
        return Answer(
            text=text,
            failure=failure,
            truncated=truncated,
            finish_reason=self.replies[-1].finish_reason,
            replies=tuple(self.replies),
            keys=tuple(self.keys),
            trajectory=trajectory(self.steps, self.replies, self.keys, text, failure, ended_by),
        )
