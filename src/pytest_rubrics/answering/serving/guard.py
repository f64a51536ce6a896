"""The guard: a small process that owns a local server for as long as somebody holds a lease.

It runs as a script and needs the standard library only, so that it starts at once and stays small.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

FIRST_LEASE = 20.0  # seconds for whoever started the guard to take the first lease
UNUSED = 1.0  # seconds without a lease until the server is ended
HELLO = 10.0  # seconds for a stranger to say who they are
FAREWELL = 10.0  # seconds for the server to end by itself


def proof(token: str, who: str, nonce: str) -> str:
    """What shows that somebody knows the token of a guard, without saying it: a stranger may have the guard's port."""
    return hmac.new(token.encode(), f"{who} {nonce}".encode(), hashlib.sha256).hexdigest()


class Guard:
    """Starts a server, tells everybody with a lease where it is, and ends it after the last lease.

    A lease is an open connection. The guard speaks in lines of JSON: first its proof, then ``api_base`` and ``api_key``
    when the server is ready, and ``error`` when it has ended.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._leases: set[asyncio.StreamWriter] = set()
        self._ready = b""
        self._unused = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None

    async def run(self, listener: socket.socket) -> None:
        """Guard until nobody needs the server, or it has ended."""
        self._expire_in(FIRST_LEASE)
        self._listening = await asyncio.start_server(self._attend, sock=listener)
        tasks = {asyncio.create_task(self._serve()), asyncio.create_task(self._unused.wait())}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._listening.close()  # who comes now finds nobody and starts another guard
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = json.loads(await asyncio.wait_for(reader.readline(), HELLO))
            nonce, token = str(hello["nonce"]), self._order["token"]
            if hmac.compare_digest(str(hello["proof"]), proof(token, "lease", nonce)) and self._listening.is_serving():
                await self._hold(reader, writer, proof(token, "guard", nonce))
        except (OSError, ValueError, KeyError, TypeError, TimeoutError):
            pass  # not one of ours, or gone already
        finally:
            writer.close()

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: str) -> None:
        self._leases.add(writer)
        if self._expiry is not None:
            self._expiry.cancel()
        try:
            writer.write(_line(proof=answer) + self._ready)
            await reader.read()  # until the lease is given back, or its process is gone
        finally:
            self._leases.discard(writer)
            if not self._leases:
                self._expire_in(UNUSED)

    def _expire_in(self, seconds: float) -> None:
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._unused.set)

    async def _serve(self) -> None:
        """Run the server; return when it has ended, or did not get ready."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(Path(__file__).with_name("server.py")), self._order["name"]),
            stdin=asyncio.subprocess.PIPE,  # closed by the kernel when the guard dies, which ends the server
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(_line(**self._order["server"]))
            seconds = self._order["start_timeout"]
            try:
                address = (await asyncio.wait_for(child.stdout.readline(), seconds)).decode().strip()
            except TimeoutError:
                self._say_end(f"was not ready within {seconds:g} s (serve.start_timeout)")
                return
            if address:
                self._ready = _line(api_base=f"{address}/v1", api_key=self._order["server"]["api_key"])
                self._tell(self._ready)
            code = await child.wait()
            self._say_end(f"ended with {_describe(code)}{'' if address else ' while it started'}")
        finally:
            child.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), FAREWELL)
            if child.returncode is None:
                child.kill()
                await child.wait()

    def _say_end(self, what: str) -> None:
        self._listening.close()  # first, so that whoever is told can start another guard at once
        print(f"guard: the server {what}", file=sys.stderr, flush=True)  # its log
        self._tell(_line(error=f"the local server {what}."))

    def _tell(self, line: bytes) -> None:
        for lease in self._leases:
            lease.write(line)


def _line(**values: Any) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}{' (out of memory?)' if code == -9 else ''}"
    return f"signal {-code}"


def main() -> None:
    """Read the order from standard input, print the port, go on in the background, and guard."""
    order = json.load(sys.stdin)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # whoever started it reads it
    if os.fork():
        os._exit(0)  # the guard outlives who started it, and is nobody's child to wait for
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)

    async def guard() -> None:
        await Guard(order).run(listener)
        os._exit(0)  # leases that are still held end with the process

    asyncio.run(guard())


if __name__ == "__main__":
    main()
