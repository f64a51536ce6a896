"""Any program of the user's as a model: it is run once for each task, and what it writes is the report."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rubrics.answering.answer import Answer, read_answer
from pytest_rubrics.answering.processes import Command, Finished
from pytest_rubrics.answering.shortening import CappedBytes
from pytest_rubrics.calls.endpoint import Endpoint, Wire
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import Slots, Turn
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Request
from pytest_rubrics.redaction import redact
from pytest_rubrics.tasks import Task
from pytest_rubrics.variables import Secret, UnsetVariableError

if TYPE_CHECKING:
    from pytest_rubrics.config import CommandModel

# What a program gets of this process's environment.
BASE_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")

REPORT_BYTES = 8_000_000  # of a report that are kept: two million Chinese characters
SHOWN_ERRORS = 2_000  # characters of standard error in a record
CHUNK = 1_000_000

_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and how it is run.

    Attributes:
        name: Name of the model, for messages.
        command: Program and arguments, with places such as ``{task_file}``.
        env: Variables for it, beside a few of this process's; a secret is read when it is first run.
        timeout: Seconds for one task.
        root: Where it is started.
        slots: Programs at once, which is the number of threads that wait for them.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str | Secret]
    timeout: float
    root: Path
    slots: int
    _pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        pool = ThreadPoolExecutor(self.slots, thread_name_prefix="rubrics-program")
        object.__setattr__(self, "_pool", pool)

    async def send(self, request: Request) -> Reply:
        """Run it on the task that a request holds.

        Raises:
            CallError: It cannot be started; that is not the model's fault.
        """
        # A program that is ended may still be writing for a moment.
        with tempfile.TemporaryDirectory(prefix="rubrics-command-", ignore_cleanup_errors=True) as folder:
            report_file = Path(folder, "report.md")
            command = self._prepared(request.messages[0]["content"], Path(folder, "task.json"), report_file)
            try:
                finished = await command.run(self._pool)
            except OSError as error:
                raise CallError("error", f"{self.name}: the command cannot be started: {error}") from error
            return self._reply(finished, _contents(report_file) if self._writes_a_file else finished.output)

    @property
    def _writes_a_file(self) -> bool:
        return any("{report_file}" in part for part in self.command)

    def _prepared(self, task: str, task_file: Path, report_file: Path) -> Command:
        task_file.write_text(task, encoding="utf-8", errors="surrogatepass")
        values = {**json.loads(task), "task_file": task_file, "report_file": report_file}
        return Command(
            [_PLACE.sub(lambda place: str(values[place[1]]), part) for part in self.command],
            env=self._environment(),
            cwd=self.root,
            timeout=self.timeout,
            output_bytes=REPORT_BYTES,
            stdin=task_file,
            apart=True,
        )

    def _environment(self) -> dict[str, str]:
        base = {name: os.environ[name] for name in BASE_VARIABLES if name in os.environ}
        try:
            given = {name: value if isinstance(value, str) else value.resolve() for name, value in self.env.items()}
        except UnsetVariableError as error:
            raise CallError("authentication", str(error)) from error
        return base | given

    def _reply(self, finished: Finished, report: str) -> Reply:
        """Decide what the end of the program means; whatever is no report is the model's own failure."""
        reason = "stop"
        if finished.code is None:
            reason, error = "timeout", f"the command was ended after {self.timeout:g} s"
        elif finished.code != 0:
            reason, error = "command_failed", f"the command ended with exit code {finished.code}"
        elif not report.strip():
            reason, error = "no_report", f"the command wrote no report to its {self._output}"
        if reason == "stop":
            return Reply(redact(report), finish_reason=reason, seconds=finished.seconds, at=time.time())
        tail = finished.errors.strip()[-SHOWN_ERRORS:]
        error = redact(f"{error}; its standard error ends: {tail}" if tail else error)
        return Reply(malformed=error, finish_reason=reason, seconds=finished.seconds, at=time.time())

    @property
    def _output(self) -> str:
        return "report file" if self._writes_a_file else "standard output"


@dataclass(frozen=True, slots=True, repr=False)
class CommandAnswerer:
    """Answers tasks with a program; what it gave is stored and found again like any paid reply.

    Attributes:
        gateway: The way of every call.
        endpoint: The program as something that is called.
        identity: What decides its reports, apart from the task.
    """

    gateway: Gateway
    endpoint: Endpoint
    identity: Mapping[str, Any]

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The report on one task.

        Raises:
            CallError: The program could not be run.
        """
        message = {"role": "user", "content": task_text(task, repeat)}
        question = Request("command", self.identity, [message], repeat=repeat)
        opening = self.gateway.opening(question, anew=anew)
        request = question.again(opening.attempt)
        reply = await self.gateway.complete(request, self.endpoint, turn, opening)
        if reply.malformed is not None:
            return Answer(
                None,
                failure=reply.finish_reason,
                error=reply.malformed,
                finish_reason=reply.finish_reason,
                replies=(reply,),
                keys=(request.key(),),
            )
        return read_answer(reply, request.key())


def command_answerer(
    name: str, config: CommandModel, gateway: Gateway, slots: Sequence[Slots], root: Path
) -> CommandAnswerer:
    """A program as its file says.

    Args:
        name: Name of the model.
        config: Its file.
        gateway: The way of every call.
        slots: How many may run at once.
        root: The workspace, where it is started.
    """
    endpoint_variables: Mapping[str, str | Secret | None] = {
        "RUBRICS_MODEL": config.model,
        "OPENAI_BASE_URL": config.api_base,
        "OPENAI_API_KEY": config.api_key,
    }
    env = {name: value for name, value in endpoint_variables.items() if value is not None} | config.env
    identity = {
        "command": config.command,
        "env": sorted(config.env),
        "model": config.model,
        "api_base": config.api_base,
        "version": config.version,
    }
    program = Program(name, config.command, env, config.timeout, root, min(one.count for one in slots))
    endpoint = Endpoint(
        name=name,
        model="command",
        address=identity,
        connect=Wire,
        timeout=config.timeout,
        retry_for=0.0,
        slots=slots,
        send=program.send,
    )
    return CommandAnswerer(gateway, endpoint, identity)


def task_text(task: Task, repeat: int) -> str:
    """What a program is told of a task, as JSON; the criteria are none of its business."""
    told = {
        "benchmark": task.benchmark,
        "task_id": task.id,
        "key": task.key,
        "subset": task.subset,
        "language": task.language,
        "repeat": repeat,
        "prompt": task.prompt,
        "system_prompt": task.system_prompt,
    }
    return json.dumps(told, ensure_ascii=False, indent=1)


def _contents(path: Path) -> str:
    kept = CappedBytes(REPORT_BYTES)
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                kept.add(chunk)
    except OSError:  # it was never written, or is no file
        return ""
    return kept.text()
