"""Rows of a data set become tasks, by the ``record`` of the benchmark; all faults are found before any call."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from pytest_rubrics.data_files import DataFile, rows_of
from pytest_rubrics.expressions import ExpressionError, compile_expression, compile_template, placeholders
from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.suggestions import did_you_mean
from pytest_rubrics.tasks import Criterion, Language, Task

if TYPE_CHECKING:
    from pytest_rubrics.benchmark_file import BenchmarkFile, Value

_SHOWN_FAULTS = 50
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9._-]")


class Note(Protocol):
    """Notes a fault of the row at hand."""

    def __call__(self, field: str, found: object, expected: str, fix: str | None = None) -> None:
        """Take the field, what was found, what was expected, and what to do."""


def read_tasks(benchmark: str, spec: BenchmarkFile, files: Sequence[DataFile]) -> list[Task]:
    """Return the tasks of data files: subsets in the order of ``benchmark.yaml``, in a subset the order of the data.

    Args:
        benchmark: Name of the benchmark.
        spec: Its ``benchmark.yaml``.
        files: The data, in order.

    Raises:
        FaultsError: With all faults of all files; of a long list the first 50 and the number of the others.
    """
    reader = RowReader(benchmark, spec)
    tasks = [
        task
        for file in files
        for number, row in rows_of(file, reader.is_row, reader.faults)
        if (task := reader.read(file.path, number, row))
    ]
    if reader.faults:
        raise FaultsError(_first_faults(reader.faults))
    place = {subset: index for index, subset in enumerate(spec.subsets)}
    return sorted(tasks, key=lambda task: place[task.subset])


class RowReader:
    """Turns rows into tasks, remembering ids and faults.

    Attributes:
        faults: All faults met so far.
    """

    def __init__(self, benchmark: str, spec: BenchmarkFile) -> None:
        record = spec.record
        self.faults: list[Fault] = []
        self._benchmark = benchmark
        self._subsets = frozenset(spec.subsets)
        self._markers = frozenset([*spec.subsets, *spec.tracks, *spec.domains])
        self._id = _ValueReader(record.id)
        self._key = _ValueReader(record.key or record.id)
        self._cluster = _ValueReader(record.cluster or record.id)
        self._language = _ValueReader(record.language)
        self._prompt = _ValueReader(record.prompt)
        self._system_prompt = _ValueReader(record.system_prompt) if record.system_prompt else None
        self._groups = {name: _ValueReader(value) for name, value in record.groups.items()}
        self._needed_groups = record.needed_groups()
        self._subset = compile_template(record.subset)
        self._subset_field = self._blame(placeholders(record.subset))
        self._marker_names = tuple(record.markers)
        self._topics = record.topics
        self._get_topics = compile_expression(record.topics) if record.topics else None
        self._criteria = _CriteriaReader(spec)
        self._ids: dict[str, str] = {}
        self._keys: dict[tuple[str, str], str] = {}

    def is_row(self, value: Any) -> bool:
        """Whether a value has what only a row has: a prompt, or criteria."""
        try:
            return isinstance(self._prompt.get(value), str) or isinstance(self._criteria.get(value), list)
        except ExpressionError:
            return False

    def resembles(self, row: Any) -> bool:
        """Whether a row seems to be of this benchmark, be it with faults: two of id, prompt, criterion are there."""
        try:
            found = [self._id.get(row), self._prompt.get(row), self._criteria.first_text(row)]
        except ExpressionError:
            return False
        return sum(value is not None for value in found) >= 2

    def read(self, file: str, number: int, row: Any) -> Task | None:
        """Return the task of a row, or None after its faults were noted.

        Args:
            file: Name of the file, for faults.
            number: Number of the row, for faults.
            row: The row, as parsed from JSON.
        """
        known = len(self.faults)

        def note(field: str, found: object, expected: str, fix: str | None = None) -> None:
            # Several values may come from one field, such as language and track: one fault is enough.
            if all(fault.key != (field or None) for fault in self.faults[known:]):
                message = f"found {_shown(found)}; expected {expected}."
                self.faults.append(Fault(file, message, row=number, key=field or None, fix=fix))

        if not isinstance(row, dict):
            note("", row, "an object")
            return None
        try:
            task = self._task(row, note)
        except ExpressionError as error:
            self.faults.append(Fault(file, f"{error}.", row=number))
            return None
        if len(self.faults) > known:
            return None
        self._check_unique(task, f"{file}, row {number}", note)
        return task if len(self.faults) == known else None

    def _task(self, row: dict[str, Any], note: Note) -> Task:
        task_id = self._id.text(row, note)
        groups = self._read_groups(row, note)
        subset = self._read_subset(groups, note)
        return Task(
            benchmark=self._benchmark,
            id=task_id,
            key=_NOT_IN_KEYS.sub("-", self._key.text(row, note) if self._key.value != self._id.value else task_id),
            subset=subset,
            language=self._read_language(row, note),
            prompt=self._read_prompt(row, note),
            criteria=self._criteria.read(row, note),
            system_prompt=self._read_system_prompt(row, note),
            topics=self._read_topics(row, note),
            markers=self._read_markers(subset, groups, note),
            groups=groups,
            cluster=self._cluster.optional_text(row, note) or task_id,
        )

    def _read_groups(self, row: dict[str, Any], note: Note) -> dict[str, str]:
        groups = {}
        for name, reader in self._groups.items():
            text = reader.text(row, note) if name in self._needed_groups else reader.optional_text(row, note)
            if text:
                groups[name] = text
        return groups

    def _read_subset(self, groups: dict[str, str], note: Note) -> str:
        subset = cast("str | None", self._subset(groups))
        if subset is None:
            return ""  # a group is missing, which is noted
        if subset not in self._subsets:
            note(self._subset_field, subset, _one_of("a subset", self._subsets))
        return subset

    def _read_language(self, row: dict[str, Any], note: Note) -> Language:
        language = self._language.text(row, note)
        if language and language not in {"en", "zh"}:
            note(self._language.field, language, "a language that stands for en or zh")
        return cast("Language", language)

    def _read_prompt(self, row: dict[str, Any], note: Note) -> str:
        prompt = self._prompt.get(row)
        return prompt if _is_text(prompt, self._prompt.field, note) else ""

    def _read_system_prompt(self, row: dict[str, Any], note: Note) -> str | None:
        if self._system_prompt is None:
            return None
        prompt = self._system_prompt.get(row)
        if prompt is None or (isinstance(prompt, str) and not prompt.strip()):
            return None
        return prompt if _is_text(prompt, self._system_prompt.field, note) else None

    def _read_topics(self, row: dict[str, Any], note: Note) -> tuple[str, ...]:
        if self._get_topics is None or (topics := self._get_topics(row)) is None:
            return ()
        if not isinstance(topics, list):
            note(str(self._topics), topics, "a list of texts")
            return ()
        return tuple(topic for topic in topics if topic is not None and _is_text(topic, str(self._topics), note))

    def _read_markers(self, subset: str, groups: dict[str, str], note: Note) -> tuple[str, ...]:
        markers = []
        for name in self._marker_names:
            marker = subset if name == "subset" else groups.get(name, "")
            markers.append(marker)
            if marker and name != "subset" and marker not in self._markers:
                note(self._groups[name].field, marker, "a name listed under subsets, tracks or domains")
        return tuple(markers)

    def _check_unique(self, task: Task, place: str, note: Note) -> None:
        first = self._ids.setdefault(task.id, place)
        if first != place:
            note(self._id.field, task.id, f"an id of its own; {first} has it too")
            return
        first = self._keys.setdefault((task.subset, task.key), place)
        if first != place:
            note(self._key.field, task.key, f"a key of its own inside {task.subset}; {first} has it too")

    def _blame(self, groups: list[str]) -> str:
        """Return the fields that the subset is made of."""
        return ", ".join(self._groups[name].field for name in groups)


class _ValueReader:
    """Reads one value as text, by its expression or template, its spellings and its words for "no value"."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.field = value.from_ or value.template or ""
        self.get = compile_expression(value.from_) if value.from_ is not None else compile_template(self.field)
        self._names = value.names()
        self._spellings = [spelling for name, others in value.spellings.items() for spelling in [name, *others]]
        self._absent = frozenset(value.absent)

    def text(self, row: Any, note: Note) -> str:
        """Return the text, stripped; a missing one is noted and gives the empty text."""
        known = self.optional_text(row, note)
        if known is None:
            note(self.field, self.get(row), "a text or a whole number" if not self._names else self._spelled())
        return known or ""

    def optional_text(self, row: Any, note: Note) -> str | None:
        """Return the text, stripped; None if there is no value; the empty text after a fault was noted."""
        found = self.get(row)
        if isinstance(found, int) and not isinstance(found, bool):
            found = str(found)
        if found is None:
            return None
        if not isinstance(found, str):
            note(self.field, found, "a text or a whole number")
            return ""
        text = found.strip()
        if not text or text in self._absent:
            return None
        if not _encodes(text):
            note(self.field, found, "text without half surrogate pairs")
            return ""
        return self._one_name(text, note) if self._names else text

    def kept_name(self, text: str) -> str:
        """Return the one name of a text, or the text where it is unknown."""
        return self._names.get(text.casefold(), text)

    def _one_name(self, text: str, note: Note) -> str:
        name = self._names.get(text.casefold())
        if name is None:
            note(self.field, text, self._spelled(), did_you_mean(text, self._spellings))
        return name or ""

    def _spelled(self) -> str:
        return _one_of("a known value", self._spellings)


class _CriteriaReader:
    """Reads the rubric of a row."""

    def __init__(self, spec: BenchmarkFile) -> None:
        record = spec.record.criteria
        self._each = record.each
        self.get = compile_expression(record.each)
        self._id = _ValueReader(record.id) if record.id else None
        self._text = _ValueReader(record.text)
        self._weight = _ValueReader(record.weight)
        self._tag = _ValueReader(record.tag) if record.tag else None

    def first_text(self, row: Any) -> Any:
        """Return the text of the first criterion, if there is one."""
        entries = self.get(row)
        return self._text.get(entries[0]) if isinstance(entries, list) and entries else None

    def read(self, row: dict[str, Any], note: Note) -> tuple[Criterion, ...]:
        """Return the criteria in their order; what is wrong with them is noted."""
        entries = self.get(row)
        if not isinstance(entries, list) or not entries:
            note(self._each, entries, "a list of criteria")
            return ()
        criteria: list[Criterion] = []
        ids: dict[str, int] = {}
        for index, entry in enumerate(entries):
            criterion = self._criterion(index, entry, note)
            criteria.append(criterion)
            if criterion.id and ids.setdefault(criterion.id, index) != index:
                expected = f"an id of its own; {self._each}[{ids[criterion.id]}] has it too"
                note(f"{self._each}[{index}].{self._id.field if self._id else ''}", criterion.id, expected)
        weights = [criterion.weight for criterion in criteria]
        if not any(weight > 0 or math.isnan(weight) for weight in weights):
            note(self._each, weights, "at least one positive weight")
        return tuple(criteria)

    def _criterion(self, index: int, entry: Any, note: Note) -> Criterion:
        def note_here(field: str, found: object, expected: str, fix: str | None = None) -> None:
            note(f"{self._each}[{index}].{field}", found, expected, fix)

        text = self._text.get(entry)
        weight = self._weight.get(entry)
        if not _is_weight(weight):
            note_here(self._weight.field, weight, "a number other than 0")
            weight = math.nan  # noted: no further fault shall follow from it
        return Criterion(
            id=sys.intern(self._id.text(entry, note_here) if self._id else str(index + 1)),
            text=text.strip() if _is_text(text, self._text.field, note_here) else "",
            weight=weight,
            tag=self._read_tag(entry, note_here),
        )

    def _read_tag(self, entry: Any, note: Note) -> str | None:
        if self._tag is None or (tag := self._tag.get(entry)) is None:
            return None
        return self._tag.kept_name(tag.strip()) or None if _is_text(tag, self._tag.field, note, blank=True) else None


def _is_weight(value: object) -> bool:
    if type(value) is int:
        return value != 0 and abs(value) < 10**15
    return type(value) is float and math.isfinite(value) and value != 0


def _is_text(value: object, field: str, note: Note, *, blank: bool = False) -> bool:
    if not isinstance(value, str):
        note(field, value, "a text")
    elif not blank and not value.strip():
        note(field, value, "a text that is not blank")
    elif not _encodes(value):
        note(field, value, "text without half surrogate pairs")
    else:
        return True
    return False


def _encodes(text: str) -> bool:
    """Whether a text can be sent and stored; JSON lets half a surrogate pair pass, UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _one_of(what: str, names: Sequence[str] | frozenset[str]) -> str:
    return f"{what}: {', '.join(sorted(names) if isinstance(names, frozenset) else names)}"


def _shown(found: object) -> str:
    if found is None:
        return "nothing"
    text = json.dumps(found, ensure_ascii=False, default=str)
    text = text if len(text) <= 80 else f"{text[:77]}..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _first_faults(faults: list[Fault]) -> list[Fault]:
    more = len(faults) - _SHOWN_FAULTS
    if more <= 0:
        return faults
    return [*faults[:_SHOWN_FAULTS], Fault(faults[_SHOWN_FAULTS].file, f"and {more} more faults in the data.")]
