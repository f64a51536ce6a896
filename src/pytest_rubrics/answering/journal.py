"""What an agent run leaves in the cache beside its replies, so that it can go on where it stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_rubrics.answering.tools.tool import Observation
from pytest_rubrics.calls.cache import StoreFullError
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway


def digest(value: Any) -> str:
    """SHA-256 over canonical JSON; 64 hex digits."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Journal:
    """Rows of agent runs.

    Attributes:
        gateway: Whose store holds them.
    """

    gateway: Gateway

    def get(self, key: str) -> Any:
        """A row, or None."""
        row = self.gateway.store.get(key)
        return self.gateway.unsaved.get(key) if row is None else row

    async def put(self, key: str, value: Any) -> None:
        """Store a row. When the disk is full the run starts nothing more, and the row is spilled at its end."""
        try:
            await self.gateway.store.put({key: value})
        except StoreFullError as error:
            self.gateway.unsaved[key] = value
            self.gateway.stop(CallError("error", str(error)))


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """The row of one tool call: that it was begun, and later what came of it.

    Attributes:
        journal: Where it is kept.
        key: Its key.
    """

    journal: Journal
    key: str

    @classmethod
    def of(
        cls, journal: Journal, step: str, index: int, tool: str, arguments: Mapping[str, Any], source: Mapping[str, Any]
    ) -> ToolRecord:
        """The record of a call.

        Args:
            journal: Where it is kept.
            step: Key of the request whose reply asked for it.
            index: Place among the calls of that reply.
            tool: Its name at the source.
            arguments: The arguments.
            source: What decides the results of the source.
        """
        return cls(journal, f"tool:{digest([step, index, tool, arguments, source])}")

    @property
    def is_begun(self) -> bool:
        """Whether the call was begun by somebody and has no result."""
        row = self.journal.get(self.key)
        return isinstance(row, dict) and "text" not in row

    def result(self) -> Observation | None:
        """What came of it, if it has ended."""
        row = self.journal.get(self.key)
        if isinstance(row, dict) and "text" in row:
            return Observation(row["text"], bool(row.get("is_error")), float(row.get("seconds", 0.0)))
        return None

    async def begin(self) -> None:
        """Note that the tool is about to run."""
        await self.journal.put(self.key, {"begun": time.time()})

    async def end(self, observation: Observation) -> None:
        """Note what came of it."""
        row = {"text": observation.text, "is_error": observation.is_error, "seconds": observation.seconds}
        await self.journal.put(self.key, {**row, "at": time.time()})
