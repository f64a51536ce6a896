"""The one thread of a process that writes into the store of replies."""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import diskcache  # type: ignore[import-untyped]

from pytest_rubrics.calls.database import Cache, Database, Identity, StoreError, StoreFullError, is_damage

T = TypeVar("T")

PATIENCE = 2.0  # seconds of trying again before a failing disk is reported
RETRY_EVERY = 0.1
LARGEST_BATCH = 256


@dataclass(slots=True)
class _Job(Generic[T]):
    run: Callable[[Cache], T]
    done: Future[T] = field(default_factory=Future)


class Writer:
    """Runs jobs inside transactions, one after the other; what is queued at one moment shares a transaction.

    Args:
        database: Where to write.
        on_open: Called with the cache when its file was opened, at first and when another took its place.
    """

    def __init__(self, database: Database, on_open: Callable[[Cache], None]) -> None:
        self._database = database
        self._on_open = on_open
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._cache: Cache | None = None
        self._identity: Identity | None = None
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._serve, name="rubrics-replies", daemon=True)
        self._thread.start()

    def submit(self, run: Callable[[Cache], T]) -> Future[T]:
        """Queue a job. It may run twice, when the first transaction was rolled back.

        Returns:
            Its result, once the transaction is committed. It fails with `StoreFullError` when the job could not be
            stored after trying again for a moment.

        Raises:
            StoreError: The writer is closed.
        """
        job = _Job(run)
        with self._gate:
            if self._closed:
                raise StoreError(f"The reply cache {self._database.path} is already closed.")
            self._jobs.put(job)
        return job.done

    def close(self) -> None:
        """Write what is queued, then end the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _serve(self) -> None:
        try:
            while jobs := self._next_jobs():
                self._perform(jobs)
        finally:
            self._drop()

    def _next_jobs(self) -> list[_Job[Any]]:
        """The jobs queued at this moment, at least one; none when the writer is closed."""
        jobs: list[_Job[Any]] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == LARGEST_BATCH:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs
        if jobs:
            self._jobs.put(None)  # nothing comes behind it: the end is met again after these jobs
        return jobs

    def _perform(self, jobs: Sequence[_Job[Any]]) -> None:
        if len(jobs) > 1:
            with suppress(Exception):  # one bad job must not spoil the others: each is tried alone
                self._finish(jobs, self._commit(jobs))
                return
        for job in jobs:
            self._perform_alone(job)

    def _perform_alone(self, job: _Job[Any]) -> None:
        while True:
            try:
                results = self._commit([job])
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the job
                cause = error.__context__ if isinstance(error, diskcache.Timeout) else error
                if isinstance(cause, sqlite3.Error | OSError):
                    if self._may_try_again(cause):
                        continue
                    error = self._full(cause)
                with suppress(InvalidStateError):
                    job.done.set_exception(error)
                return
            self._finish([job], results)
            return

    def _finish(self, jobs: Sequence[_Job[Any]], results: Sequence[object]) -> None:
        self._failing_since = None
        for job, result in zip(jobs, results, strict=True):
            with suppress(InvalidStateError):  # nobody waits for it any more
                job.done.set_result(result)

    def _commit(self, jobs: Sequence[_Job[Any]]) -> list[object]:
        with self._database.mutex:
            cache = self._open()
            try:
                with cache.transact():
                    results = [job.run(cache) for job in jobs]
            except BaseException:
                cache.close()  # a fresh connection follows, so no half-open transaction stays
                cache.disk.settle(committed=False)
                raise
            cache.disk.settle(committed=True)
            return results

    def _open(self) -> Cache:
        if self._cache is None or self._database.identity() != self._identity:
            self._drop()
            self._database.ensure()
            self._identity = self._database.identity()
            cache = Cache(self._database.directory)
            try:
                self._on_open(cache)
            except BaseException:
                cache.close()
                raise
            self._cache = cache
        return self._cache

    def _drop(self) -> None:
        if self._cache is not None:
            self._cache.close()
            self._cache = None

    def _may_try_again(self, cause: sqlite3.Error | OSError) -> bool:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > PATIENCE:
            return False
        if is_damage(cause):
            with suppress(Exception):  # met again at the next try
                self._database.mend(self._identity, cause)
        time.sleep(RETRY_EVERY)
        return True

    def _full(self, cause: sqlite3.Error | OSError) -> StoreFullError:
        error = StoreFullError(
            f"Replies cannot be stored in {self._database.path}: {cause}. "
            "Free space on that disk, or choose another folder with --cache-dir."
        )
        error.__cause__ = cause
        return error
