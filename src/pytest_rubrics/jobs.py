"""What there is to grade, and who answers and judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_rubrics.answering.answer import Answer
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.judging.verdicts import Judgement
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.tasks import Task


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


@dataclass(frozen=True, slots=True, repr=False)
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


@dataclass(frozen=True, slots=True, repr=False)
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


@dataclass(frozen=True, slots=True, repr=False)
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
