"""The workers of a run under pytest-xdist: their seats, and the sign by which they see that the run goes on."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.calls import locks

if TYPE_CHECKING:
    from execnet import XSpec

EXECMODEL = "execmodel=main_thread_only//"  # xdist puts it before every spec
HERE = "popen"  # the host of workers that `-n` starts


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a whole that falls to some of its workers.

    Attributes:
        first: The first of these workers, counted from 0.
        last: The one after the last of them.
        total: All workers.
    """

    first: int
    last: int
    total: int

    def of(self, amount: int) -> range:
        """Numbers from 0 that are in this part; all parts together have each once.

        >>> [list(Part(n, n + 1, 3).of(5)) for n in range(3)]
        [[0], [1, 2], [3, 4]]
        """
        return range(amount * self.first // self.total, amount * self.last // self.total)

    @property
    def share(self) -> float:
        """How much of the whole it is."""
        return (self.last - self.first) / self.total


WHOLE = Part(0, 1, 1)


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a worker.

    Attributes:
        host: Whose cache it uses.
        number: Counted from 0 on its host.
        count: Workers of its host that call.
        part: What falls to its host.
    """

    host: str
    number: int
    count: int
    part: Part

    @property
    def calls(self) -> bool:
        """Whether it gets tasks and calls; others only run what is no task."""
        return self.number < self.count


def host_of(spec: XSpec) -> str:
    """The host of a worker's execnet spec: equal specs are one host, with one folder and one cache."""
    return str(spec.in_place_of or place_of(spec))


def place_of(spec: XSpec) -> str:
    """Where a worker really runs: elsewhere than on its host, once that has died."""
    return str(spec).removeprefix(EXECMODEL)


def is_elsewhere(spec: XSpec) -> bool:
    """Whether a worker may run on another machine, and so cannot see this one's files."""
    return not spec.popen or spec.via is not None


def callers_of(hosts: Iterable[str]) -> dict[str, int]:
    """How many workers of each host call.

    A worker has many calls in flight, so more of them than cores would only cost the import of LiteLLM in each.

    Args:
        hosts: The host of each worker.
    """
    counts = dict(Counter(hosts))
    if HERE in counts:
        counts[HERE] = min(counts[HERE], os.cpu_count() or 1)
    return counts


@dataclass(slots=True)
class Workers:
    """What the controller keeps of its workers.

    The sign is a locked file in the folder for temporary files. The kernel gives the lock up when the controller dies,
    however it dies, and `stop` does so when the run is stopped.

    Attributes:
        callers: Number of workers that call, of each host.
        seats: The seat of each worker.
        sign: The locked file.
    """

    callers: Mapping[str, int]
    seats: dict[str, Seat] = field(default_factory=dict)
    sign: Path = field(init=False)
    _lock: int | None = field(init=False)

    def __post_init__(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="rubrics-run-", delete=False) as file:
            self.sign = Path(file.name)
        self._lock = locks.acquire(self.sign)

    @property
    def parts(self) -> dict[str, Part]:
        """What falls to each host: as much as it has of the workers that call."""
        ends = list(accumulate(self.callers.values(), initial=0))
        return {host: Part(ends[n], ends[n + 1], ends[-1]) for n, host in enumerate(self.callers)}

    def sit(self, worker: str, host: str) -> Seat:
        """The lowest free seat of its host: a worker that replaces a crashed one takes its share of the slots."""
        taken = {seat.number for seat in self.seats.values() if seat.host == host}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self.seats[worker] = Seat(host, number, self.callers[host], self.parts[host])
        return self.seats[worker]

    def leave(self, worker: str) -> None:
        """Free the seat of a worker that is gone."""
        self.seats.pop(worker, None)

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
