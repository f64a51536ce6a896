"""Making one grade: answer, judge, score, and what a failure on the way means."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_rubrics.answering.answer import Answer, AnsweringError
from pytest_rubrics.calls.cache import StoreError
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.reply import Reply, Usage
from pytest_rubrics.grades import Grade, now
from pytest_rubrics.jobs import Job
from pytest_rubrics.judging.verdicts import Judgement, JudgingError
from pytest_rubrics.scoring import Scoring

Retry = Literal["excluded", "failed", "all"]
Part = Literal["answer", "judge", "malformed"]  # the last: of the judge only what it could not be read on

NOTHING: Collection[Part] = frozenset()
EVERYTHING: Collection[Part] = frozenset({"answer", "judge"})
STOPPED = CallError("interrupted", "the run was stopped")


@dataclass(slots=True)
class Progress:
    """What this process has done so far, as indices of jobs."""

    answered: set[int] = field(default_factory=set)
    judged: set[int] = field(default_factory=set)


@dataclass(slots=True, repr=False)
class Grader:
    """Makes grades.

    Attributes:
        gateway: The way of every call.
        retry: Which outcomes of former runs are asked for anew.
        progress: Counts for the status line.
    """

    gateway: Gateway
    retry: Retry | None = None
    progress: Progress = field(default_factory=Progress)

    def stop(self) -> None:
        """Start no further call; calls in flight go on."""
        self.gateway.stop(STOPPED)

    async def grade(self, index: int, job: Job, turn: Turn) -> Grade:
        """Answer, judge and score; every failure is a state of the grade.

        Args:
            index: Number of the job, for the progress.
            job: What to grade.
            turn: Place in the queues for slots.
        """
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


def excluded(job: Job, error: CallError) -> Grade:
    """The grade of a job that could not be worked on."""
    grade = _blank(job)
    _exclude(grade, error)
    grade.finished_at = now()
    return grade


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
