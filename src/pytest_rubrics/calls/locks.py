"""File locks that the kernel drops when their process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

_descriptors: set[int] = set()


def _forget() -> None:
    # A child made by fork shares the lock with its parent and would keep it after the parent's death. Closing a
    # shared descriptor leaves the parent's lock alone; unlocking it would not.
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_forget)


def acquire(path: Path, *, create: bool = True, wait: bool = True) -> int | None:
    """Lock a file against every other descriptor, in this process too.

    Args:
        path: The lock file.
        create: Whether to create the file, readable by its owner only, where it is missing.
        wait: Whether to wait while another holds it.

    Returns:
        A descriptor for `release`, or None when another holds the lock and ``wait`` is false.

    Raises:
        FileNotFoundError: The file is missing and ``create`` is false, or its folder is missing.
        OSError: The file system cannot lock.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        _descriptors.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _names(path, descriptor):
                return descriptor
        except BlockingIOError:
            release(descriptor)
            return None
        except BaseException:
            release(descriptor)
            raise
        release(descriptor)  # somebody removed the file between opening and locking


def release(descriptor: int) -> None:
    """Give a lock back."""
    # Unlocked by name, since a child forked this very moment may still share the descriptor.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    _descriptors.discard(descriptor)
    os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


class Mutex:
    """Mutual exclusion between all threads of all processes that use one lock file. It is not reentrant.

    A missing folder is created with mode 0700, at first and when somebody removes it later.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = threading.Lock()
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            self._descriptor = self._acquire()
        except BaseException:
            self._threads.release()
            raise

    def _acquire(self) -> int | None:
        try:
            return acquire(self._path)
        except FileNotFoundError:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return acquire(self._path)

    def __exit__(self, *_: object) -> None:
        descriptor, self._descriptor = self._descriptor, None
        try:
            if descriptor is not None:
                release(descriptor)
        finally:
            self._threads.release()
