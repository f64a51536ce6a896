"""The store of paid replies: none is lost, and none is paid for twice."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from pytest_rubrics.calls.claims import Owners, Watcher
from pytest_rubrics.calls.database import (
    CLAIM,
    IS_CLAIM,
    Cache,
    Database,
    Reader,
    RefusedRow,
    StoreError,
    StoreFullError,
    decode,
    to_json,
)
from pytest_rubrics.calls.writer import Writer

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = ["ReplyStore", "Stats", "StoreError", "StoreFullError"]

T = TypeVar("T")


class Stats(TypedDict):
    """What a store holds; times are seconds since the epoch, of the oldest and the newest entry."""

    entries: int
    bytes: int
    oldest: float | None
    newest: float | None
    claims: int


class ReplyStore:
    """Rows of JSON under text keys, shared by all processes that open the same folder.

    ``await`` returns only after the commit, so a row is safe from then on, whatever happens to the process. Keys that
    begin with ``claim:`` belong to the store.

    Args:
        directory: The folder. It is created with mode 0700; one that exists keeps its mode.
        warn: Called with one sentence, in any thread, when a damaged file was mended or a damaged value found. It must
            not use the store.

    Raises:
        StoreError: The folder cannot be created, written or locked.
    """

    def __init__(self, directory: Path, *, warn: Callable[[str], None]) -> None:
        self._directory = directory.absolute()
        self._process = os.getpid()
        self._warn = warn
        self._claimed: set[str] = set()  # keys that this process has claimed or is about to
        self._guard = threading.Lock()
        self._damaged: set[str] = set()
        self._database = Database(self._directory, warn)
        try:
            self._owners = self._enter()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"The reply cache {directory} cannot be opened: {error}. "
                "Choose a folder on a local disk that this user can write, with --cache-dir."
            ) from error
        self._reader = Reader(self._database)
        self._watcher = Watcher(self._database, self._owners, self._claimed)
        self._writer = Writer(self._database, self._renew_claims)

    def _enter(self) -> Owners:
        if os.path.expandvars(self._directory) != str(self._directory):
            raise OSError("its path holds the name of an environment variable, which diskcache would replace")
        with self._database.mutex:
            self._database.ensure()
            return Owners(self._directory / "owners")

    def get(self, key: str) -> JsonValue | None:
        """The value of a row; None where there is none. Any thread may ask.

        Raises:
            StoreError: The row is a pickle, or the store cannot be read.
        """
        self._check_process()
        for _ in range(2):
            rows = self._reader.query("SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1", (key,))
            if not rows:
                return None
            try:
                return self._decode(key, *rows[0])
            except FileNotFoundError:  # overwritten between the two steps: once more
                continue
            except ValueError:
                break
        if key not in self._damaged:
            self._damaged.add(key)
            self._warn(
                f"The reply cache {self._database.path} holds a damaged value under {key}; it counts as missing."
            )
        return None

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin with a prefix.

        Raises:
            StoreError: The store cannot be read.
        """
        self._check_process()
        query = "SELECT key FROM Cache WHERE key >= ? AND key < ? AND raw = 1"
        rows = self._reader.query(query, (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)))
        return [key.decode("utf-8") for (key,) in rows]

    def _decode(self, key: str, mode: object, filename: object, value: object) -> JsonValue:
        try:
            return decode(self._directory, mode, filename, value)
        except RefusedRow as refused:
            raise self._refuse(f"key {key!r}", refused) from None
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"The value of {key} in {self._directory} cannot be read: {error}.") from error

    def _refuse(self, row: str, refused: RefusedRow) -> StoreError:
        return StoreError(
            f"{self._database.path}, row with {row}: refused, since {refused}. "
            "Somebody else wrote it: move the folder away, or delete the row."
        )

    async def claim(self, key: str) -> bool:
        """Ask to make the call for a key.

        Returns:
            True: this caller may make it, and must `settle` or `release`. False: a living owner holds the claim, in
            this process or another; `wait` for it. A cancelled claim is given back.

        Raises:
            StoreFullError: The claim cannot be stored, and so could no reply.
        """
        self._check_process()
        with self._guard:
            if key in self._claimed:
                return False
            self._claimed.add(key)
        try:
            won = self._writer.submit(partial(self._claim, key=key))
        except StoreError:
            self._claimed.discard(key)
            raise
        won.add_done_callback(partial(self._forget_if_lost, key))
        try:
            return await _outcome(won)
        except asyncio.CancelledError:
            won.add_done_callback(partial(self._give_back_if_won, key))
            raise

    def _claim(self, cache: Cache, key: str) -> bool:
        try:
            present = cache.get(CLAIM + key)
        except (ValueError, RefusedRow):  # it protects nobody
            present = None
        # One of our own is a leftover: `_claimed` keeps two callers of this process apart.
        if present is not None and not self._owners.is_mine(present) and self._owners.is_alive(present):
            return False
        cache.set(CLAIM + key, self._owners.claim())
        return True

    def _forget_if_lost(self, key: str, won: Future[bool]) -> None:
        if won.exception() is not None or not won.result():
            self._claimed.discard(key)

    def _give_back_if_won(self, key: str, won: Future[bool]) -> None:
        if won.exception() is None and won.result():
            with suppress(StoreError):
                self._unclaim(key, {})

    async def settle(self, key: str, rows: Mapping[str, JsonValue]) -> None:
        """Store rows and delete the claim on a key, in one transaction. It goes on when the caller is cancelled.

        Raises:
            StoreFullError: The rows could not be stored after trying again for a moment. The claim stays.
        """
        self._check_process()
        await _outcome(self._unclaim(key, rows))

    async def release(self, key: str) -> None:
        """Give a claim back without a reply; nothing happens where this process holds none.

        A disk that fails is no error here: the claim then ends with the process at the latest.
        """
        self._check_process()
        if key in self._claimed:
            with suppress(StoreFullError):
                await _outcome(self._unclaim(key, {}))

    def _unclaim(self, key: str, rows: Mapping[str, JsonValue]) -> Future[None]:
        def run(cache: Cache) -> None:
            _set(cache, rows)
            cache.delete(CLAIM + key)

        def forget(done: Future[None]) -> None:
            if done.exception() is None or not rows:
                self._claimed.discard(key)

        done = self._writer.submit(run)
        done.add_done_callback(forget)
        return done

    async def wait(self, key: str) -> None:
        """Return when the claim on a key is gone, or its owner dead. Then look, and claim again."""
        self._check_process()
        await self._watcher.wait(key)

    async def put(self, rows: Mapping[str, JsonValue]) -> None:
        """Store rows in one transaction.

        Raises:
            StoreFullError: They could not be stored after trying again for a moment.
        """
        self._check_process()
        await _outcome(self._writer.submit(partial(_set, rows=rows)))

    async def add(self, key: str, amount: int, ceiling: int | None = None) -> bool:
        """Add to a counter that all processes share; it begins at 0, and `get` reads it.

        Returns:
            Whether it was added: false where the sum would pass the ceiling.

        Raises:
            StoreFullError: It could not be stored after trying again for a moment.
        """
        self._check_process()

        def run(cache: Cache) -> bool:
            total = cache.get(key, 0) + amount
            if ceiling is not None and total > ceiling:
                return False
            cache.set(key, total)
            return True

        return await _outcome(self._writer.submit(run))

    def stats(self) -> Stats:
        """Count the entries, without claims, and the claims of living owners."""
        self._check_process()
        ((entries, oldest, newest, beside),) = self._reader.query(
            f"SELECT COUNT(*), MIN(store_time), MAX(store_time), TOTAL(size) FROM Cache WHERE NOT ({IS_CLAIM})"  # noqa: S608
        )
        ((size,),) = self._reader.query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        claims = self._reader.query(f"SELECT value FROM Cache WHERE {IS_CLAIM}")  # noqa: S608
        alive = sum(self._owners.is_alive(_loads(claim)) for (claim,) in claims)
        return Stats(entries=entries, bytes=int(size + beside), oldest=oldest, newest=newest, claims=alive)

    def entries(self) -> Iterator[tuple[str, JsonValue]]:
        """Give every row but the claims, oldest first as far as they were never overwritten.

        Raises:
            StoreError: A key or a value is a pickle.
        """
        self._check_process()
        after = -1
        while rows := self._reader.query(
            "SELECT rowid, key, raw, mode, filename, value FROM Cache WHERE rowid > ? ORDER BY rowid LIMIT 100",
            (after,),
        ):
            for after, key, raw, mode, filename, value in rows:
                if not raw:
                    raise self._refuse(f"rowid {after}", RefusedRow("its key is a pickle, which could run any code"))
                name = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
                if name.startswith(CLAIM):
                    continue
                try:
                    entry = self._decode(name, mode, filename, value)
                except (FileNotFoundError, ValueError):  # what counts as missing
                    continue
                yield name, entry

    def spill(self, rows: Mapping[str, JsonValue]) -> Path:
        """Save rows that could not be stored, outside the full disk if possible, for `import_spilled`.

        Returns:
            A file of JSON Lines that only its owner can read.

        Raises:
            StoreFullError: No folder can be written.
        """
        text = "".join(to_json({"key": key, "value": value}) + "\n" for key, value in rows.items())
        errors = []
        for folder in self._shelters():
            try:
                return _write_private(folder, text)
            except OSError as error:
                errors.append(str(error))
        raise StoreFullError(
            f"{len(rows)} replies cannot be saved anywhere: {'; '.join(errors)}. Free some disk space."
        )

    def _shelters(self) -> list[Path]:
        """Folders for spilled rows, those on other disks first."""
        folders = [Path(os.environ.get("TMPDIR", "/tmp")), Path("/var/tmp"), Path("/dev/shm")]  # noqa: S108
        present = [folder for folder in folders if folder.is_dir()]
        disk = self._directory.parent.stat().st_dev
        return [*sorted(present, key=lambda folder: folder.stat().st_dev == disk), self._directory.parent]

    def import_spilled(self, path: Path) -> int:
        """Store the rows of a spilled file; a row that is present already stays as it is.

        Returns:
            The number of rows stored.

        Raises:
            StoreError: A line is not what `spill` writes.
            StoreFullError: They cannot be stored.
            OSError: The file cannot be read.
        """
        self._check_process()
        rows: dict[str, JsonValue] = {}
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                match _loads(line):
                    case {"key": str(key), "value": value}:
                        rows[key] = value
                    case _:
                        raise StoreError(f'{path}:{number}: not {{"key": ..., "value": ...}}. Name a spilled file.')
        return self._writer.submit(partial(_add_missing, rows=rows)).result()

    def import_from(self, other: ReplyStore) -> int:
        """Store the rows of another store; a row that is present already stays as it is.

        Returns:
            The number of rows stored.

        Raises:
            StoreError: The other store holds what this package did not write.
            StoreFullError: They cannot be stored.
        """
        self._check_process()
        count, entries = 0, other.entries()
        while rows := dict(islice(entries, 100)):  # a large cache does not fit into memory
            count += self._writer.submit(partial(_add_missing, rows=rows)).result()
        return count

    def close(self) -> None:
        """Write what is queued, give back the claims, and close everything. A second call does nothing."""
        if os.getpid() != self._process:
            return  # a child made by fork: all of this belongs to its parent
        with suppress(StoreError):
            for key in tuple(self._claimed):
                self._unclaim(key, {})
        self._watcher.close()
        self._writer.close()
        self._reader.close()
        self._owners.close()

    def _renew_claims(self, cache: Cache) -> None:
        """Make the claims in the file agree with this process: in a mended one some are lost, some long given back."""
        self._owners.renew()
        with closing(self._database.connect()) as connection, cache.transact():
            for key, value in connection.execute(f"SELECT key, value FROM Cache WHERE {IS_CLAIM}").fetchall():  # noqa: S608
                if self._owners.is_mine(_loads(value)):
                    cache.delete(key.decode("utf-8", "replace"))
            for key in tuple(self._claimed):
                cache.add(CLAIM + key, self._owners.claim())

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                "The reply cache was opened before this process was forked. Open it anew in the child, "
                "or start the child with the 'spawn' method."
            )


async def _outcome(done: Future[T]) -> T:
    # Shielded: what is queued is written, also when the caller is cancelled.
    return await asyncio.shield(asyncio.wrap_future(done))


def _set(cache: Cache, rows: Mapping[str, JsonValue]) -> None:
    for key, value in rows.items():
        cache.set(key, value)


def _add_missing(cache: Cache, rows: Mapping[str, JsonValue]) -> int:
    return sum(cache.add(key, value) for key, value in rows.items())


def _loads(text: str | bytes) -> JsonValue:
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except ValueError:
        return None


def _write_private(folder: Path, text: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="rubrics-replies-", suffix=".jsonl", dir=folder)
    path = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path
