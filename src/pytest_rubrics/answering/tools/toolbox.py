"""The tools of one agent run: found by name, and run no second time when the run is resumed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_rubrics.answering.journal import Journal, ToolRecord
from pytest_rubrics.answering.shortening import shorten
from pytest_rubrics.answering.steps import ToolCall
from pytest_rubrics.answering.tools.tool import Definition, Observation, ToolSession, ToolSource
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.redaction import redact

_INTERRUPTED = "This call was interrupted and is made again: it may have run before, in whole or in part."


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool on offer: its source, and its name there."""

    source: int
    name: str


@dataclass(slots=True)
class Toolbox:
    """The tools of one run, open for the length of a ``with`` block.

    Attributes:
        sources: The configured sources.
        folder: Where the run's files may lie.
        journal: Where results are kept.
        output_limit: Most characters of a result.
    """

    sources: Sequence[ToolSource]
    folder: Path
    journal: Journal
    output_limit: int
    definitions: list[Definition] = field(default_factory=list)
    _offers: dict[str, _Offer] = field(default_factory=dict)
    _sessions: list[ToolSession] = field(init=False)
    _resumed: set[int] = field(default_factory=set)  # sources of which stored results were used, and that have not run
    _running: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._sessions = [source.session(self.folder) for source in self.sources]

    async def __aenter__(self) -> Toolbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions:
            await session.close()

    async def load(self, row: str, *, anew: bool) -> None:
        """Learn which tools there are, from a stored row or else from the sources.

        Raises:
            CallError: A source cannot be asked.
        """
        stored = None if anew else self.journal.get(row)
        if not isinstance(stored, list):
            stored = await self._listed()
            await self.journal.put(row, stored)
        self.definitions, self._offers = [], {}
        for entry in stored:
            self.definitions.append(Definition(entry["name"], entry["description"], entry["parameters"]))
            self._offers[entry["name"]] = _Offer(entry["source"], entry["original"])

    async def _listed(self) -> list[dict[str, Any]]:
        if self.journal.gateway.mode == "offline":
            raise CallError("cache_miss", "the tools are not in the cache, and --cache-mode offline forbids to ask")
        entries: list[dict[str, Any]] = []
        taken: set[str] = set()
        for source, session in enumerate(self._sessions):
            for tool in await session.definitions():
                name = _free_name(tool.name, taken)
                taken.add(name)
                entries.append(
                    {
                        "name": name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                        "source": source,
                        "original": tool.name,
                    }
                )
        return entries

    async def check(self) -> None:
        """Make sure, before anything is paid for, that every source works.

        Raises:
            CallError: One does not.
        """
        for source in self.sources:
            await source.check(self.folder.parent)

    async def call(self, step: str, index: int, call: ToolCall, seconds: float) -> Observation:
        """Run a tool, or give what it gave before.

        Args:
            step: Key of the request whose reply asked for it.
            index: Place among the calls of that reply.
            call: The call.
            seconds: What it may take.

        Raises:
            CallError: It would have to run, and the cache mode is offline.
        """
        if call.arguments is None:
            return Observation(call.fault, is_error=True)
        offer = self._offers.get(call.name)
        if offer is None:
            known = ", ".join(self._offers) or "none"
            return Observation(f'There is no tool named "{call.name}". The tools: {known}.', is_error=True)
        source = self.sources[offer.source].identity
        record = ToolRecord.of(self.journal, step, index, offer.name, call.arguments, source)
        stored = record.result()
        if stored is not None:
            self._resumed.add(offer.source)
            return stored
        if self.journal.gateway.mode == "offline":
            raise CallError("cache_miss", "a tool's result is not in the cache, and --cache-mode offline runs no tool")
        notes = self._notes(offer.source, record)
        await record.begin()
        observation = await self._sessions[offer.source].call(offer.name, call.arguments, seconds)
        # A server may repeat its key; neither the model nor the cache must see it.
        seen = shorten(redact(observation.text), self.output_limit)
        text = "\n".join([*(f"[{note}]" for note in notes), seen])
        observation = replace(observation, text=text)
        # A cancelled run must not lose what a tool has done.
        await asyncio.shield(record.end(observation))
        return observation

    def _notes(self, source: int, record: ToolRecord) -> list[str]:
        """What the model has to know about a resumed run."""
        notes = []
        if source in self._resumed and source not in self._running:
            lost = self._sessions[source].lost()
            notes += [lost] if lost else []
        self._running.add(source)
        return [*notes, _INTERRUPTED] if record.is_begun else notes

    async def discard(self) -> None:
        """Delete what was kept for a resumed run."""
        for session in self._sessions:
            await session.discard()


def _free_name(name: str, taken: set[str]) -> str:
    """A name that providers accept and that no other tool has."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60] or "tool"
    number = 1
    while (free := plain if number == 1 else f"{plain}_{number}") in taken:
        number += 1
    return free


def identities(sources: Sequence[ToolSource]) -> list[Mapping[str, Any]]:
    """What decides the results of all sources."""
    return [source.identity for source in sources]
