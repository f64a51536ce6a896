"""Two hosts on one machine: network namespaces, each with an SSH server of its own, a folder and a key."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

CONTROLLER = "10.231.1.1"  # where the hosts reach the controller
_TOOLS = ("ip", "ssh", "ssh-keygen", "/usr/sbin/sshd")


def why_not() -> str | None:
    """Why there can be no hosts here; None where there can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found (Debian: iproute2, openssh-client, openssh-server)"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    probe = f"rubrics-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, encoding="utf-8", check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _ip("netns", "delete", probe)
    return None


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace with an SSH server.

    Attributes:
        name: Its name, for ssh.
        folder: Its copy of the workspace.
        config: The configuration file for ssh.
        namespace: The name of its namespace.
        key: What stands in HOST_KEY in its environment, and nowhere else.
    """

    name: str
    folder: Path
    config: Path
    namespace: str
    key: str

    def tx(self, workers: int = 1) -> list[str]:
        """The option of pytest-xdist for so many workers on this host."""
        spec = f"ssh={self.name}//ssh_config={self.config}//python={sys.executable}//chdir={self.folder}"
        return ["--tx", f"{workers}*{spec}"]

    def die(self) -> None:
        """Kill every process of the host, as if its power was cut."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.namespace], capture_output=True, encoding="utf-8", check=True
        )
        for process in found.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)


@contextmanager
def two_hosts(folder: Path, workspace: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts, each with its own copy of a workspace, for the length of a block; there are no others meanwhile."""
    with FileLock(Path(tempfile.gettempdir()) / "rubrics-hosts.lock"), ExitStack() as stack:
        one, two = (stack.enter_context(_host(folder, workspace, number)) for number in (1, 2))
        yield one, two


@contextmanager
def _host(folder: Path, workspace: Path, number: int) -> Iterator[Host]:
    name = f"h{number}"
    namespace, link, address = f"rubrics-{name}", f"rubrics-v{number}", f"10.231.{number}.2"
    own = folder / name
    shutil.copytree(workspace, own)
    setup = folder / f"ssh-{name}"
    setup.mkdir(mode=0o700)
    host = Host(name, own, setup / "config", namespace, f"key-of-{name}")
    _remove(namespace, link)
    try:
        _ip("netns", "add", namespace)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("address", "add", f"10.231.{number}.1/24", "dev", link)
        _ip("link", "set", link, "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", device, "up")
        _ip("-n", namespace, "route", "add", "default", "via", f"10.231.{number}.1")
        with _ssh_server(host, setup, address):
            yield host
    finally:
        _remove(namespace, link)


@contextmanager
def _ssh_server(host: Host, setup: Path, address: str) -> Iterator[None]:
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", setup / key], check=True)
    (setup / "sshd_config").write_text(
        f"ListenAddress {address}\nHostKey {setup}/host\nAuthorizedKeysFile {setup}/user.pub\nPidFile none\n"
        f"StrictModes no\nUsePAM no\nPermitRootLogin yes\nSetEnv HOST_KEY={host.key}\n",
        encoding="utf-8",
    )
    host.config.write_text(
        f"Host {host.name}\n  HostName {address}\n  User root\n  IdentityFile {setup}/user\n  LogLevel ERROR\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  ConnectTimeout 5\n",
        encoding="utf-8",
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd insists on it
    command = ["ip", "netns", "exec", host.namespace, "/usr/sbin/sshd", "-D", "-e", "-f", str(setup / "sshd_config")]
    with (setup / "log").open("w", encoding="utf-8") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            _wait_for(address)
            yield
        finally:
            host.die()
            server.kill()


def _wait_for(address: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection((address, 22), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no SSH server at {address}")


def _remove(namespace: str, link: str) -> None:
    for command in (["link", "delete", link], ["netns", "delete", namespace]):
        subprocess.run(["ip", *command], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)
