"""The tool ``bash``: shell commands in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.answering.processes import Finished
from pytest_rubrics.answering.sandbox import Box, Sandbox
from pytest_rubrics.answering.tools.tool import Definition, Observation

_DESCRIPTION = (
    "Run a command with bash and get its output. Each command starts a new shell in the working directory. Files "
    "there are kept from one command to the next; processes in the background are ended with their command. A command "
    "that runs too long is killed. {network}"
)
_NETWORK = {True: "The network can be used.", False: "There is no network."}
_PARAMETERS = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "The command."}},
    "required": ["command"],
    "additionalProperties": False,
}
_LOST = "The working directory was reset: files of earlier commands are gone."


@dataclass(frozen=True, slots=True)
class BashTool:
    """Shell commands.

    Attributes:
        sandbox: Where they run.
    """

    sandbox: Sandbox

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides the results."""
        return {"bash": self.sandbox.identity}

    async def check(self, folder: Path) -> None:
        """Try the sandbox; raises CallError where it does not work."""
        await self.sandbox.check(folder)

    def session(self, folder: Path) -> BashSession:
        """Begin an agent run with files in this folder."""
        return BashSession(self.sandbox, Box(folder))


@dataclass(frozen=True, slots=True)
class BashSession:
    """The shell of one agent run; its files stay in the box until the run is finished."""

    sandbox: Sandbox
    box: Box

    async def definitions(self) -> Sequence[Definition]:
        """The one tool."""
        return [Definition("bash", _DESCRIPTION.format(network=_NETWORK[self.sandbox.network]), _PARAMETERS)]

    def lost(self) -> str | None:
        """Whether the files of earlier commands are gone."""
        return None if self.box.exists() else _LOST

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Observation:
        """Run a command."""
        command = arguments.get("command")
        if set(arguments) != {"command"} or not isinstance(command, str):
            return Observation(
                'Expected {"command": "..."} as the arguments, one text and nothing else.', is_error=True
            )
        try:
            finished = await self.sandbox.run(command, self.box, seconds)
        except (OSError, ValueError) as error:  # too long for the system, or with a null character in it
            return Observation(f"The command could not be started: {error}", is_error=True)
        return Observation(_shown(finished, seconds), seconds=finished.seconds)

    async def close(self) -> None:
        """Nothing runs between two commands."""

    async def discard(self) -> None:
        """Delete the files."""
        await asyncio.to_thread(self.box.remove)


def _shown(finished: Finished, limit: float) -> str:
    output = finished.output.rstrip("\n")
    if finished.code is None:
        return f"{output}\n[killed after {limit:g} seconds]".lstrip("\n")
    if finished.code:
        return f"{output}\n[exit code {finished.code}]".lstrip("\n")
    return output or "[no output]"
