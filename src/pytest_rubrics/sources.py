"""Where the tasks of a benchmark come from: the bundled sample, the published data set, or files of its layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pytest_rubrics.data_files import read_data_file, rows_of
from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.rows import RowReader, read_tasks
from pytest_rubrics.tasks import Task
from pytest_rubrics.values import load_values

if TYPE_CHECKING:
    from pytest_rubrics.benchmarks import Benchmark

SAMPLE = "sample"
FULL = "full"


@dataclass(frozen=True, slots=True, repr=False)
class Loaded:
    """Tasks and where they came from.

    Attributes:
        tasks: In the order in which they run.
        checksum: Each file, named as in the published layout, with its SHA-256.
        origin: The source, in words for the manifest.
    """

    tasks: list[Task]
    checksum: dict[str, str]
    origin: str


@dataclass(frozen=True, slots=True)
class Source:
    """One value of ``--source``.

    Attributes:
        value: ``sample``, ``full``, or the path of a file or folder in the published layout.
        data_dir: Where ``full`` keeps what it downloads, in a folder for each benchmark and revision.
    """

    value: str
    data_dir: Path

    def load(self, benchmark: Benchmark) -> Loaded:
        """Return the tasks of a benchmark from this source; ``full`` downloads what is not there yet.

        Raises:
            FaultsError: The source is missing, cannot be downloaded, or holds faulty rows.
        """
        files, origin = self._files(benchmark)
        faults: list[Fault] = []
        contents = {}
        for name, path in files.items():
            with gather(faults):
                contents[name] = read_data_file(path)
        tasks: list[Task] = []
        with gather(faults):
            tasks = read_tasks(benchmark.name, benchmark.spec, list(contents.values()))
        with gather(faults):
            tasks = _with_values(tasks, benchmark.values)
        if faults:
            raise FaultsError(faults)
        return Loaded(tasks, {name: content.sha256 for name, content in contents.items()}, origin)

    def _files(self, benchmark: Benchmark) -> tuple[dict[str, Path], str]:
        if self.value == SAMPLE:
            return {benchmark.spec.sources.sample: benchmark.sample}, SAMPLE
        if self.value == FULL:
            return self._download(benchmark)
        files = published_files(benchmark, Path(self.value))
        if not files:
            raise FaultsError([_no_files(benchmark, Path(self.value))])
        return files, self.value

    def _download(self, benchmark: Benchmark) -> tuple[dict[str, Path], str]:
        from pytest_rubrics.hubs import fetch

        hub = benchmark.spec.sources.hub
        if hub is None:
            message = f"the benchmark {benchmark.name!r} names no hub, so there is nothing to download."
            raise FaultsError([Fault("--source full", message, fix="Give the path of the data, or use sample.")])
        return fetch(hub, self.data_dir / benchmark.name / hub.first.revision)


def _with_values(tasks: list[Task], table: Path | None) -> list[Task]:
    """The tasks with their economic value, where the table holds them."""
    values = load_values(table) if table else {}
    return [replace(task, value=values[task.id]) if task.id in values else task for task in tasks]


def published_files(benchmark: Benchmark, path: Path) -> dict[str, Path]:
    """Return the data files at a path, by their names in the published layout; none if it holds none.

    A folder in the published layout, one file of it, any other single file, or a folder with a single data file.
    """
    globs = benchmark.spec.sources.published
    if path.is_file():
        return {_published_name(path, globs): path}
    if files := {found.relative_to(path).as_posix(): found for glob in globs for found in sorted(path.glob(glob))}:
        return files
    for glob in ("*.jsonl", "*.json"):
        flat = list(path.glob(glob))
        if len(flat) == 1:
            return {_published_name(flat[0], globs): flat[0]}
    return {}


def _published_name(path: Path, globs: list[str]) -> str:
    """Return the end of a path that fits the layout, such as ``law/test.json``; else the file's name."""
    whole = path.absolute()
    depth = next((len(PurePath(glob).parts) for glob in globs if whole.match(glob)), 1)
    return "/".join(whole.parts[-depth:])


def serves(benchmark: Benchmark, path: Path) -> bool:
    """Whether a path holds files of a benchmark: the names fit its layout, and the first row looks like one of its own.

    A file without a single readable row counts as long as its name is the published one: loading tells what is wrong.
    """
    files = published_files(benchmark, path)
    reader = RowReader(benchmark.name, benchmark.spec)
    for file in files.values():
        row = next(_readable_rows(file, reader), None)
        if row is not None:
            return reader.resembles(row)
    return any(file.absolute().match(glob) for file in files.values() for glob in benchmark.spec.sources.published)


def _readable_rows(path: Path, reader: RowReader) -> Iterator[object]:
    unreadable: list[Fault] = []
    with gather(unreadable):
        yield from (row for _, row in rows_of(read_data_file(path), reader.is_row, unreadable) if isinstance(row, dict))


def _no_files(benchmark: Benchmark, path: Path) -> Fault:
    if not path.exists():
        return Fault(f"--source {path}", "does not exist.", fix="Use sample, full, or an existing file or folder.")
    layout = ", ".join(benchmark.spec.sources.published) or "no published layout"
    message = f"holds no data of {benchmark.name}: expected {layout}, or a single JSON or JSONL file."
    return Fault(f"--source {path}", message, fix="Give the folder that holds them, or one file.")
