"""The file under the store of replies: made, opened, checked, and mended when damaged.

The tables are diskcache's. Whoever opens, writes or mends the file holds `Database.mutex`, so nobody writes into a file
that is being replaced. A file is only ever replaced by a finished one, and whoever has the old one open sees it by the
file's identity.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import diskcache  # type: ignore[import-untyped]

from pytest_rubrics.calls import salvage
from pytest_rubrics.calls.locks import Mutex

if TYPE_CHECKING:
    from pydantic import JsonValue

CLAIM = "claim:"
IS_CLAIM = "key >= 'claim:' AND key < 'claim;'"  # ';' follows ':', so the index on the key serves this

_SETTINGS = {
    "eviction_policy": "none",  # the default drops the oldest entries beyond 1 GB without a word
    "cull_limit": 0,
    "sqlite_journal_mode": "wal",
    "sqlite_synchronous": 1,
    "sqlite_auto_vacuum": 0,  # it would move pages at every deleted claim
    "sqlite_mmap_size": 0,  # a mapped file that is cut kills the process
    "sqlite_cache_size": 2**10,  # pages of 4 KiB; the default would fill 32 MiB in each process that writes
    "disk_min_file_size": 2**15,
}
_INLINE, _FILE = 1, 3  # diskcache's modes for text: in the row, in a file of its own
_VALUE_FILE = re.compile(r"[0-9a-f]{2}[/\\][0-9a-f]{2}[/\\][0-9a-f]{28}\.val")

Identity = tuple[int, int]


class StoreError(Exception):
    """The store of replies cannot be used; the text says what was found and what to do."""


class StoreFullError(StoreError):
    """A row could not be stored: the disk is full, read-only or failing."""


class RefusedRow(Exception):  # noqa: N818
    """A row that this project cannot have written; nothing of it is decoded."""


def to_json(value: JsonValue) -> str:
    """Compact JSON text that can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, as some models send it
        return json.dumps(value, separators=(",", ":"))
    return text


def decode(directory: Path, mode: object, filename: object, value: object) -> JsonValue:
    """Read the value of a row.

    Raises:
        RefusedRow: The row holds a pickle, or anything else than JSON text.
        ValueError: The text is damaged.
        OSError: The value's file is missing, or cannot be read.
    """
    if mode == _INLINE and isinstance(value, str | bytes):
        return json.loads(value)  # type: ignore[no-any-return]
    if mode == _FILE and (name := _value_file(filename)) is not None:
        return json.loads((directory / name).read_bytes())  # type: ignore[no-any-return]
    raise RefusedRow(f"it is stored in mode {mode!r}; only JSON text is read, a pickle could run any code")


def _value_file(filename: object) -> str | None:
    name = filename.decode("ascii", "replace") if isinstance(filename, bytes) else filename
    return name if isinstance(name, str) and _VALUE_FILE.fullmatch(name) else None


class _JsonDisk(diskcache.Disk):  # type: ignore[misc]
    """Values as JSON text, and value files that follow the transaction.

    diskcache removes the file of an overwritten value before an outer transaction ends, and leaves those of a rolled
    back one; both wait here for `settle`.
    """

    def __init__(self, directory: str, **settings: Any) -> None:
        super().__init__(directory, **settings)
        self._written: list[str] = []
        self._replaced: list[str] = []

    def get(self, key: Any, raw: bool) -> Any:
        if not raw:
            raise RefusedRow("its key is a pickle, which could run any code")
        return key

    def store(self, value: Any, read: bool, key: Any = None) -> Any:
        return super().store(to_json(value), False, key=key)

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> Any:
        return decode(Path(self._directory), mode, filename, value)

    def filename(self, key: Any = None, value: Any = None) -> Any:
        name, path = super().filename(key, value)
        self._written.append(name)
        return name, path

    def remove(self, file_path: str) -> None:
        self._replaced.append(file_path)

    def settle(self, *, committed: bool) -> None:
        """Remove the files that the ended transaction made needless."""
        for name in self._replaced if committed else self._written:
            if _value_file(name) is not None:
                super().remove(name)
        self._written.clear()
        self._replaced.clear()


class Cache(diskcache.Cache):  # type: ignore[misc]
    """diskcache with the settings of this project."""

    def __init__(self, directory: Path) -> None:
        try:
            super().__init__(str(directory), disk=_JsonDisk, **_SETTINGS)
        except BaseException:
            self.close()
            raise


def is_damage(error: BaseException | None) -> bool:
    """Whether an error says that the file itself is broken, rather than the disk, the memory or the caller."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT} or str(error).startswith(
        ("no such table", "Could not decode to UTF-8")
    )


class Database:
    """The file ``cache.db`` in the folder of the store."""

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        self.directory = directory
        self.path = directory / "cache.db"  # diskcache's name for it
        self.mutex = Mutex(directory / "cache.lock")
        self._warn = warn

    def identity(self) -> Identity | None:
        """Which file the name stands for at this moment."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def connect(self) -> sqlite3.Connection:
        """A connection that any thread may use; text comes as bytes, so that a damaged one does no harm here."""
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        connection.text_factory = bytes
        return connection

    def ensure(self) -> None:
        """Make the file where it is missing, and mend it where it does not even open. The mutex must be held.

        Raises:
            OSError: The folder or the file cannot be written.
            sqlite3.Error: The same, as SQLite puts it.
        """
        if self.path.exists() and not os.access(self.path, os.R_OK | os.W_OK):
            raise PermissionError(f"{self.path} cannot be read and written by this user")
        if not self.path.exists() and not self._beside("-wal").exists():
            self._replace_by([])
        elif (cause := self._fault()) is not None:
            self._rebuild(cause)

    def _fault(self) -> str | None:
        # An empty file must be noticed before SQLite sees it: SQLite would take it for a new one and delete the WAL.
        if not self.path.exists() or self.path.stat().st_size == 0:
            return "the file was empty or missing"
        try:
            with closing(self.connect()) as connection:
                connection.execute("SELECT key, value FROM Settings").fetchall()
                connection.execute("SELECT rowid FROM Cache LIMIT 1").fetchall()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return str(error)
        return None

    def mend(self, seen: Identity | None, error: BaseException) -> None:
        """Replace a damaged file, unless somebody else has done so since it was ``seen``.

        Raises:
            OSError: The new file cannot be written.
            sqlite3.Error: The same, as SQLite puts it.
        """
        with self.mutex:
            if self.identity() == seen:
                self._rebuild(str(error))

    def _rebuild(self, cause: str) -> None:
        saved, aside = self._replace_by(row for row in salvage.rows(self.path) if self._is_sound(row))
        self._warn(
            f"The reply cache {self.path} was damaged ({cause}). {saved} rows were saved into a new file, "
            f"and the damaged one is kept as {aside}."
        )

    def _is_sound(self, row: salvage.Row) -> bool:
        if not isinstance(row.key, str) or row.raw != 1 or not isinstance(row.size, int):
            return False
        if not isinstance(row.store_time, int | float):
            return False
        try:
            decode(self.directory, row.mode, row.filename, row.value)
        except (RefusedRow, ValueError, FileNotFoundError):
            return False
        return True

    def _replace_by(self, rows: Iterable[salvage.Row]) -> tuple[int, Path]:
        """Write a new file and put it in the place of the present one, if there is one.

        Returns:
            The number of rows in it, without claims, and where the former file now is.
        """
        folder = self.directory / "new"
        shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed here
        folder.mkdir(mode=0o700)
        Cache(folder).close()
        saved = _fill(folder / self.path.name, rows)
        aside = self.path.with_name(f"{self.path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._beside(suffix).rename(aside.with_name(aside.name + suffix))
        with suppress(FileNotFoundError):
            _link_or_move(self.path, aside)
        (folder / self.path.name).replace(self.path)
        shutil.rmtree(folder, ignore_errors=True)
        return saved, aside

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


def _link_or_move(path: Path, target: Path) -> None:
    try:
        target.hardlink_to(path)  # a process killed before the next step leaves the file where it will be mended again
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        path.rename(target)


_COLUMNS = "key, raw, store_time, expire_time, access_time, access_count, tag, size, mode, filename, value"
_INSERT = f"""
INSERT INTO Cache({_COLUMNS}) VALUES (:key, 1, :time, NULL, :time, 0, NULL, :size, :mode, :filename, :value)
ON CONFLICT(key, raw) DO UPDATE SET store_time = excluded.store_time, access_time = excluded.access_time,
    size = excluded.size, mode = excluded.mode, filename = excluded.filename, value = excluded.value
WHERE excluded.store_time > store_time
"""  # noqa: S608


def _fill(path: Path, rows: Iterable[salvage.Row]) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # nobody else sees the file yet
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for row in rows:
            values = {name: getattr(row, name) for name in ("key", "size", "mode", "filename", "value")}
            connection.execute(_INSERT, {**values, "time": row.store_time})
        connection.execute("COMMIT")
        ((saved,),) = connection.execute(f"SELECT COUNT(*) FROM Cache WHERE NOT ({IS_CLAIM})")  # noqa: S608
        connection.execute("PRAGMA journal_mode = WAL")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return int(saved)


class Reader:
    """A connection that only reads, shared by all threads; it follows when the file is replaced."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: Identity | None = None
        self._closed = False

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read rows as they are committed at this moment; text comes as bytes.

        Raises:
            StoreError: The reader is closed, or the file cannot be read, also after mending it.
        """
        with self._threads:
            try:
                try:
                    return self._follow().execute(sql, parameters).fetchall()
                except sqlite3.DatabaseError as error:
                    if not is_damage(error):
                        raise
                    self._database.mend(self._identity, error)
                    return self._follow().execute(sql, parameters).fetchall()
            except (sqlite3.Error, OSError) as error:
                raise StoreError(
                    f"The reply cache {self._database.path} cannot be read: {error}. "
                    "Check the disk and the permissions, or choose another folder with --cache-dir."
                ) from error

    def version(self) -> object:
        """A value that changes whenever another connection commits."""
        ((version,),) = self.query("PRAGMA data_version")
        return self._identity, version

    def _follow(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"The reply cache {self._database.path} is already closed.")
        if self._connection is None or self._identity != self._database.identity():
            self._drop()
            with self._database.mutex:
                self._database.ensure()
                self._connection, self._identity = self._database.connect(), self._database.identity()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connection for good."""
        with self._threads:
            self._closed = True
            self._drop()
