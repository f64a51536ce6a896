"""The pace of an endpoint, kept by all processes of this machine together in one small file.

The file is read and written under a lock of the kernel, which a killed process loses. Nothing waits for it for long: a
file that cannot be used, or that another process does not give back, only means that this process paces itself.
"""

from __future__ import annotations

import fcntl
import math
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

from pytest_rubrics.calls.errors import ProviderError
from pytest_rubrics.calls.pace import SAFETY, Meter, Schedule
from pytest_rubrics.calls.rate_headers import allowance, is_about_tokens

PATIENCE = 0.05  # seconds that the lock is waited for
UNKNOWN_TOKENS = 1_000.0  # of a call, while no reply has said how many

_METER = [field.name for field in fields(Meter)]
_OWN = [field.name for field in fields(Schedule) if field.name not in {"calls", "tokens"}]
_values_of_meter = attrgetter(*_METER)
_own_values = attrgetter(*_OWN)
_ROW = struct.Struct(f"<8s{2 * len(_METER) + len(_OWN)}d")
_SUM = struct.Struct("<I")
_NAME = b"pace-02\n"


class Pacer:
    """Says when a call may start, and learns from what the provider answers.

    Args:
        path: The file, or None for this process alone.
        rpm: Calls per minute that the user permits, or None.
        tpm: Tokens per minute that the user permits, or None.
        clock: Seconds that pass for all processes of the machine alike.
    """

    def __init__(
        self,
        path: Path | None = None,
        rpm: float | None = None,
        tpm: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._stated = tuple(math.inf if limit is None else SAFETY * limit / 60 for limit in (rpm, tpm))
        self._own = Schedule()
        self._unsettled: list[tuple[float, float]] = []  # start of a call, and tokens beyond the guess
        self._descriptor: int | None = None
        self._tokens = 0.0
        self.counts_tokens = tpm is not None

    def typical_tokens(self, guess: float | None = None) -> float:
        """Tokens of a call: what the last ones used, else a guess."""
        return self._tokens or guess or UNKNOWN_TOKENS

    def learn(self, used: float) -> None:
        """A call used so many tokens; 0 where the provider does not say."""
        if used:
            self._tokens += (used - self._tokens) / 8 if self._tokens else used

    def wait(self) -> float:
        """Seconds until a call may start, as far as is known now; 0 if it may."""
        schedule = self._read()
        return max(0.0, max(schedule.resume, schedule.calls.ready, schedule.tokens.ready) - self._clock())

    def take(self, tokens: float, *, alone: bool) -> bool:
        """Start a call if it may.

        Args:
            tokens: How many it will use, as far as one can tell.
            alone: Whether this process has no other call in flight.
        """
        with self._changing() as schedule:
            return schedule.take(self._clock(), tokens, self._limits, alone=alone) == 0

    def give_back(self, tokens: float) -> None:
        """A call did not start after all."""
        with self._changing() as schedule:
            schedule.give_back(tokens, self._limits)

    def answered(self, started: float, tokens: float, used: float, headers: Mapping[str, str]) -> None:
        """A call was answered.

        Args:
            started: When it started, by the monotonic clock.
            tokens: How many tokens it was thought to use.
            used: How many it used; 0 where the provider does not say.
            headers: Headers of the response.
        """
        self.learn(used)
        if used:
            self._unsettled.append((started, used - tokens))
            if self.counts_tokens or self._own.tokens.is_paced:  # else the next call will do
                with self._changing():
                    pass
        for by_tokens in (False, True):
            left = allowance(headers, by_tokens=by_tokens)
            if not left:
                continue
            amount = self.typical_tokens() if by_tokens else 1.0
            known = self._read()
            if (known.tokens if by_tokens else known.calls).is_news(left, amount):
                with self._changing() as schedule:
                    schedule.answered(self._clock(), started, left, amount, by_tokens=by_tokens)

    def refused(self, started: float, tokens: float, error: ProviderError) -> float:
        """A call was refused for now.

        Args:
            started: When it started, by the monotonic clock.
            tokens: How many tokens it was thought to use.
            error: The refusal.

        Returns:
            Seconds until calls start again.
        """
        by_tokens = is_about_tokens(error.headers, str(error), tokens)
        left = allowance(error.headers, by_tokens=by_tokens)
        with self._changing() as schedule:
            return schedule.refused(self._clock(), started, tokens, error.retry_after, left, by_tokens=by_tokens)

    @property
    def _limits(self) -> tuple[float, float]:
        calls, tokens = self._stated
        return calls, tokens

    @contextmanager
    def _changing(self) -> Iterator[Schedule]:
        descriptor = self._open()
        if descriptor is None:
            self._settle(self._own)
            yield self._own
            return
        locked = _lock(descriptor)
        try:
            schedule = self._read()
            self._settle(schedule)
            yield schedule
            self._write(descriptor, schedule)
        finally:
            if locked:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _settle(self, schedule: Schedule) -> None:
        for started, difference in self._unsettled:
            schedule.settle(started, difference, self._limits)
        self._unsettled.clear()

    def _open(self) -> int | None:
        if self._descriptor is None and self._path is not None:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError:
                self._path = None
        return self._descriptor

    def _read(self) -> Schedule:
        if self._descriptor is None:
            return self._own
        try:
            self._own = _unpacked(os.pread(self._descriptor, _ROW.size + _SUM.size, 0))
        except OSError:
            self._give_up()
        return self._own

    def _write(self, descriptor: int, schedule: Schedule) -> None:
        self._own = schedule
        try:
            os.pwrite(descriptor, _packed(schedule), 0)
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        self._path = None
        self.close()

    def close(self) -> None:
        """Close the file; it is opened anew when it is needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int) -> bool:
    end = 0.0
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            now = time.monotonic()
            end = end or now + PATIENCE
            if now > end:  # its holder was stopped; a call too many is better than none
                return False
            time.sleep(0.0002)
        except OSError:
            return False


def _packed(schedule: Schedule) -> bytes:
    row = _ROW.pack(
        _NAME, *_values_of_meter(schedule.calls), *_values_of_meter(schedule.tokens), *_own_values(schedule)
    )
    return row + _SUM.pack(zlib.crc32(row))


def _unpacked(data: bytes) -> Schedule:
    """The schedule in a file; a fresh one where the file is new, damaged or of another version."""
    row = data[: _ROW.size]
    if len(data) != _ROW.size + _SUM.size or _SUM.unpack(data[_ROW.size :])[0] != zlib.crc32(row):
        return Schedule()
    name, *values = _ROW.unpack(row)
    if name != _NAME:
        return Schedule()
    size = len(_METER)
    return Schedule(Meter(*values[:size]), Meter(*values[size : 2 * size]), *values[2 * size :])
