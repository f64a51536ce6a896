"""Claims: who may make a call, and waiting for the one who does.

A claim is a row that names its owner's lock file. The kernel holds the lock as long as the process lives, so whoever
can lock the file knows that the owner is dead; a process id could be a zombie's or used again.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Container, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pytest_rubrics.calls import locks
from pytest_rubrics.calls.database import CLAIM, IS_CLAIM, Database, Reader, StoreError

if TYPE_CHECKING:
    from pydantic import JsonValue

FOREIGN_CLAIM = 2 * 3600  # seconds that a claim from another host counts, since its owner's lock cannot be seen here
LOOK_EVERY = 0.03  # seconds between two looks for a change
KNOCK_EVERY = 1.0  # seconds between two looks whether the owners live


class Owners:
    """The processes that may hold claims, this one among them.

    Opening locks this process's file and removes those that dead processes of this host have left. Nobody else may be
    doing the same at that moment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = socket.gethostname()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._enter()
        for path in folder.glob("*.lock"):
            with suppress(FileNotFoundError):
                if path.read_text(encoding="utf-8", errors="replace") == self._host:
                    self._is_locked(path, bury=True)

    def _enter(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._name = uuid4().hex
        self._descriptor = locks.acquire(self._path(self._name))
        try:
            self._path(self._name).write_text(self._host, encoding="utf-8")
        except OSError:
            self.close()
            raise

    def renew(self) -> None:
        """Lock a new file when somebody has removed this process's, with which its claims count for nothing."""
        if not self._path(self._name).exists():
            self.close()
            self._enter()

    def claim(self) -> dict[str, JsonValue]:
        """The value of a claim of this process, from now on."""
        until = time.time() + FOREIGN_CLAIM
        return {"owner": self._name, "host": self._host, "started": self._started, "until": until}

    def is_mine(self, claim: JsonValue) -> bool:
        """Whether a claim is this process's."""
        return isinstance(claim, dict) and claim.get("owner") == self._name

    def is_alive(self, claim: JsonValue) -> bool:
        """Whether a claim is to be respected. A dead owner's lock file is removed on the way."""
        match claim:
            case {"owner": str(name), "host": str(host), "until": int() | float() as until} if re.fullmatch(
                "[0-9a-f]{32}", name
            ):
                if name == self._name or self._is_locked(self._path(name), bury=host == self._host):
                    return True
                return host != self._host and time.time() < until
        return False

    def close(self) -> None:
        """Give the lock up: from now on this process counts as dead."""
        if self._descriptor is not None:
            self._path(self._name).unlink(missing_ok=True)
            locks.release(self._descriptor)
            self._descriptor = None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    @staticmethod
    def _is_locked(path: Path, *, bury: bool) -> bool:
        try:
            descriptor = locks.acquire(path, create=False, wait=False)
        except FileNotFoundError:
            return False
        if descriptor is None:
            return True
        if bury:
            path.unlink(missing_ok=True)
        locks.release(descriptor)
        return False


class Watcher:
    """Waits for claims to go, with one thread for all waiters, and none while nobody waits.

    Args:
        database: Where the claims are.
        owners: Who lives.
        held: Keys that this process holds or is about to hold. A claim leaves the file a moment before it leaves
            them, and whoever was woken in between could not claim.
    """

    def __init__(self, database: Database, owners: Owners, held: Container[str]) -> None:
        self._database = database
        self._owners = owners
        self._held = held
        self._guard = threading.Lock()
        self._waiters: dict[asyncio.Future[None], str] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    async def wait(self, key: str) -> None:
        """Return when nobody living holds the claim on a key, or the watcher is closed."""
        future = asyncio.get_running_loop().create_future()
        with self._guard:
            self._waiters[future] = key
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="rubrics-claims", daemon=True)
                self._thread.start()
        try:
            await future
        finally:
            with self._guard:
                self._waiters.pop(future, None)

    def close(self) -> None:
        """Wake all waiters and end the thread."""
        self._closing.set()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _watch(self) -> None:
        reader = Reader(self._database)
        signed_off = False
        try:
            signed_off = self._look_until_idle(reader)
        except (StoreError, OSError):
            time.sleep(LOOK_EVERY)  # whoever waits meets the error itself when it claims again
        finally:
            reader.close()
            if not signed_off:
                with self._guard:
                    self._thread = None
                    _wake(self._waiters)

    def _look_until_idle(self, reader: Reader) -> bool:
        """Wake waiters until there are none; false when the watcher was closed before."""
        seen: object = None
        known: set[asyncio.Future[None]] = set()
        knock_at = time.monotonic() + KNOCK_EVERY
        while not self._closing.is_set():
            with self._guard:
                waiters = dict(self._waiters)
                if not waiters:
                    self._thread = None
                    return True
            now, version = time.monotonic(), reader.version()
            if version != seen or now >= knock_at or waiters.keys() - known:
                claims = _claims(reader)
                if now >= knock_at:
                    claims = {key: claim for key, claim in claims.items() if self._owners.is_alive(claim)}
                    knock_at = now + KNOCK_EVERY
                gone = {future for future, key in waiters.items() if key not in claims}
                still_held = {future for future in gone if waiters[future] in self._held}
                _wake(gone - still_held)
                seen, known = version, waiters.keys() - still_held
            self._closing.wait(LOOK_EVERY)
        return False


def _claims(reader: Reader) -> dict[str, JsonValue]:
    """The open claims by key; one that cannot be read protects nobody."""
    claims: dict[str, JsonValue] = {}
    for key, value in reader.query(f"SELECT key, value FROM Cache WHERE {IS_CLAIM}"):  # noqa: S608
        with suppress(ValueError, TypeError):
            claims[key.decode("utf-8").removeprefix(CLAIM)] = json.loads(value)
    return claims


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
