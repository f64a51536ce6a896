"""Which page of a cache.db holds which row, as SQLite itself sees it, and how to destroy pages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

PAGE = 4096


def pages_of(database: Path, tree: str, kind: str) -> list[int]:
    """Pages of one kind (``leaf``, ``internal``, ``overflow``) of a table or index."""
    sql = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path"
    return [number for (number,) in _query(database, sql, (tree, kind))]


def keys_by_page(database: Path) -> dict[str, set[int]]:
    """For each key of the table Cache the pages that its row stands on: its leaf, and its overflow pages."""
    places = _query(database, "SELECT path, pagetype, pageno, ncell FROM dbstat WHERE name = 'Cache' ORDER BY path")
    keys = iter(key for (key,) in _query(database, "SELECT key FROM Cache ORDER BY rowid"))
    pages: dict[str, set[int]] = {}
    cells: dict[str, str] = {}
    for path, kind, number, count in places:
        if kind == "leaf":
            for cell in range(count):
                key = next(keys)
                pages[key] = {number}
                cells[f"{path}{cell:03x}"] = key
    for path, kind, number, _ in places:
        if kind == "overflow":
            pages[cells[path.partition("+")[0]]].add(number)
    return pages


def overwrite(file: Path, offset: int, content: bytes) -> None:
    """Write over bytes of a file that nobody has open in this process."""
    with file.open("r+b") as handle:
        handle.seek(offset)
        handle.write(content)


def destroy(database: Path, page: int, content: bytes = b"\xa5" * PAGE) -> None:
    """Write over one page, counted from 1."""
    overwrite(database, (page - 1) * PAGE, content)


def _query(database: Path, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple]:  # type: ignore[type-arg]
    with closing(sqlite3.connect(database)) as connection:
        try:
            return connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if "dbstat" in str(error):
                pytest.skip("this SQLite was built without dbstat")
            raise
