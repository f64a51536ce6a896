"""Puts the probes to a judge: every call goes through the engine, the gateway and the cache of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_rubrics.answering.answer import Answer
from pytest_rubrics.auditing.findings import Probed
from pytest_rubrics.auditing.probes import BASE, PROBES, Probe
from pytest_rubrics.calls.cache import ReplyStore
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.jobs import Answerer, Bench, Contender, Job
from pytest_rubrics.plan import BenchmarkPlan, Case, Plan, judge_templates
from pytest_rubrics.tasks import Language, Task
from pytest_rubrics.wiring import Seat, Wiring

if TYPE_CHECKING:
    from pytest_rubrics.config import LoadedJudge

SHOWN_EVERY = 20  # a long audit says this often how far it is


class Audit(NamedTuple):
    """What an audit did.

    Attributes:
        probed: What the judge said of each probe of each task.
        calls: Calls that were made.
        spent_usd: What they cost.
        form: The form of reply that each member's endpoint takes.
        notes: Probes that were left out, and why.
        warning: What went wrong with the cache, or None.
    """

    probed: list[Probed]
    calls: int
    spent_usd: float
    form: dict[str, str | None]
    notes: list[str]
    warning: str | None


def run_audit(plan: Plan, tasks: Sequence[Task], labelled: Collection[str], *, warn: Callable[[str], None]) -> Audit:
    """Judge every probe of the tasks, and the base answers of the labelled ones.

    Args:
        plan: One benchmark, one model, one judge.
        tasks: The tasks whose answers are probed.
        labelled: Ids of further tasks of which only the base answer is judged.
        warn: Takes a message for the user.

    Raises:
        StoreError: The cache cannot be used.
    """
    (entry,) = plan.benchmarks.values()
    wiring = Wiring(plan, Seat(), ReplyStore(plan.config.cache_dir, warn=warn))
    notes: list[str] = []
    chosen = {task.id for task in tasks}
    pairs = [(task, probe) for probe in PROBES for task in tasks]
    pairs += [(task, BASE) for task in entry.data.tasks if task.id in labelled and task.id not in chosen]
    wanted = list(_jobs(wiring, entry, pairs, notes))
    engine = wiring.engine
    engine.jobs = [job for _, _, job in wanted]
    engine.launch()
    try:
        grades = []
        for index in range(len(wanted)):
            if index % SHOWN_EVERY == 0:
                warn(f"{index} of {len(wanted)} judged")
            grades.append(engine.grade(index, tick=lambda: None))
        form = {member.name: _form(wiring, member.name) for member in plan.judge.members}
        counters = wiring.gateway.counters
    except KeyboardInterrupt:
        engine.interrupt()
        raise
    finally:
        warning = wiring.close()
    probed = [Probed(task, probe, grade) for (task, probe, _), grade in zip(wanted, grades, strict=True)]
    return Audit(probed, counters.calls, counters.spent_usd, form, notes, warning)


def spread_over_subsets(tasks: Sequence[Task], count: int) -> list[Task]:
    """The first task of each subset, then the second of each, until there are enough."""
    subsets: dict[str, list[Task]] = {}
    for task in tasks:
        subsets.setdefault(task.subset, []).append(task)
    return [task for row in zip_longest(*subsets.values()) for task in row if task is not None][:count]


@dataclass(frozen=True, slots=True)
class _ProbeAnswerer:
    """Answers with the base answer, changed.

    Attributes:
        base: Gives the base answer; it is paid once, whatever the number of probes.
        probe: The probe.
    """

    base: Answerer
    probe: Probe

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The answer that the probe puts to the judge; a failed base answer stays one."""
        answer = await self.base.answer(task, 1, turn, anew=anew)
        return answer if answer.text is None else replace(answer, text=self.probe.answer(task, answer.text))


def _jobs(
    wiring: Wiring, entry: BenchmarkPlan, pairs: Sequence[tuple[Task, Probe]], notes: list[str]
) -> Iterator[tuple[Task, Probe, Job]]:
    plan = wiring.plan
    (model,) = plan.models
    case = Case(pairs[0][0], model.name, 1)
    (base,) = wiring.jobs([(entry, case)])
    benches: dict[tuple[str | None, Language], Bench | None] = {}
    for task, probe in pairs:
        turned = (probe.settings, task.language)
        if turned not in benches:
            benches[turned] = _bench(wiring, entry, base.bench, probe, task.language, notes)
        bench = benches[turned]
        if bench is not None:
            contender = Contender(
                probe.name,
                base.contender.track,
                _ProbeAnswerer(base.contender.answerer, probe),
                base.contender.endpoint,
            )
            yield task, probe, Job(probe.task(task), contender, bench, probe.draw)


def _bench(
    wiring: Wiring, entry: BenchmarkPlan, base: Bench, probe: Probe, language: Language, notes: list[str]
) -> Bench | None:
    """The judge with the setting turned that the probe turns; None where it has no prompt for it."""
    if probe.settings is None:
        return base
    judge = _turned(wiring.plan.judge, probe.settings, language)
    try:
        templates = judge_templates(entry.benchmark, judge, wiring.plan.workspace)
    except FaultsError as error:
        notes.append(f"{probe.name}: left out for tasks in {language}, {error.faults[0]}")
        return None
    return wiring.bench(entry, judge, templates)


def _turned(judge: LoadedJudge, setting: str, language: Language) -> LoadedJudge:
    def turn(config: Any) -> Any:
        if setting == "show_weights":
            return config.model_copy(update={"show_weights": not config.show_weights})
        used = language if config.language == "match" else config.language
        return config.model_copy(update={"language": "zh" if used == "en" else "en"})

    members = tuple(replace(member, config=turn(member.config)) for member in judge.members)
    own = judge.config if hasattr(judge.config, "panel") else turn(judge.config)
    return replace(judge, config=own, members=members)


def _form(wiring: Wiring, name: str) -> str | None:
    """The form of reply that is in use: what the file says, or what was found out."""
    (member,) = (member for member in wiring.plan.judge.members if member.name == name)
    if member.config.reply != "auto":
        return member.config.reply
    found = wiring.store.get(f"accepts:{wiring.judge_endpoint(member).identity}")
    return found if isinstance(found, str) else None
