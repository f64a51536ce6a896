"""What a tool is to an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as the model sees it.

    Attributes:
        name: Its name.
        description: What it does.
        parameters: JSON schema of its arguments, an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of a tool call.

    Attributes:
        text: What the model gets to see.
        is_error: Whether the call itself failed; a command that ends with an exit code has not.
        seconds: How long the tool ran.
    """

    text: str
    is_error: bool = False
    seconds: float = 0.0


class ToolSession(Protocol):
    """A source of tools in use by one agent run."""

    async def definitions(self) -> Sequence[Definition]:
        """The tools it has.

        Raises:
            CallError: It cannot be asked.
        """

    def lost(self) -> str | None:
        """What is gone that earlier calls of a resumed run had left, as a sentence for the model; else None."""

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Observation:
        """Run a tool, for so many seconds at most. What goes wrong is an observation too."""

    async def close(self) -> None:
        """End what the session has started."""

    async def discard(self) -> None:
        """Delete what it has kept for a resumed run: the run is finished."""


class ToolSource(Protocol):
    """A configured source of tools."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides the results of its tools, as plain JSON without secrets."""

    async def check(self, folder: Path) -> None:
        """Make sure, before anything is paid for, that it works on this machine.

        Raises:
            CallError: It does not; the text says what to do.
        """

    def session(self, folder: Path) -> ToolSession:
        """Begin an agent run whose files may lie in this folder, which need not exist."""
