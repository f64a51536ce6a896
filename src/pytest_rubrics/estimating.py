"""What a run would call and cost, for ``--estimate``. Nothing is called and nothing is written."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tabulate

from pytest_rubrics.answering.chat import ChatAnswerer
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.prices import Price
from pytest_rubrics.calls.reply import Usage
from pytest_rubrics.calls.request import Request
from pytest_rubrics.jobs import Job
from pytest_rubrics.plan import Case, Plan
from pytest_rubrics.progress import duration
from pytest_rubrics.recorder import Selected
from pytest_rubrics.rehearsing import (
    ANSWER_TOKENS,
    VERDICT_TOKENS,
    Foreseen,
    Outlook,
    Rehearsal,
    Role,
    rehearsal,
)
from pytest_rubrics.reporting.table import COMPACT, thousands, usd

Place = tuple[Role, str]  # role and name of an endpoint

_WIDE = re.compile("[\u2e80-\U0010ffff]")
_FREE = Price(0.0, 0.0)
AGENT_CALLS = 12  # of one answer of an agent, where no stored one tells better


def estimate(plan: Plan, selected: Sequence[Selected]) -> list[str]:
    """Lines that say what the selected grades would call and cost.

    Args:
        plan: The run.
        selected: The selected items.
    """
    notes: list[str] = []
    tallies = asyncio.run(_count(plan, selected, notes))
    rows = sorted(tallies.rows.values(), key=lambda row: row.role == "judge")
    return [
        f"estimate for {len(selected)} grades; nothing was called",
        *_table(rows),
        "",
        *notes,
        *tallies.notes(),
        *(note for row in rows for note in _notes_of(row, plan)),
        *_warnings(rows, plan),
    ]


async def _count(plan: Plan, selected: Sequence[Selected], notes: list[str]) -> _Tallies:
    with rehearsal(plan, notes) as ahead:
        jobs = ahead.wiring.jobs([(one.plan, one.case) for one in selected])
        lengths = await _learn(ahead, [*jobs, *ahead.wiring.jobs(_every_case(plan, selected))])
        tallies = _Tallies(lengths)
        retry = "all" if plan.config.cache_mode == "refresh" else plan.config.retry
        for index, job in enumerate(jobs):
            stand_in, calls = lengths.stand_in(job), lengths.answer_calls(job)
            outlook = await ahead.look_ahead(job, stand_in=stand_in, answer_calls=calls, retry=retry)
            tallies.add(index, job, outlook)
    return tallies


def _every_case(plan: Plan, selected: Sequence[Selected]) -> list[tuple[Any, Case]]:
    """A case of each task and model: their stored replies tell usual lengths, whether selected or not."""
    entries = {one.plan.benchmark.name: one.plan for one in selected}
    return [
        (entry, Case(task, model.name, 1))
        for entry in entries.values()
        for model in plan.models
        for task in entry.data.tasks
    ]


@dataclass(slots=True)
class _Usual:
    """The stored replies of an endpoint, in tokens.

    Attributes:
        replies: Their number.
        input: Of all their requests.
        assumed: Their length as assumed without them.
        actual: Their length as it is.
    """

    replies: int = 0
    input: int = 0
    assumed: float = 0.0
    actual: int = 0

    def output_tokens(self, call: Foreseen) -> int:
        """Length of the reply to a call."""
        factor = self.actual / self.assumed if self.actual else 1.0
        return _bounded(call.assumed_tokens * factor, call.endpoint)

    def input_tokens(self, call: Foreseen) -> int:
        """Length of a request, or of an agent's requests on average, whose history grows."""
        if call.times > 1 and self.replies:
            return round(self.input / self.replies)
        return input_tokens(call.request)


@dataclass(slots=True)
class _Lengths:
    """What stored replies tell of the length of others.

    Attributes:
        usual: Of each endpoint's replies.
        answers: Tokens of each model's answers, without their reasoning.
        calls: Calls of each model's answers.
    """

    usual: dict[Place, _Usual] = field(default_factory=lambda: defaultdict(_Usual))
    answers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def stand_in(self, job: Job) -> str:
        """A text as long as the model's usual answer."""
        known = self.answers[job.contender.name]
        tokens = sum(known) / len(known) if known else _bounded(ANSWER_TOKENS, job.contender.endpoint)
        return "abc " * round(tokens)

    def answer_calls(self, job: Job) -> int:
        """Calls of the model's usual answer."""
        known = self.calls[job.contender.name]
        if known:
            return round(sum(known) / len(known))
        return 1 if isinstance(job.contender.answerer, ChatAnswerer) else AGENT_CALLS


async def _learn(ahead: Rehearsal, jobs: Iterable[Job]) -> _Lengths:
    lengths = _Lengths()
    seen: set[str] = set()
    for job in jobs:
        outlook = await ahead.look_ahead(job)
        if outlook.answer is not None:
            lengths.answers[job.contender.name].append(count_tokens(outlook.answer))
            lengths.calls[job.contender.name].append(outlook.answer_calls)
        for call in outlook.calls:
            key = call.request.key()
            if call.reply is not None and key not in seen:
                seen.add(key)
                usual = lengths.usual[call.role, call.endpoint.name]
                usual.replies += 1
                usual.input += call.reply.usage.input_tokens
                usual.assumed += call.assumed_tokens
                usual.actual += call.reply.usage.output_tokens
    return lengths


@dataclass(slots=True)
class _Row:
    """What one endpoint would be asked.

    Attributes:
        role, endpoint: Who it is.
        usual: Length of its replies.
        calls: Calls to make.
        cached: Calls whose replies are stored.
        jobs: Indices of the jobs with a call to make.
        steps: Most calls of one answer, which are several for an agent.
        usage: Tokens of the calls to make.
        most: The same if every reply used its max_tokens.
        boundless: Why `most` is no bound, if it is none.
    """

    role: Role
    endpoint: Endpoint
    usual: _Usual
    calls: int = 0
    cached: int = 0
    jobs: set[int] = field(default_factory=set)
    steps: int = 1
    usage: Usage = field(default_factory=Usage)
    most: Usage = field(default_factory=Usage)
    boundless: str = ""

    @property
    def name(self) -> str:
        """Role and name, as they are shown."""
        return f"{self.role} {self.endpoint.name}"

    def price(self) -> Price | None:
        """The price, or None where it is unknown. LiteLLM is imported only where its table is needed."""
        return self.endpoint.known_price() if self.calls else None

    def cost(self) -> float | None:
        """Cost in USD; None where the price is unknown."""
        return _cost(self, self.usage)

    def most_cost(self) -> float | None:
        """Cost in USD if every reply used its max_tokens; None where price or bound is unknown."""
        return None if self.boundless and self.price() != _FREE else _cost(self, self.most)

    def add(self, call: Foreseen, longest_answer: int | None) -> None:
        """Count a call to make.

        Args:
            call: The call.
            longest_answer: Tokens by which the longest answer passes the one in the request; None without a bound.
        """
        asked, bound = self.usual.input_tokens(call), self.endpoint.max_tokens
        self.calls += call.times
        self.steps = max(self.steps, call.times)
        for _ in range(call.times):
            self.usage += Usage(asked, self.usual.output_tokens(call))
        if call.times > 1:
            self.boundless = "it is not known beforehand how many steps an agent takes"
        elif bound is None:
            self.boundless = "max_tokens is not among its params"
        elif longest_answer is None:
            self.boundless = "max_tokens is not among the model's params"
        else:
            self.most += Usage(asked + longest_answer, bound)


@dataclass(slots=True)
class _Tallies:
    """The calls of all jobs, by endpoint.

    Attributes:
        lengths: Lengths of replies.
        rows: What each endpoint would be asked.
        elsewhere: Answers to make that call no endpoint, by model.
    """

    lengths: _Lengths
    rows: dict[Place, _Row] = field(default_factory=dict)
    elsewhere: Counter[str] = field(default_factory=Counter)

    def add(self, index: int, job: Job, outlook: Outlook) -> None:
        """Count what one job would call."""
        self.elsewhere[job.contender.name] += outlook.is_made_elsewhere
        for call in outlook.calls:
            row = self._row(call)
            if call.reply is not None:
                row.cached += 1
                continue
            row.jobs.add(index)
            row.add(call, 0 if call.is_exact else self._longest(job, call))

    def notes(self) -> list[str]:
        """What is not counted."""
        return [
            f"model {name}: {count} answers to make, by no call that could be counted"
            for name, count in self.elsewhere.items()
            if count
        ]

    def _row(self, call: Foreseen) -> _Row:
        place = call.role, call.endpoint.name
        if place not in self.rows:
            self.rows[place] = _Row(call.role, call.endpoint, self.lengths.usual[place])
        return self.rows[place]

    def _longest(self, job: Job, call: Foreseen) -> int | None:
        """Tokens by which the longest answer passes its stand-in in a request; None where there is no bound."""
        endpoint = job.contender.endpoint
        if call.role == "model" or endpoint is None or endpoint.max_tokens is None:
            return None
        return max(0, endpoint.max_tokens - count_tokens(self.lengths.stand_in(job)))


def count_tokens(text: str) -> int:
    """About how many tokens a text has: one a Chinese, Japanese or Korean character, one for four others.

    >>> count_tokens("法律法律"), count_tokens("law, law"), count_tokens("")
    (4, 2, 0)
    """
    wide = len(_WIDE.findall(text))
    return wide + -(-(len(text) - wide) // 4)


def input_tokens(request: Request) -> int:
    """About how many input tokens a request has."""
    contents = [message.get("content") or "" for message in request.messages]
    texts = [content if isinstance(content, str) else json.dumps(content) for content in contents]
    tools = [json.dumps(request.tools)] if request.tools else []
    return sum(map(count_tokens, [*texts, *tools]))


def _bounded(tokens: float, endpoint: Endpoint | None) -> int:
    bound = endpoint.max_tokens if endpoint else None
    return round(tokens if bound is None else min(tokens, bound))


def _cost(row: _Row, usage: Usage) -> float | None:
    price = row.price()
    return 0.0 if not row.calls else None if price is None else price.cost(usage)


def _total(costs: Iterable[float | None]) -> float | None:
    known = list(costs)
    return None if None in known else sum(cost for cost in known if cost is not None)


def _table(rows: Sequence[_Row]) -> list[str]:
    cells: list[list[Any]] = [
        [
            row.name,
            row.calls,
            row.cached,
            thousands(row.usage.input_tokens),
            thousands(row.usage.output_tokens),
            usd(row.cost()),
            usd(row.most_cost()),
        ]
        for row in rows
    ]
    cost, most = _total(row.cost() for row in rows), _total(row.most_cost() for row in rows)
    totals = [sum(row.calls for row in rows), sum(row.cached for row in rows)]
    cells.append(["total", *totals, "", "", usd(cost), usd(most)])
    headers = ["", "calls", "cached", "tokens in", "tokens out", "cost", "at most"]
    columns = ["left", *["right"] * (len(headers) - 1)]
    return tabulate.tabulate(cells, headers, tablefmt=COMPACT, colalign=columns, disable_numparse=True).splitlines()


def _notes_of(row: _Row, plan: Plan) -> Iterator[str]:
    """What the figures of an endpoint rest on."""
    if not row.calls:
        return
    if row.usual.replies:
        yield f"{row.name}: replies are taken to be as long as its {row.usual.replies} stored ones"
    elif row.role == "model":
        yield f"{row.name}: {_bounded(ANSWER_TOKENS, row.endpoint):,} tokens a reply are assumed, none is stored"
    else:
        yield f"{row.name}: {VERDICT_TOKENS} tokens a verdict are assumed, no reply is stored"
    if row.steps > 1:
        yield f"{row.name}: {row.steps} calls an answer are assumed, as of an agent"
    if row.price() is None:
        name = row.endpoint.model
        yield (
            f"{row.name}: ? the price of {name} is unknown; name it, in USD per million tokens, in "
            f"configs/prices.yaml: {name}: {{input: ..., output: ...}}"
        )
    elif row.price() == _FREE:
        seconds = _typical_seconds(row, plan)
        time = "" if seconds is None else f", in about {duration(seconds * len(row.jobs))}"
        yield f"{row.name}: free, since it runs on a machine of yours{time}"
    elif row.boundless:
        yield f"{row.name}: ? there is no upper bound, since {row.boundless}"


def _typical_seconds(row: _Row, plan: Plan) -> float | None:
    """Seconds for one task, as model or judge says."""
    loaded: Iterable[Any] = plan.models if row.role == "model" else plan.judge.members
    return next((getattr(one.config, "typical_seconds", None) for one in loaded if one.name == row.endpoint.name), None)


def _warnings(rows: Sequence[_Row], plan: Plan) -> list[str]:
    """What the figures do not say."""
    config = plan.config
    if not any(row.calls for row in rows):
        return []
    if config.cache_mode == "offline":
        return ["--cache-mode offline forbids the calls: grades that need them would be excluded (cache_miss)"]
    lines = ["at most: if every reply used its max_tokens; asks again after malformed verdicts come on top"]
    cost = _total(row.cost() for row in rows)
    if config.max_cost is not None and cost is not None and cost > config.max_cost:
        lines.append(f"--max-cost {config.max_cost:g} would end the run before that")
    return lines
