"""Rows of a data file: a JSON array, JSON Lines, or an object that wraps one list."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.faults import Fault, FaultsError

_DECODER = json.JSONDecoder()
_FIX_WHOLE_FILE = "Fetch the file again, or mend it there."


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, read.

    Attributes:
        path: As it is named in faults.
        text: The contents, without byte order mark.
        sha256: Of the bytes on disk.
    """

    path: str
    text: str
    sha256: str


def read_data_file(path: Path) -> DataFile:
    """Read a UTF-8 file.

    Raises:
        FaultsError: The file cannot be read or is not UTF-8.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FaultsError([Fault(str(path), f"cannot be read: {error.strerror or error}.")]) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start} of {len(content)}."
        raise FaultsError([Fault(str(path), message, fix="Save it as UTF-8.")]) from error
    return DataFile(str(path), text, hashlib.sha256(content).hexdigest())


def rows_of(file: DataFile, is_row: Callable[[dict[str, Any]], bool], faults: list[Fault]) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a file with their numbers, and note what cannot be read.

    Args:
        file: The file.
        is_row: Tells a lone object that is a row from one that wraps the list of rows.
        faults: Gets a fault for each piece that is not JSON.

    Yields:
        Number and value. The number is the line in JSON Lines, else the place in the list, both counted from 1.
    """
    start = file.text.lstrip()[:1]
    if not start:
        faults.append(Fault(file.path, "is empty; expected rows.", fix=_FIX_WHOLE_FILE))
    elif start == "{" and not _is_one_value(file.text):
        yield from _json_lines(file, faults)
    else:
        yield from _json_document(file, is_row, faults)


def _is_one_value(text: str) -> bool:
    """Whether an object fills the whole text, be it cut off: then it does not end on a line that others follow."""
    try:
        _, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip()))
    except (ValueError, RecursionError):
        return not any(_parses(line) for line in _lines(text))
    return not text[end:].strip()


def _lines(text: str) -> Iterator[str]:
    """Yield the lines one by one. Not `str.splitlines`: a JSON text may hold U+2028 and the like as they are."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _parses(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _json_lines(file: DataFile, faults: list[Fault]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(file.text), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            faults.append(Fault(file.path, _json_error(error, line), row=number, fix="Mend the line or remove it."))


def _json_document(
    file: DataFile, is_row: Callable[[dict[str, Any]], bool], faults: list[Fault]
) -> Iterator[tuple[int, Any]]:
    try:
        document = json.loads(file.text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        faults.append(Fault(file.path, _json_error(error, file.text), line=line, fix=_FIX_WHOLE_FILE))
        return
    if isinstance(document, dict):
        document = [document] if is_row(document) else _wrapped_list(document)
    if isinstance(document, list) and document:
        yield from enumerate(document, 1)
    else:
        expected = "expected a JSON array of rows, JSON Lines, or an object that holds one list of rows."
        faults.append(Fault(file.path, f"holds no rows; {expected}"))


def _wrapped_list(document: dict[str, Any]) -> list[Any] | None:
    lists = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    return lists[0] if len(lists) == 1 else None


def _json_error(error: Exception, text: str) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return f"is not usable JSON: {error}."
    # The parser complains at the start of a text or escape that never ends, else where it ran out of characters.
    left = len(text.rstrip()) - error.pos
    cut_off = left <= 0 or error.msg.startswith("Unterminated string") or ("escape" in error.msg and left <= 6)
    place = f"column {error.colno} (character {error.pos} of {len(text)})"
    return f"is not JSON: {error.msg} at {place}{'; it ends in the middle' if cut_off else ''}."
