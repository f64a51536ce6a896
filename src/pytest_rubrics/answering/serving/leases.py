"""Leases on a local server: a loopback connection to its guard, which the kernel closes at any death."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from pytest_rubrics.answering.serving import guard, weights
from pytest_rubrics.answering.serving.settings import ServeConfig, ServingError

GUARD_START = 60.0  # seconds until a new guard must listen
HELLO = 10.0  # seconds for a guard to answer; a stranger on its old port may never do


@dataclass(slots=True)
class Lease:
    """The right to use a server; it runs as long as anybody holds one.

    Attributes:
        api_base: Address of its OpenAI-compatible API.
        api_key: Its key, made for this run of the server.
    """

    api_base: str
    api_key: str = field(repr=False)
    _connection: socket.socket = field(repr=False)
    _log: Path = field(repr=False)

    def ended(self) -> str | None:
        """Why the server is gone, with the end of its log; None while it runs. Another lease starts it anew."""
        try:
            self._connection.setblocking(False)
            self._connection.recv(1, socket.MSG_PEEK)
            self._connection.settimeout(HELLO)
            said = _read_line(self._connection)
        except BlockingIOError:
            return None
        except OSError:
            said = {}
        return f"{said.get('error', 'the guard of the local server is gone.')}{_end_of(self._log)}"

    def close(self) -> None:
        """Give the lease back; may be called twice."""
        self._connection.close()


def lease(serve: ServeConfig, root: Path, directory: Path) -> Lease:
    """Join the server of a ``serve:`` block, or start it. Blocks until the server is ready.

    Args:
        serve: The block.
        root: What a relative path is relative to, and where a command runs.
        directory: Where the processes of a run find each other. Downloaded weights and the server's log are there too.

    Raises:
        ServingError: The server did not start. The next call tries again.
    """
    if os.name == "nt":
        raise ServingError("serve: starts servers on Linux and macOS only. Start one by hand and name it in api_base.")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    what = {**serve.model_dump(mode="json"), **weights.identity(serve, root, directory)}
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode("utf-8")).hexdigest()[:16]
    meeting, log = directory / f"{name}.json", directory / f"{name}.log"
    with FileLock(directory / f"{name}.lock"):
        connection = _join(meeting)
        if connection is None:
            _start_guard(_order(serve, root, directory), root, meeting, log)
            connection = _join(meeting)
    if connection is None:
        raise ServingError(f"the guard of the local server ended as it started.{_end_of(log)}")
    return _when_ready(connection, log)


def _order(serve: ServeConfig, root: Path, directory: Path) -> dict[str, Any]:
    """What the guard has to do."""
    server = serve.model_dump(include={"command", "ready", "context", "slots", "threads"})
    if serve.weights is not None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ServingError(
                f"serve.weights needs the package xllamacpp, which is not installed in {sys.prefix}. "
                "Run: pip install 'pytest-rubrics[local]'"
            )
        server["weights"] = str(weights.find(serve.weights, root, directory).resolve())
    server["api_key"] = secrets.token_hex(16)
    return {"token": secrets.token_hex(16), "start_timeout": serve.start_timeout, "server": server}


def _start_guard(order: dict[str, Any], root: Path, meeting: Path, log: Path) -> None:
    """Start a guard, and leave its port and token where the processes of the run look for them."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        started = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-P", guard.__file__, str(meeting)],  # the argument is for people who look at processes
            input=json.dumps({**order, "name": str(meeting)}).encode("utf-8"),
            stdout=subprocess.PIPE,
            stderr=descriptor,
            cwd=root,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
            timeout=GUARD_START,
            check=True,
        )
        port = int(started.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ServingError(f"the guard of the local server did not start: {error}.{_end_of(log)}") from error
    finally:
        os.close(descriptor)
    partial = meeting.with_name(f"{meeting.name}.part")  # under the lock, so that the name is ours alone
    partial.unlink(missing_ok=True)
    with open(partial, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump({"port": port, "token": order["token"]}, file)
    partial.replace(meeting)


def _join(meeting: Path) -> socket.socket | None:
    """A connection to the guard that left its port and token in a file; None if it is gone."""
    try:
        place = json.loads(meeting.read_text(encoding="utf-8"))
        token, nonce = str(place["token"]), secrets.token_hex(16)
        connection = socket.create_connection(("127.0.0.1", place["port"]), timeout=HELLO)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    try:
        hello = {"nonce": nonce, "proof": guard.proof(token, "lease", nonce)}
        connection.sendall(json.dumps(hello).encode() + b"\n")
        if hmac.compare_digest(str(_read_line(connection).get("proof")), guard.proof(token, "guard", nonce)):
            connection.settimeout(None)
            return connection
    except (OSError, TypeError):
        pass
    connection.close()
    return None


def _when_ready(connection: socket.socket, log: Path) -> Lease:
    """Wait for what the guard says of the server; the guard keeps the time."""
    try:
        said = _read_line(connection)
        if "api_base" in said:
            return Lease(said["api_base"], said["api_key"], connection, log)
    except BaseException:
        connection.close()
        raise
    connection.close()
    raise ServingError(f"{said.get('error', 'the guard of the local server is gone.')}{_end_of(log)}")


def _read_line(connection: socket.socket) -> dict[str, Any]:
    """One line of JSON, and no byte of the next one; empty where the connection ends or a stranger speaks."""
    text = b""
    while not text.endswith(b"\n") and len(text) < 10_000:
        block = connection.recv(1)
        if not block:
            break
        text += block
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _end_of(log: Path, lines: int = 20) -> str:
    try:
        text = log.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f" The end of {log}:\n" + "\n".join(text.splitlines()[-lines:]) if text else f" {log} is empty."
