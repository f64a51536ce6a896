"""Subcommands about the cache of paid replies."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.cli.command import argument, command, complain, find_workspace, say
from pytest_rubrics.faults import Fault, FaultsError

if TYPE_CHECKING:
    from pytest_rubrics.calls.cache import ReplyStore
    from pytest_rubrics.calls.reply import Reply
    from pytest_rubrics.figures import Figures
    from pytest_rubrics.grades import Grade
    from pytest_rubrics.plan import Plan
    from pytest_rubrics.records import Run
    from pytest_rubrics.rehearsing import Outlook

_CACHE_DIR = argument("--cache-dir", metavar="DIR", help="the cache (default: that of a run started here)")


@command("cache stats", "number, size and age of the stored replies", _CACHE_DIR)
def stats(options: argparse.Namespace) -> None:
    """Print what a cache holds."""
    from pytest_rubrics.progress import duration

    folder = _folder(options.cache_dir)
    _must_exist(folder)
    with _opened(folder) as store:
        found = store.stats()
    say(f"{folder}: {found['entries']:,} entries, {_size(found['bytes'])}")
    for name, at in (("oldest", found["oldest"]), ("newest", found["newest"])):
        if at is not None:
            say(f"{name}: {_moment(at)}, {duration(time.time() - at)} ago")
    say(f"open claims: {found['claims']}, which are calls that living processes are making")


@command(
    "cache import",
    "store the replies of a file that a run with a full disk left behind, or of another host's cache",
    argument("file", metavar="PATH", type=Path, help="the file that the run named, or a copy of a cache's folder"),
    _CACHE_DIR,
)
def import_spilled(options: argparse.Namespace) -> None:
    """Store spilled replies, or those of another cache."""
    if options.file.is_dir():
        _must_exist(options.file)
        with _opened(_folder(options.cache_dir)) as store, _opened(options.file) as other:
            say(f"{store.import_from(other)} rows stored; those that were there already stay as they are.")
        return
    with _opened(_folder(options.cache_dir)) as store:
        count = store.import_spilled(options.file)
    say(f"{count} rows stored; those that were there already stay as they are. {options.file} is no longer needed.")


@command(
    "cache explain",
    "the cache keys of one task of a run: which are stored, and which a run would use today",
    argument("run", metavar="RUN", type=Path, help="folder of the run"),
    argument("task", metavar="TASK", help="key, task id, or what stands in the brackets of the pytest id"),
    argument("--cache-dir", metavar="DIR", help="the cache (default: that of the run)"),
)
def explain(options: argparse.Namespace) -> None:
    """Print the keys of a task's calls."""
    from pytest_rubrics.rebuilding import open_run

    run = open_run(options.run)
    folder = _folder(options.cache_dir or run.manifest["options"]["cache_dir"])
    grades = _grades_of(run, options.task)
    say(f"cache: {folder}")
    for grade in grades:
        say(f"{_name(grade)}: {' '.join(filter(None, [grade.state, grade.reason, grade.error]))}")
        for part, key, reply in _recorded(grade, folder):
            say(f"  {part} {key}: {_shown(reply)}")
    say("today:")
    try:
        for line in _today(run, grades, folder):
            say(f"  {line}")
    except FaultsError as error:
        say("  what a run would ask cannot be told, since its files have faults:")
        for fault in error.faults:
            say(f"  {fault}")


def _grades_of(run: Run, name: str) -> list[Grade]:
    """The grades of a task; one that has no line is as if it had been excluded.

    Raises:
        FaultsError: The run has no such task.
    """
    from pytest_rubrics.grades import Grade
    from pytest_rubrics.plan import Case
    from pytest_rubrics.rebuilding import evidence_of
    from pytest_rubrics.suggestions import did_you_mean

    evidence = evidence_of(run)
    names: dict[str, list[Figures]] = {}
    for figures in evidence.figures:
        task = evidence.tasks[figures.benchmark, figures.task_id]
        case = Case(task, figures.model, figures.repeat)
        for each in {task.key, task.id, f"{task.subset}-{task.key}", case.id}:
            names.setdefault(each, []).append(figures)
    if name not in names:
        fix = did_you_mean(name, names) or "Give a key, a task id, or what stands in the brackets of a pytest id."
        raise FaultsError([Fault(name, f"there is no such task in {run.folder}.", fix=fix)])
    wanted = {figures.id for figures in names[name]}
    made = {grade.id: grade for grade in run.grades if grade.id in wanted}
    fields = ("benchmark", "task_id", "key", "subset", "model", "track", "judge", "repeat", "state", "reason")
    return [made.get(f.id) or Grade(**{field: getattr(f, field) for field in fields}) for f in names[name]]


def _recorded(grade: Grade, folder: Path) -> Iterator[tuple[str, str, Reply | None]]:
    """The keys in a record, each with its stored reply."""
    from pytest_rubrics.rehearsing import has_replies

    keys = [(part, key) for part, keys in grade.keys.items() for key in keys]
    if not has_replies(folder):
        yield from ((part, key, None) for part, key in keys)
        return
    with _opened(folder) as store:
        for part, key in keys:
            yield part, key, _reply(store.get(key))


def _today(run: Run, grades: list[Grade], folder: Path) -> Iterator[str]:
    """Which keys the same grades would have now, and which settings are others.

    Raises:
        FaultsError: A file that the run used is missing or has faults.
    """
    plan = _plan_today(run, grades, folder)
    yield from _changes(run, plan)
    notes: list[str] = []
    for grade, outlook in asyncio.run(_look_ahead(plan, grades, notes)):
        yield f"{_name(grade)}:"
        for call in outlook.calls:
            part = "answer" if call.role == "model" else "judge"
            key = call.request.key()
            which = "the run's key" if key in grade.keys[part] else "no key of the run"
            if call.is_exact or (call.role == "judge" and grade.answer is not None):
                yield f"  {part} {key}: {which}, {_shown(call.reply)}"
            else:
                yield f"  {part}: its key depends on a reply that is not there yet"
        if outlook.is_made_elsewhere:
            yield "  answer: made by no call"
    yield from notes


async def _look_ahead(plan: Plan, grades: list[Grade], notes: list[str]) -> list[tuple[Grade, Outlook]]:
    from pytest_rubrics.plan import Case
    from pytest_rubrics.rehearsing import rehearsal

    found = []
    with rehearsal(plan, notes) as ahead:
        for grade in grades:
            entry = plan.benchmarks[grade.benchmark]
            task = next((task for task in entry.data.tasks if task.id == grade.task_id), None)
            if task is None or grade.model not in {model.name for model in plan.models}:
                notes.append(f"{_name(grade)}: there is no such task or model any more")
                continue
            (job,) = ahead.wiring.jobs([(entry, Case(task, grade.model, grade.repeat))])
            found.append((grade, await ahead.look_ahead(job, stand_in=grade.answer or "")))
    return found


def _plan_today(run: Run, grades: list[Grade], folder: Path) -> Plan:
    """A plan of the same run, from the files as they are now.

    Raises:
        FaultsError: A file that the run used is missing or has faults.
    """
    from pytest_rubrics.options import read_options
    from pytest_rubrics.plan import make_plan

    workspace, here = find_workspace(), Path.cwd()
    given = {**run.manifest["options"], "cache_dir": str(folder), "shard": None, "gate": None}
    config = read_options(given, {}, workspace.root, here)
    names = {grade.benchmark for grade in grades}
    paths = [path for name in names if (path := workspace.locate(f"benchmarks/{name}"))]
    plan = make_plan(config, workspace, paths, here, will_call=False)
    if plan is None:
        raise FaultsError([Fault(str(workspace.root), f"has no benchmark {', '.join(names)} any more.")])
    return plan


def _changes(run: Run, plan: Plan) -> Iterator[str]:
    """Settings of models, judge and prompts that are not as they were."""
    from pytest_rubrics.config import settings_without_secrets
    from pytest_rubrics.merging import differences

    now = {f"model {model.name}": settings_without_secrets(model.config) for model in plan.models}
    now[f"judge {plan.judge.name}"] = plan.judge.settings()
    then = {f"model {name}": settings for name, settings in run.manifest["models"].items()}
    then |= {f"judge {name}": settings for name, settings in run.manifest["judge"].items()}
    for name in plan.benchmarks:
        now[f"prompts of {name}"] = plan.benchmarks[name].prompts_sha256
        then[f"prompts of {name}"] = run.manifest["benchmarks"].get(name, {}).get("prompts_sha256", {})
    for name in now.keys() & then.keys():
        for key, found, former in differences(now[name], then[name]):
            yield f"changed: {name}, {key} is {found} and was {former}"


def _name(grade: Grade) -> str:
    return f"{grade.subset}-{grade.key}, model {grade.model}, repeat {grade.repeat}"


def _reply(row: object) -> Reply | None:
    from pytest_rubrics.calls.reply import Reply

    return Reply.from_row(row) if isinstance(row, dict) else None


def _shown(reply: Reply | None) -> str:
    if reply is None:
        return "not stored"
    return f"stored {_moment(reply.at)}, {reply.usage.output_tokens} output tokens, finish_reason {reply.finish_reason}"


def _folder(given: str | None) -> Path:
    """The cache: the given folder, else that of a run started here."""
    from pytest_rubrics.options import read_options

    here = Path.cwd()
    return read_options({"cache_dir": given}, os.environ, find_workspace().root, here).cache_dir


def _must_exist(folder: Path) -> None:
    from pytest_rubrics.rehearsing import has_replies

    if not has_replies(folder):
        raise FaultsError([Fault(str(folder), "there is no cache of replies.", fix="Name one with --cache-dir.")])


@contextmanager
def _opened(folder: Path) -> Iterator[ReplyStore]:
    """A store; what is wrong with it comes as a fault."""
    from pytest_rubrics.calls.cache import ReplyStore, StoreError

    try:
        with closing(ReplyStore(folder, warn=complain)) as store:
            yield store
    except StoreError as error:
        raise FaultsError([Fault("cache", str(error))]) from error


def _size(count: float) -> str:
    """Bytes in few characters.

    >>> [_size(n) for n in (512, 2_048, 3_500_000)]
    ['512 B', '2.0 kB', '3.5 MB']
    """
    if count < 1_000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count /= 1_000
        if count < 1_000:
            return f"{count:.1f} {unit}"
    return f"{count / 1_000:.1f} GB"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
