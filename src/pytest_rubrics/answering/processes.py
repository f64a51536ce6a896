"""One command on this machine: a time limit, output capped while it is read, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import re
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_rubrics.answering.shortening import CappedBytes

CHUNK = 65_536
INFO_FD = "{info-fd}"  # among the arguments: stands for a descriptor on which bubblewrap names its innermost process
LONGEST_DEATH = 5.0  # seconds to wait for the end of a sandbox
GROUP_DEATH = 0.2  # seconds to wait for a process group; what init has not collected yet counts as alive
LONGEST_STOP = 30.0  # seconds to wait for a container to be stopped
LOOK_EVERY = 0.1  # seconds between two looks whether the command has ended while a child keeps its output open


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    Attributes:
        output: Standard output and standard error in the order they came, perhaps with a gap.
        code: Exit code, negative for a signal; None where the time limit ended it.
        seconds: How long it ran.
        errors: Standard error, where it was kept apart.
    """

    output: str
    code: int | None
    seconds: float
    errors: str = ""


@dataclass(slots=True)
class Command:
    """A command to run once.

    Attributes:
        argv: Program and arguments.
        env: Its whole environment.
        cwd: Where it starts.
        timeout: Seconds until it and its process group are killed.
        output_bytes: Bytes of output to keep.
        stop: A command that ends what killing the process group does not reach, such as a container.
        stdin: A file that it reads as its standard input; nothing if None.
        apart: Whether its standard error is kept apart from its output.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    timeout: float
    output_bytes: int
    stop: Sequence[str] | None = None
    stdin: Path | None = None
    apart: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    async def run(self, pool: Executor) -> Finished:
        """Run it in a thread of a pool; a cancelled caller kills it.

        Raises:
            OSError: It cannot be started.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, self._run)
        except asyncio.CancelledError:
            self._cancelled.set()
            raise

    def _run(self) -> Finished:
        started = time.perf_counter()
        output, errors = CappedBytes(self.output_bytes), CappedBytes(self.output_bytes)
        info, reported = os.pipe()
        # The parent-death signal of a sandbox belongs to the thread that starts it: this one, which waits for its end.
        try:
            with (self.stdin or Path(os.devnull)).open("rb") as source:
                process = subprocess.Popen(  # noqa: S603 - to run what a model writes is the purpose; a sandbox holds it
                    [str(reported) if argument == INFO_FD else argument for argument in self.argv],
                    env=self.env,
                    cwd=self.cwd,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE if self.apart else subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(reported,) if INFO_FD in self.argv else (),
                )
        except BaseException:
            os.close(info)
            raise
        finally:
            os.close(reported)
        with process, _reported(info) as inner:
            streams = [(process.stdout, output), (process.stderr, errors)]
            kept = {stream.fileno(): capped for stream, capped in streams if stream is not None}
            for descriptor in kept:
                os.set_blocking(descriptor, False)
            try:
                in_time = self._read(process, kept, started + self.timeout)
            finally:
                self._kill(process, inner)
            for descriptor, capped in kept.items():
                _drain(descriptor, capped)
        code = process.returncode if in_time else None
        return Finished(output.text(), code, time.perf_counter() - started, errors.text())

    def _read(self, process: subprocess.Popen[bytes], kept: Mapping[int, CappedBytes], deadline: float) -> bool:
        """Read until the command has ended; false where it did not in time."""
        with selectors.DefaultSelector() as selector:
            for descriptor in kept:
                selector.register(descriptor, selectors.EVENT_READ)
            while (left := deadline - time.perf_counter()) > 0 and not self._cancelled.is_set():
                if not selector.get_map():  # the end of the output comes just before that of the command
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(min(left, LOOK_EVERY))
                for key, _ in selector.select(min(left, LOOK_EVERY)) if selector.get_map() else ():
                    chunk = os.read(key.fd, CHUNK)
                    kept[key.fd].add(chunk)
                    if not chunk:
                        selector.unregister(key.fd)
                if process.poll() is not None:
                    return True
        return False

    def _kill(self, process: subprocess.Popen[bytes], inner: int | None) -> None:
        """End all that is left, also after a regular end, and wait until it is gone."""
        running = process.poll() is None
        if inner is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(inner, signal.SIGKILL)
            select.select([inner], [], [], LONGEST_DEATH)
        _kill_group(process)
        if running and self.stop is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(  # noqa: S603 - our own words
                    self.stop, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST_STOP
                )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + GROUP_DEATH
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:  # until nobody is left to get the signal
            os.killpg(process.pid, signal.SIGKILL)
            process.poll()
            time.sleep(0.001)


@contextmanager
def _reported(info: int) -> Iterator[int | None]:
    """A handle of the process that a sandbox reports as its innermost: with it all others in there end."""
    with open(info, "rb") as file:
        pid = re.search(rb'"child-pid": *(\d+)', file.read())
    handle = None
    if pid is not None and sys.platform == "linux":
        with suppress(OSError):
            handle = os.pidfd_open(int(pid[1]))
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _drain(descriptor: int, output: CappedBytes) -> None:
    """Take what is still in the pipe, without waiting for more."""
    with suppress(BlockingIOError):
        while chunk := os.read(descriptor, CHUNK):
            output.add(chunk)
