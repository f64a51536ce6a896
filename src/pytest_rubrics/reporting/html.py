"""``report.html``: one page that works from disk, without a network and without a server.

The page holds its style, its script and its data. Texts stand in compressed blocks, which are read when a task is
opened; above a size they are files beside the page.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from pytest_rubrics import __version__
from pytest_rubrics.records import Run
from pytest_rubrics.redaction import redact
from pytest_rubrics.reporting.conclusions import conclusions
from pytest_rubrics.reporting.raw_replies import raw_replies
from pytest_rubrics.reporting.report_data import ColumnName, Page, task_row
from pytest_rubrics.reporting.rich_text import shortened, to_html, visible

REPORT = "report.html"
DATA_FOLDER = "report_data"
INSIDE_UP_TO = 96 * 1024 * 1024
"""Bytes of records whose texts still stand inside the page; compressed they take a third or less."""
BLOCK = 512 * 1024  # bytes of text that are read together, so that opening a task takes no time
# Fields of a grade that its page shows beside its answer and its verdicts.
_FIELDS = ("error", "finish_reason", "served_model", "keys", "usage", "cost_usd", "spent_usd", "cached", "seconds")
_MORE = ("finished_at", "trajectory", "agreement", "judge_replies", "seats")


def write_html(page: Page, folder: Path) -> Path:
    """Write the page of one run, or of several side by side.

    Args:
        page: What stands on it.
        folder: Where the page goes; data files stand beside it in ``report_data/``.
    """
    paths = [view.run.grades.path for view in page.views]
    size = sum(path.stat().st_size for path in paths if path.exists())
    inside = size <= INSIDE_UP_TO
    path = folder / REPORT
    partial = path.with_name(path.name + ".part")
    shutil.rmtree(folder / DATA_FOLDER, ignore_errors=True)
    try:
        with partial.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            _write_page(page, file, inside, folder / DATA_FOLDER)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _write_page(page: Page, file: io.TextIOWrapper, inside: bool, beside: Path) -> None:
    head, tail = _skeleton(inside)
    file.write(head)
    blocks = _Blocks(file if inside else None, beside)
    tasks, grades = _write_texts(page, blocks)
    said = {name: [row._asdict() for row in conclusions(page, name)] for name in page.benchmarks}
    plain = {"version": __version__, "blocks": blocks.count, "inside": inside, **page.to_plain()}
    data = {name: _dump(value) for name, value in {**plain, "tasks": tasks, "conclusions": said}.items()}
    _write_data(file, {**data, "grades": f"[{','.join(grades)}]"})
    file.write(tail)


@dataclass(slots=True)
class _Blocks:
    """Writes blocks of texts into the page, or into files that call the page's function.

    Texts are compressed as they come: a task may have a hundred long answers.

    Attributes:
        page: The page, where they stand inside it.
        folder: The folder of the files, where they do not.
        count: Number of blocks.
    """

    page: io.TextIOWrapper | None
    folder: Path
    count: int = 0
    _packed: bytearray = field(default_factory=bytearray)
    _packer: Any = None
    _size: int = 0
    _separator: str = ""

    def begin(self, number: int, texts: Mapping[str, Any]) -> int:
        """Begin a task with its own texts; returns the number of its block."""
        if self._packer is None:
            self._packer = zlib.compressobj(4)
        self._put(f'{"," if self._size else "{"}"{number}":{{"task":{_dump(texts)},"grades":[')
        self._separator = ""
        return self.count

    def add(self, texts: Mapping[str, Any]) -> None:
        """Take the texts of a grade of the task."""
        self._put(self._separator + _dump(texts))
        self._separator = ","

    def end(self) -> None:
        """End the task."""
        self._put("]}")
        if self._size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write what was taken."""
        if self._packer is None:
            return
        self._put("}")
        self._packed += self._packer.flush()
        block = base64.b64encode(self._packed).decode("ascii")
        if self.page is not None:
            self.page.write(f'<script type="text/plain" id="block-{self.count}">{block}</script>\n')
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{self.count}.js"
            path.write_text(f'rubricsBlock({self.count},"{block}")\n', encoding="utf-8")
        self.count += 1
        self._packed, self._packer, self._size = bytearray(), None, 0

    def _put(self, text: str) -> None:
        self._size += len(text)
        self._packed += self._packer.compress(visible(redact(text)).encode("utf-8", "replace"))


def _write_texts(page: Page, blocks: _Blocks) -> tuple[list[dict[str, Any]], list[str]]:
    """Write the texts task by task, and return the tables of tasks and of grades, the rows of the latter as JSON."""
    places = [_places(view.run) for view in page.views]
    unmade: list[dict[tuple[str, str], list[dict[str, Any]]]] = [defaultdict(list) for _ in page.views]
    for by_task, view in zip(unmade, page.views, strict=True):
        for grade in view.missing:
            by_task[grade.benchmark, grade.task_id].append(grade.to_record())
    columns = {name: number for number, name in enumerate(page.columns)}
    tasks: list[dict[str, Any]] = []
    grades: list[str] = []
    with ExitStack() as stack:
        stored = [stack.enter_context(raw_replies(view.run)) for view in page.views]
        for number, (id_, record) in enumerate(page.tasks.items()):
            tasks.append({**task_row(record), "block": blocks.begin(number, _task_texts(record))})
            for n, view in enumerate(page.views):
                for row in chain(_read(view.run, places[n].get(id_, ())), unmade[n].get(id_, ())):
                    column = columns.get(ColumnName(n, row["benchmark"], row["model"], row["judge"]))
                    if column is not None:
                        grades.append(_dump([number, column, *_grade_row(row)]))
                        row["judge_replies"] = stored[n].of_judge(row) or None
                        blocks.add({"column": column, "repeat": row["repeat"], **_grade_texts(row)})
            blocks.end()
        blocks.flush()
    return tasks, grades


def _places(run: Run) -> dict[tuple[str, str], list[int]]:
    """Offsets of the lines that count, by task."""
    by_task: dict[tuple[str, str], list[int]] = defaultdict(list)
    for figures, offset in zip(run.figures, run.grades.offsets, strict=True):
        by_task[figures.benchmark, figures.task_id].append(offset)
    return by_task


def _read(run: Run, offsets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Lines as they stand, with fields that this version does not know."""
    if not offsets:
        return
    with run.grades.path.open("rb") as file:
        for offset in offsets:
            file.seek(offset)
            yield json.loads(file.readline())


def _task_texts(record: Mapping[str, Any]) -> dict[str, Any]:
    prompt, cut = shortened(record["prompt"])
    return {
        "prompt": to_html(prompt),
        "cut": cut,
        "system": record.get("system_prompt") or "",
        "criteria": record["criteria"],
        "groups": record.get("groups", {}),
        "value": record.get("value"),
    }


def _grade_row(row: Mapping[str, Any]) -> list[Any]:
    """The numbers of a grade: repeat, state, reason, score, passed, tokens, cost, seconds, truncated."""
    metrics = row.get("metrics")
    costs = (row.get("cost_usd") or {}).values()
    usage = [
        count for part in (row.get("usage") or {}).values() for key, count in part.items() if key.endswith("put_tokens")
    ]
    return [
        row["repeat"],
        row["state"],
        row.get("reason"),
        next(iter(metrics.values()), None) if metrics else None,
        row.get("passed"),
        sum(usage),
        None if None in costs else round(sum(costs), 8),
        round(sum((row.get("seconds") or {}).values()), 2),
        int(bool(row.get("truncated"))),
    ]


def _grade_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    answer, cut = shortened(row.get("answer") or "")
    kept = {key: row[key] for key in (*_FIELDS, *_MORE) if row.get(key) is not None}
    verdicts = [{k: v for k, v in verdict.items() if k not in {"weight", "tag"}} for verdict in row["verdicts"]]
    return {**kept, "answer": to_html(answer) if answer else "", "cut": cut, "verdicts": verdicts}


def _skeleton(inside: bool) -> tuple[str, str]:
    """What stands before the data, and what after it."""
    assets = files("pytest_rubrics.reporting") / "assets"

    def read(name: str) -> str:
        return (assets / name).read_text(encoding="utf-8")

    script = f"\nconst WORDS = {read('words.json')};\n{read('report.js')}"
    style = read("report.css")
    # Only this script and this style may act. Nothing may be loaded, but for the data files of a page that has some.
    sources = _hash_source(script) if inside else f"{_hash_source(script)} 'self' file:"
    head, _, tail = read("report.html").partition("<!-- data -->\n")
    head = head.replace("SCRIPT_SOURCES", sources).replace("STYLE_SOURCES", _hash_source(style))
    head = head.replace("/* style */", style)
    return head, tail.replace("/* script */", script)


def _hash_source(text: str) -> str:
    """An inline script or style as a source of a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _dump(value: Any) -> str:
    """Compact JSON; a number that JSON does not know, in records made elsewhere, becomes null."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        known = json.loads(json.dumps(value), parse_constant=lambda name: None)
        return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def _write_data(file: io.TextIOWrapper, values: Mapping[str, str]) -> None:
    """Data inside a page, as JSON: no text in it can end its element, or begin a comment."""
    separator = '<script type="application/json" id="data">{'
    for name, value in values.items():
        text = visible(redact(value))
        for character in "<>&\u2028\u2029":
            text = text.replace(character, f"\\u{ord(character):04x}")
        file.write(f'{separator}"{name}":{text}')
        separator = ","
    file.write("}</script>\n")
