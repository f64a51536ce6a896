"""Faults in what a user wrote: YAML files, options, data rows. All are gathered, then shown at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong and how to mend it.

    Attributes:
        file: The file, as the user would type it; or the option, such as ``--limit``.
        message: What was found and what was expected.
        line: Line in the file, counted from 1, where there is one.
        row: Row of a data file, counted from 1, where there is one.
        key: The YAML key or the field of the row, as a dotted path.
        fix: What to do, as one sentence.
    """

    file: str
    message: str
    line: int | None = None
    row: int | None = None
    key: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        place = self.file
        if self.line is not None:
            place += f":{self.line}"
        if self.row is not None:
            place += f", row {self.row}"
        if self.key:
            place += f", {self.key}"
        text = f"{place}: {self.message}"
        return f"{text} {self.fix}" if self.fix else text


class FaultsError(Exception):
    """Raised with every fault found, so that one run shows them all."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


@contextmanager
def gather(faults: list[Fault]) -> Iterator[None]:
    """Add the faults raised inside the block to a list, and go on."""
    try:
        yield
    except FaultsError as error:
        faults.extend(error.faults)
