"""Where an agent's shell commands run: bubblewrap, a container, or, if the YAML says so, this machine itself."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pytest_rubrics.answering.processes import INFO_FD, Command, Finished
from pytest_rubrics.calls.errors import CallError

Kind = Literal["bubblewrap", "docker", "podman", "none"]

IMAGE = "docker.io/library/python:3.13-slim"
FILE_MB = 1024  # of one file that a command writes
COMMANDS_PER_CPU = 4  # at once, over all runs of a model
FIRST_USER = 1_900_000_000  # of the user ids for sandboxes that root starts; far from those in use
START_TIMEOUT = 300.0  # seconds for the first container, whose image may have to be fetched

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONUNBUFFERED": "1",  # else what a killed script had printed is lost with its buffer
}
# What the client of a container engine needs; nothing of it reaches the container.
_CLIENT_VARIABLES = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
_LIMITED = 'ulimit -c 0 -t "$1" -f "$2" ${3:+-v "$3"} ${4:+-u "$4"} && shift 4 && exec "$@"'
_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_SETTINGS = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "fonts")
_NETWORK_SETTINGS = (
    *("resolv.conf", "hosts", "nsswitch.conf", "host.conf", "gai.conf", "services", "protocols"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust", "crypto-policies"),
)
_ON_LINUX = sys.platform == "linux"
_CHOICES = "choose sandbox: docker or podman, or sandbox: none on a machine that an agent may harm"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use.

    Attributes:
        cpu_seconds: CPU time of each of its processes.
        memory_mb: Address space of each of its processes; in a container, memory of all together.
        processes: Processes and threads at once.
        output_bytes: Bytes of output that are kept.
        image: Container image.
    """

    cpu_seconds: int = 120
    memory_mb: int = 4096
    processes: int = 128
    output_bytes: int = 1_000_000
    image: str = IMAGE


@dataclass(frozen=True, slots=True)
class Box:
    """The folder of one agent run on this machine.

    Attributes:
        folder: Holds the working directory and the temporary files of the run's commands.
    """

    folder: Path

    @property
    def workspace(self) -> Path:
        """The commands' working directory."""
        return self.folder / "workspace"

    @property
    def tmp(self) -> Path:
        """The commands' ``/tmp``."""
        return self.folder / "tmp"

    def exists(self) -> bool:
        """Whether commands have run here and their files are still there."""
        return self.workspace.is_dir() and self.tmp.is_dir()

    def prepare(self) -> None:
        """Make the folder, owned by the user that commands will run as."""
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        for path in (self.workspace, self.tmp):
            if not path.is_dir():
                path.mkdir(mode=0o711)  # bubblewrap enters it before the command becomes its owner
                if is_root():
                    user = FIRST_USER + int(sha256(str(self.folder).encode()).hexdigest()[:5], 16)
                    os.chown(path, user, user)

    def remove(self) -> None:
        """Delete the folder, whatever the commands made of its permissions."""
        for parent, folders, _ in os.walk(self.folder):
            for path in (Path(parent, name) for name in folders):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(slots=True)
class Sandbox:
    """Runs commands apart from this machine.

    Attributes:
        kind: What keeps them apart.
        network: Whether they reach the network.
        limits: What each may use.
    """

    kind: Kind
    network: bool
    limits: Limits
    _pool: ThreadPoolExecutor = field(init=False)
    _checked: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(COMMANDS_PER_CPU * (os.cpu_count() or 1), thread_name_prefix="rubrics-command")

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides the result of a command, apart from its limits."""
        image = {"image": self.limits.image} if self.kind in {"docker", "podman"} else {}
        return {"sandbox": self.kind, "network": self.network, **image}

    async def run(self, command: str, box: Box, seconds: float) -> Finished:
        """Run a shell command in a box, for so many seconds at most.

        Raises:
            OSError: It cannot be started, such as one of more than 128 KB.
        """
        box.prepare()
        name = f"rubrics-{uuid.uuid4().hex}"
        return await Command(
            argv=self.command_line(command, box, name),
            env=self._environment(box),
            cwd=box.workspace if self.kind == "none" else box.folder,
            timeout=seconds,
            output_bytes=self.limits.output_bytes,
            stop=[self.kind, "kill", name] if self.kind in {"docker", "podman"} else None,
        ).run(self._pool)

    async def check(self, folder: Path) -> None:
        """Try the sandbox once, before anything is paid for.

        Raises:
            CallError: It does not work on this machine; the text says what to install or set.
        """
        if self._checked is None:
            self._checked = asyncio.ensure_future(self._try(Box(folder / f"check-{uuid.uuid4().hex[:8]}")))
        await asyncio.shield(self._checked)

    async def _try(self, box: Box) -> None:
        program = _PROGRAMS[self.kind]
        if shutil.which(program) is None:
            raise CallError("error", f"sandbox: {self.kind}: {program} is not installed. {_INSTALL[self.kind]}")
        if self.kind == "bubblewrap" and is_root() and shutil.which("setpriv") is None:
            raise CallError(
                "error", f"sandbox: bubblewrap: root also needs setpriv. Install util-linux, or {_CHOICES}."
            )
        try:
            finished = await self.run("echo ready", box, START_TIMEOUT)
        except OSError as error:
            raise CallError("error", f"sandbox: {self.kind}: {error}") from error
        finally:
            await asyncio.to_thread(box.remove)
        if finished.code != 0 or not finished.output.endswith("ready\n"):
            said = " ".join(finished.output.split())[-300:] or f"exit code {finished.code}"
            raise CallError("error", f"sandbox: {self.kind} does not work here: {said}. {_REPAIR[self.kind]}")

    def command_line(self, command: str, box: Box, name: str) -> list[str]:
        """The arguments that run a command; ``name`` is that of a container."""
        shell = ["/bin/bash", "-c", command]
        match self.kind:
            case "bubblewrap":
                return [*self._bubblewrap(box), "--", *self._limited(), *self._as_user(box), *shell]
            case "docker" | "podman":
                return [*self._container(box, name), *shell]
            case "none":
                return [*self._limited(), *shell]

    def _environment(self, box: Box) -> dict[str, str]:
        """The environment of the program that is started, made from nothing."""
        match self.kind:
            case "bubblewrap":
                return _inside()
            case "none":
                return {**_ENVIRONMENT, "HOME": str(box.workspace), "TMPDIR": str(box.tmp)}
            case "docker" | "podman":
                return {name: os.environ[name] for name in _CLIENT_VARIABLES if name in os.environ}

    def _limited(self) -> list[str]:
        """A shell that lowers its limits and then becomes the command."""
        # Without a namespace of its own the count would be that of all processes of the user.
        processes = "" if self.kind == "none" else _at_most(resource.RLIMIT_NPROC, self.limits.processes)
        # macOS knows no limit of address space.
        memory = _at_most(resource.RLIMIT_AS, self.limits.memory_mb * 1024, unit=1024) if _ON_LINUX else ""
        return [
            *("/bin/bash", "-c", _LIMITED, "limits"),
            _at_most(resource.RLIMIT_CPU, self.limits.cpu_seconds),
            _at_most(resource.RLIMIT_FSIZE, FILE_MB * 1024, unit=1024),
            memory,
            processes,
        ]

    def _bubblewrap(self, box: Box) -> list[str]:
        program = shutil.which("bwrap") or "bwrap"  # by this machine's PATH, not by the sandbox's
        arguments = [program, "--die-with-parent", "--new-session", "--info-fd", INFO_FD, "--hostname", "sandbox"]
        arguments += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        if not self.network:
            arguments += ["--unshare-net"]
        if is_root():
            # The kernel counts no processes of root: the command becomes another user, see _as_user.
            arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            arguments += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        arguments += [*_system_folders(), *_settings(self.network), "--proc", "/proc", "--dev", "/dev"]
        for source, place in ((box.workspace, "/workspace"), (box.tmp, "/tmp"), (box.tmp, "/dev/shm")):  # noqa: S108
            arguments += ["--bind", str(source.absolute()), place]
        return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"]

    def _as_user(self, box: Box) -> list[str]:
        if self.kind != "bubblewrap" or not is_root():
            return []
        user = str(box.workspace.stat().st_uid)
        return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all"]

    def _container(self, box: Box, name: str) -> list[str]:
        limits = self.limits
        owner = box.workspace.stat()
        arguments = [self.kind, "run", "--rm", "--name", name, "--hostname", "sandbox"]
        arguments += ["--network", "bridge" if self.network else "none"]
        arguments += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        arguments += ["--user", f"{owner.st_uid}:{owner.st_gid}"]
        if self.kind == "podman" and os.geteuid() != 0:
            arguments += ["--userns", "keep-id"]
        arguments += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
        arguments += ["--pids-limit", str(limits.processes), "--ulimit", f"cpu={limits.cpu_seconds}"]
        arguments += ["--ulimit", f"fsize={FILE_MB * 1024 * 1024}", "--ulimit", "core=0"]
        for source, place in ((box.workspace, "/workspace"), (box.tmp, "/tmp")):  # noqa: S108
            arguments += ["--volume", f"{source.absolute()}:{place}:Z"]
        for variable, value in _inside().items():
            arguments += ["--env", f"{variable}={value}"]
        return [*arguments, "--workdir", "/workspace", limits.image]


_PROGRAMS: Mapping[Kind, str] = {"bubblewrap": "bwrap", "docker": "docker", "podman": "podman", "none": "/bin/bash"}
_INSTALL: Mapping[Kind, str] = {
    "bubblewrap": "Install it (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; "
    f"Arch: pacman -S bubblewrap; it is for Linux only), or {_CHOICES}.",
    "docker": "Install Docker, or choose another sandbox.",
    "podman": "Install Podman, or choose another sandbox.",
    "none": "The tool bash needs it.",
}
_REPAIR: Mapping[Kind, str] = {
    "bubblewrap": "Allow user namespaces: sysctl kernel.unprivileged_userns_clone=1; on Ubuntu from 24.04 sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0; inside a container start that one with --privileged. "
    f"Else {_CHOICES}.",
    "docker": "Check that the daemon runs and that limits.image can be pulled and holds /bin/bash.",
    "podman": "Check that podman run works for this user and that limits.image can be pulled and holds /bin/bash.",
    "none": "Check that /bin/bash runs.",
}


def is_root() -> bool:
    """Whether this process is the machine's root, rather than one of a container with user ids of its own."""
    if os.geteuid() != 0:
        return False
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]
    except OSError:
        return True


def _inside() -> dict[str, str]:
    return {**_ENVIRONMENT, "HOME": "/workspace", "TMPDIR": "/tmp"}  # noqa: S108


def _at_most(kind: int, value: int, unit: int = 1) -> str:
    """A limit that this process may set: one above its own hard limit would be refused."""
    hard = resource.getrlimit(kind)[1]
    return str(value if hard == resource.RLIM_INFINITY else min(value, hard // unit))


def _system_folders() -> Sequence[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    return arguments


def _settings(network: bool) -> Sequence[str]:
    names = (*_SETTINGS, *_NETWORK_SETTINGS) if network else _SETTINGS
    paths = [path for path in (Path("/etc", name) for name in names) if path.exists()]
    # Folders that bubblewrap makes on its way to a file can be entered by nobody but their owner.
    folders = dict.fromkeys(folder for path in paths for folder in reversed(path.parents[:-1]))
    arguments = [part for folder in folders for part in ("--dir", str(folder))]
    return arguments + [part for path in paths for part in ("--ro-bind", str(path), str(path))]
