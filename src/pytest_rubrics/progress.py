"""How far a run is: a live line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

LOG_EVERY = 60.0  # seconds between two lines in a log
LIVE_EVERY = 0.5  # seconds between two drawings of the live line


@dataclass(slots=True)
class Snapshot:
    """Counts of one process or of all.

    Attributes:
        answered, judged: Tasks that have an answer, and verdicts.
        in_flight: Calls on the wire.
        rate_limited: Replies of status 429 so far.
        spent_usd: What this run has paid so far.
    """

    answered: int = 0
    judged: int = 0
    in_flight: int = 0
    rate_limited: int = 0
    spent_usd: float = 0.0

    def to_plain(self) -> dict[str, float]:
        """As plain types, to travel with a test report."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class ProgressLine:
    """Writes the line.

    Attributes:
        total: Grades to make.
        live: Whether the output is a terminal on which the line can be drawn over.
        rewrite: Draws the live line.
        write: Writes a line of a log.
    """

    total: int
    live: bool
    rewrite: Callable[[str], None]
    write: Callable[[str], None]
    done: int = 0
    _snapshots: dict[str, Snapshot] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _last: float = field(default_factory=time.monotonic)

    def update(self, process: str, snapshot: Snapshot) -> None:
        """Take the latest counts of one process."""
        self._snapshots[process] = snapshot

    def update_plain(self, process: str, plain: Mapping[str, float]) -> None:
        """Take counts that travelled with a test report."""
        self.update(process, Snapshot(**plain))  # type: ignore[arg-type]

    def tick(self) -> None:
        """Write the line if it is time."""
        now = time.monotonic()
        if now - self._last < (LIVE_EVERY if self.live else LOG_EVERY):
            return
        self._last = now
        (self.rewrite if self.live else self.write)(self.text(now - self._began))

    def text(self, elapsed: float) -> str:
        """The line itself.

        Args:
            elapsed: Seconds since the run loop began.
        """
        counts = list(self._snapshots.values())
        left = self._left(elapsed)
        limited = sum(c.rate_limited for c in counts)
        # A terminal may be narrow: what matters most comes first.
        parts = [
            f"{self.done}/{self.total} done",
            f"{left} left" if left else "",
            f"${sum(c.spent_usd for c in counts):.2f} spent",
            f"{sum(c.in_flight for c in counts)} in flight",
            f"{limited} x 429" if limited else "",
            f"{max(self.done, sum(c.answered for c in counts))} answered",
            f"{sum(c.judged for c in counts)} judged",
        ]
        return ", ".join(filter(None, parts))

    def _left(self, elapsed: float) -> str:
        """Time left at the pace so far; nothing before one task in twenty is done."""
        finished = max(self.done, sum(c.judged for c in self._snapshots.values()))
        if finished == 0 or finished * 20 < self.total or finished >= self.total:
            return ""
        return duration(elapsed * (self.total - finished) / finished)


def duration(seconds: float) -> str:
    """A duration in words.

    >>> [duration(s) for s in (8, 200, 9000)]
    ['8 s', '3 min', '2 h 30 min']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
