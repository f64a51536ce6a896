"""Answers made elsewhere: found for their tasks before anything is called, and judged as they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_rubrics.answering.answer import Answer, answer_text
from pytest_rubrics.answering.answer_files import AnswerFiles, Entry
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.config import safe_name
from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.tasks import Task

SHOWN_NAMES = 5

# Benchmark, task id and repeat.
Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """Ready answers by task.

    Attributes:
        path: The file or folder.
        texts: The answers.
        notes: What a user should know of the files.
    """

    path: Path
    texts: Mapping[Place, str]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, repr=False)
class RecordedAnswerer:
    """Answers tasks with what was recorded.

    Attributes:
        name: Name of the model.
        answers: The answers.
    """

    name: str
    answers: RecordedAnswers

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The recorded answer to one task.

        Raises:
            CallError: There is none.
        """
        text = self.answers.texts.get((task.benchmark, task.id, repeat))
        if text is None:
            which = f", repeat {repeat}" if repeat > 1 else ""
            raise CallError("no_answer", f"{self.answers.path} holds no answer to task {task.id}{which}")
        return ready_answer(text)


def ready_answer(text: str) -> Answer:
    """A text that somebody else made, as an answer; an empty one is a failure."""
    text = answer_text(text)
    return Answer(text) if text.strip() else Answer(None, failure="empty")


def load_answers(path: Path, tasks: Iterable[Task], kept_in: Path) -> RecordedAnswers:
    """Read ready answers and find the task of each.

    Args:
        path: A file or a folder.
        tasks: All tasks of the run.
        kept_in: Folder of texts of reports that were converted before.

    Raises:
        FaultsError: An answer cannot be read, may belong to several tasks, stands there twice, or all belong to none.
    """
    faults: list[Fault] = []
    skipped: list[str] = []
    register = _Register(tasks)
    found: dict[Place, Entry] = {}
    unknown: list[str] = []
    for entry in AnswerFiles(path, kept_in, faults, skipped).entries():
        owners = register.owners(entry)
        if not owners:
            unknown.append(entry.name)
        elif len(owners) > 1:
            faults.append(_ambiguous(entry, owners))
        else:
            place = (owners[0].benchmark, owners[0].id, entry.repeat)
            if (first := found.setdefault(place, entry)) is not entry:
                faults.append(_twice(entry, first))
    if not faults and not found:
        faults.append(_useless(path, unknown))
    if faults:
        raise FaultsError(faults)
    return RecordedAnswers(path, {place: entry.text for place, entry in found.items()}, _notes(unknown, found, skipped))


class _Register:
    """Finds tasks by what an entry says of them."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._by_id: defaultdict[str, list[Task]] = defaultdict(list)
        self._by_key: defaultdict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            self._by_id[task.id].append(task)
            self._by_key[task.key].append(task)

    def owners(self, entry: Entry) -> list[Task]:
        """The tasks that an entry may belong to: by its id, else by its key."""
        by_id = self._fitting(self._by_id, entry.task_id, entry)
        return by_id or self._fitting(self._by_key, safe_name(entry.key) if entry.key else None, entry)

    @staticmethod
    def _fitting(tasks: Mapping[str, list[Task]], name: str | None, entry: Entry) -> list[Task]:
        return [
            task
            for task in (tasks.get(name, ()) if name else ())
            if entry.subset in {None, task.subset} and entry.benchmark in {None, task.benchmark}
        ]


def _ambiguous(entry: Entry, owners: Sequence[Task]) -> Fault:
    places = ", ".join(f"{task.benchmark} {task.subset}" for task in owners)
    fix = f"Name the task by its task_id, such as {owners[0].id}"
    fix += ", or write the subset beside the key." if entry.row is not None else "."
    return entry.fault(f"{entry.name} is a key of several tasks: {places}.", fix)


def _twice(entry: Entry, first: Entry) -> Fault:
    message = f"is a second answer to {entry.name}, repeat {entry.repeat}; the first is {first.place}."
    fix = "Remove one, or number them as repeat." if entry.row is not None else "Remove one."
    return entry.fault(message, fix)


def _useless(path: Path, unknown: Sequence[str]) -> Fault:
    if not unknown:
        return Fault(str(path), "holds no answers.")
    message = f"none of its {len(unknown)} answers belongs to a task of this run: {_listed(unknown)}."
    return Fault(str(path), message, fix="Choose the data with --source, such as --source full.")


def _notes(unknown: Sequence[str], found: Mapping[Place, Entry], skipped: Sequence[str]) -> list[str]:
    notes = []
    if unknown:
        total = len(unknown) + len(found)
        notes.append(f"{len(unknown)} of {total} answers belong to no task of this run: {_listed(unknown)}")
    if skipped:
        notes.append(f"files of other kinds are left aside: {_listed(skipped)}")
    return notes


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(name[:60] for name in names[:SHOWN_NAMES]) + more
