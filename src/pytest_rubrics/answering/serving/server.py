"""The server's process: it serves until its standard input ends, which happens when its guard ends or dies.

It runs as a script. The first line of standard input says what to serve. Standard output is for one line: the address,
when the server is ready.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PROMPT_CACHE = 1024  # MiB
FAREWELL = 5.0  # seconds for a command to end by itself


def main() -> None:
    """Serve what was ordered."""
    order = json.loads(sys.stdin.readline())
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the server prints belongs in the log

    def announce(address: str) -> None:
        print(address, file=answer, flush=True)

    if order["command"]:
        _run_command(order, announce)
    else:
        _run_llama(order, announce)


def _when_guard_ends(end: Callable[[], None]) -> None:
    def wait() -> None:
        sys.stdin.read()
        end()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _run_llama(order: dict[str, Any], announce: Callable[[str], None]) -> None:
    _when_guard_ends(lambda: None)  # nothing to save
    # Threads that spin while they wait for each other are ten times slower beside other work. Read at the import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = order["weights"]
    params.model_alias = {Path(order["weights"]).stem}  # what replies name as their model, instead of the path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [order["api_key"]]
    params.ui = False
    params.verbosity = 2  # errors and warnings
    params.use_jinja = True
    params.n_parallel = order["slots"]
    params.n_ctx = order["context"] * order["slots"]  # the slots share it
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = order["threads"]
        cpu.poll = 0  # the same for builds without OpenMP
    # States of earlier prompts, so that a slot gets the shared beginning of its next prompt (a judge's instructions, or
    # question and answer) without computing it. The default of 8 GiB is too much beside a test run.
    params.cache_ram_mib = PROMPT_CACHE
    if all(
        device["type"] == llama.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU for device in llama.get_device_info()
    ):
        # On CPUs it halves the speed of output after a long prompt: 38 instead of 75 tokens per CPU second.
        params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = llama.Server(params)
    announce(server.listening_address)
    threading.Event().wait()


def _run_command(order: dict[str, Any], announce: Callable[[str], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    values = {"port": port, "api_key": order["api_key"], "context": order["context"], "slots": order["slots"]}
    words = [_fill(word, values) for word in order["command"]]
    try:
        command = subprocess.Popen(words, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - the user's own
    except OSError as error:
        sys.exit(f"serve.command: {words[0]} cannot be run: {error.strerror}. Install it, or correct the command.")
    _when_guard_ends(lambda: _end(command))
    while command.poll() is None and not _answers(port, order["ready"], order["api_key"]):
        time.sleep(0.1)
    if command.poll() is None:
        announce(f"http://127.0.0.1:{port}")
    code = command.wait()
    _signal_group(command, signal.SIGKILL)  # what it left behind
    sys.exit(code if code >= 0 else 128 - code)


def _fill(word: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


def _answers(port: int, path: str, api_key: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)  # no proxy comes between
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {api_key}"})
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(command: subprocess.Popen[bytes]) -> None:
    _signal_group(command, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        command.wait(FAREWELL)
    _signal_group(command, signal.SIGKILL)


def _signal_group(command: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(OSError):  # none left
        os.killpg(command.pid, number)


if __name__ == "__main__":
    main()
