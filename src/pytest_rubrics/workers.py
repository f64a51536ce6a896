"""The workers of a run under pytest-xdist: their seats, and the sign by which they see that the run goes on."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_rubrics.calls import locks


@dataclass(slots=True)
class Workers:
    """What the controller keeps of its workers.

    The sign is a locked file in the folder for temporary files. The kernel gives the lock up when the controller dies,
    however it dies, and `stop` does so when the run is stopped.

    Attributes:
        sign: The locked file.
    """

    sign: Path = field(init=False)
    _lock: int | None = field(init=False)
    _seats: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="rubrics-run-", delete=False) as file:
            self.sign = Path(file.name)
        self._lock = locks.acquire(self.sign)

    def sit(self, worker: str) -> int:
        """The lowest free seat, counted from 0: a worker that replaces a crashed one takes its share of the slots."""
        taken = set(self._seats.values())
        self._seats[worker] = next(number for number in range(len(taken) + 1) if number not in taken)
        return self._seats[worker]

    def leave(self, worker: str) -> None:
        """Free the seat of a worker that is gone."""
        self._seats.pop(worker, None)

    def stop(self) -> None:
        """Let all workers see that nothing more is to be launched."""
        if self._lock is not None:
            with suppress(OSError):
                self.sign.unlink()
            locks.release(self._lock)
            self._lock = None


def goes_on(sign: Path) -> bool:
    """Whether the controller lives and has not stopped the run."""
    try:
        lock = locks.acquire(sign, create=False, wait=False)
    except FileNotFoundError:
        return False
    if lock is None:
        return True
    sign.unlink(missing_ok=True)  # of a controller that was killed
    locks.release(lock)
    return False
