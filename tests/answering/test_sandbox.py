"""Escapes from the sandbox, tried with real commands."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.answering.processes import Finished
from pytest_rubrics.answering.sandbox import Box, Kind, Limits, Sandbox, is_root
from pytest_rubrics.calls.errors import CallError
from tests.support.agents import is_running, needs_bubblewrap, until

KINDS = [pytest.param("bubblewrap", marks=needs_bubblewrap), "none"]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


def run(
    box: Box, command: str, *, kind: Kind = "bubblewrap", network: bool = False, seconds: float = 30, **limits: Any
) -> Finished:
    return asyncio.run(Sandbox(kind, network, Limits(**limits)).run(command, box, seconds))


def output(box: Box, command: str, **options: Any) -> str:
    return run(box, command, **options).output


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a server on this machine's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@needs_bubblewrap
class TestBubblewrap:
    def test_the_environment_is_made_from_nothing(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "the-secret-word")
        names = {
            line.partition("=")[0] for line in output(box, "env; cat /proc/*/environ | tr '\\0' '\\n'").splitlines()
        }
        allowed = {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PYTHONUNBUFFERED", "PWD", "SHLVL", "_", "OLDPWD"}
        assert {name for name in names if name and "Permission denied" not in name} <= allowed
        assert "HOME" in names

    def test_there_is_no_home_and_nothing_else_of_this_machine(self, box: Box, tmp_path: Path) -> None:
        (tmp_path / "secret.txt").write_text("the-secret-word", encoding="utf-8")
        found = output(
            box, f"ls / ; cat {tmp_path}/secret.txt ~root/.bashrc /etc/shadow /etc/passwd; ls /root /home {Path.home()}"
        )
        assert "the-secret-word" not in found
        assert found.count("No such file or directory") == 7
        listed = set(found.split("cat:")[0].split())
        assert listed <= {
            "bin",
            "dev",
            "etc",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "proc",
            "sbin",
            "tmp",
            "usr",
            "workspace",
        }

    @pytest.mark.parametrize(
        "place", ["/", "/etc/", "/usr/", "/usr/bin/", "/dev/", "/proc/", "/root/", "/home/", "/var/"]
    )
    def test_nothing_can_be_written_outside(self, box: Box, place: str) -> None:
        finished = run(box, f"mkdir -p {place}; echo x > {place}written && echo done")
        assert finished.code != 0
        assert "done" not in finished.output
        assert not Path(place, "written").exists()

    def test_what_it_writes_is_in_its_folder_and_is_kept(self, box: Box) -> None:
        assert (
            output(box, "pwd; echo 1 > here; echo 2 > /tmp/there; echo 3 > /dev/shm/shared; echo $HOME $TMPDIR")
            == "/workspace\n/workspace /tmp\n"
        )
        assert (box.workspace / "here").read_text(encoding="utf-8") == "1\n"
        assert output(box, "cat here /tmp/there /dev/shm/shared") == "1\n2\n3\n"

    def test_links_lead_nowhere(self, box: Box) -> None:
        output(box, "ln -s /etc/passwd link; ln -s / all")
        assert "No such file" in output(box, "cat link all/etc/shadow")

    def test_privileges_cannot_be_gained(self, box: Box) -> None:
        found = output(
            box,
            "grep -E 'CapEff|NoNewPrivs' /proc/self/status; su -c id; mount -t tmpfs x /tmp; mknod a c 1 1",
        )
        assert "CapEff:\t0000000000000000" in found
        assert "NoNewPrivs:\t1" in found
        assert "uid=0" not in found
        assert not (box.workspace / "a").exists()

    def test_devices_and_kernel_settings_are_out_of_reach(self, box: Box) -> None:
        found = run(
            box, "ls /dev; echo 1 > /proc/sys/vm/drop_caches; echo c > /proc/sysrq-trigger; ls /sys; exit 0"
        ).output
        devices = set(found.split("/bin/bash:")[0].split())
        assert not devices & {"sda", "vda", "nvme0n1", "mem", "kmem", "kvm", "fuse", "net"}
        assert found.count("/proc/") == 2  # both refused
        assert "cannot access '/sys'" in found

    def test_processes_of_this_machine_are_not_seen(self, box: Box) -> None:
        pids = [int(name) for name in output(box, "ls /proc").split() if name.isdigit()]
        assert max(pids) < 50

    def test_the_network_is_off(self, box: Box, listener: int) -> None:
        assert run(box, f"exec 3<>/dev/tcp/127.0.0.1/{listener}").code != 0
        assert output(box, "ls /etc/resolv.conf 2>&1; cat /proc/net/dev | grep -c eth").split()[-1] == "0"

    def test_the_network_is_on_where_the_yaml_says_so(self, box: Box, listener: int) -> None:
        assert run(box, f"exec 3<>/dev/tcp/127.0.0.1/{listener}", network=True).code == 0

    def test_a_fork_bomb_is_limited_and_ends(self, box: Box) -> None:
        finished = run(box, "exec -a fork-bomb-7531 bash -c 'f() { f | f & }; f; sleep 600'", seconds=2, processes=40)
        assert finished.code is None
        assert "Resource temporarily unavailable" in finished.output
        assert not is_running("fork-bomb-7531")

    def test_a_hidden_child_is_gone_at_the_end(self, box: Box) -> None:
        assert (
            output(box, "setsid --fork nohup sleep 71531 > /dev/null 2>&1; (sleep 71532 &); echo started")
            == "started\n"
        )
        assert not is_running("sleep 71531")
        assert not is_running("sleep 71532")

    def test_a_hidden_child_is_gone_at_the_timeout(self, box: Box) -> None:
        finished = run(box, "trap '' TERM HUP INT; setsid --fork sleep 71533; echo started; sleep 71534", seconds=1)
        assert (finished.output, finished.code) == ("started\n", None)
        assert not is_running("sleep 71533")
        assert not is_running("sleep 71534")

    def test_commands_die_with_this_process(self, box: Box, tmp_path: Path) -> None:
        code = (
            "import asyncio, sys; from pathlib import Path; from pytest_rubrics.answering.sandbox import *\n"
            "asyncio.run(Sandbox('bubblewrap', False, Limits()).run(sys.argv[2], Box(Path(sys.argv[1])), 600))"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(box.folder), "touch begun; sleep 71535"])
        until(lambda: (box.workspace / "begun").exists())
        assert is_running("sleep 71535")
        process.kill()
        process.wait()
        until(lambda: not is_running("sleep 71535"))

    def test_an_ordinary_user_can_use_it_too(self, tmp_path: Path) -> None:
        if not is_root():
            pytest.skip("the other tests show it")
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        if python is None or shutil.which("setpriv") is None:
            pytest.skip("there is no Python that other users can run")
        folder = Path("/tmp") / f"rubrics-test-{os.getpid()}"
        folder.mkdir(mode=0o755)
        os.chown(folder, 12345, 12345)
        code = (
            "import asyncio, sys; from pathlib import Path; from pytest_rubrics.answering.sandbox import *\n"
            "run = Sandbox('bubblewrap', False, Limits(processes=20)).run\n"
            "print(asyncio.run(run(sys.argv[2], Box(Path(sys.argv[1])), 20)).output)"
        )
        forks = "import os, time; [os.fork() or time.sleep(9) for _ in range(60)]"
        command = f"id -u; echo x > here; cat here; python3 -c '{forks}'"
        source = str(Path(__file__).parents[2] / "src")
        try:
            done = subprocess.run(
                [
                    "setpriv",
                    "--reuid",
                    "12345",
                    "--regid",
                    "12345",
                    "--clear-groups",
                    python,
                    "-c",
                    code,
                    folder / "box",
                    command,
                ],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                encoding="utf-8",
                timeout=60,
            )
            if "No module named" in done.stderr or "Permission denied" in done.stderr:
                pytest.skip("another user cannot read the source")
            assert done.stdout.startswith("1000\nx\n")
            assert "Resource temporarily unavailable" in done.stdout
        finally:
            Box(folder).remove()

    def test_what_keeps_it_from_working_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        broken = tmp_path / "bin" / "bwrap"
        broken.parent.mkdir()
        broken.write_text(
            "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n", encoding="utf-8"
        )
        broken.chmod(0o755)
        monkeypatch.setenv("PATH", str(broken.parent), prepend=os.pathsep)
        with pytest.raises(CallError, match=r"No permissions to create new namespace.*unprivileged_userns_clone"):
            asyncio.run(Sandbox("bubblewrap", False, Limits()).check(tmp_path))


class TestLimits:
    @pytest.mark.parametrize("kind", KINDS)
    def test_cpu_time_is_limited(self, box: Box, kind: Kind) -> None:
        finished = run(box, "while :; do :; done", kind=kind, cpu_seconds=1)
        assert finished.code not in {0, None}

    @pytest.mark.parametrize("kind", KINDS)
    def test_memory_is_limited(self, box: Box, kind: Kind) -> None:
        finished = run(box, "x=$(head -c 300000000 /dev/zero | tr '\\0' x)", kind=kind, memory_mb=200)
        assert finished.code not in {0, None}
        assert "cannot allocate" in finished.output

    @pytest.mark.parametrize("kind", KINDS)
    def test_files_are_limited(self, box: Box, kind: Kind) -> None:
        finished = run(box, "truncate -s 2G big", kind=kind)
        assert finished.code not in {0, None}

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_flood_is_capped_while_it_is_read(self, box: Box, kind: Kind) -> None:
        finished = run(
            box,
            "echo first; yes flood | head -c 30000000; echo; echo last; echo error >&2",
            kind=kind,
            output_bytes=10_000,
        )
        assert finished.code == 0
        assert len(finished.output) < 10_100
        assert finished.output.startswith("first\nflood\n")
        assert finished.output.endswith("last\nerror\n")
        assert "bytes left out" in finished.output

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_timeout_keeps_partial_output(self, box: Box, kind: Kind) -> None:
        finished = run(box, "echo partial; echo error >&2; sleep 71536; echo never", kind=kind, seconds=0.5)
        assert (finished.output, finished.code) == ("partial\nerror\n", None)
        assert not is_running("sleep 71536")

    @needs_bubblewrap
    def test_what_a_killed_script_had_printed_is_kept(self, box: Box) -> None:
        if "python3" not in output(box, "command -v python3"):
            pytest.skip("there is no Python in the sandbox")
        assert output(box, "python3 -c 'import time; print(42); time.sleep(71537)'", seconds=1.5) == "42\n"


class TestNone:
    def test_the_environment_is_clean_there_too(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "the-secret-word")
        found = output(box, "env", kind="none")
        assert "the-secret-word" not in found
        assert f"HOME={box.workspace}" in found.splitlines()

    def test_the_process_group_is_ended(self, box: Box) -> None:
        assert output(box, "sleep 71538 & echo started", kind="none") == "started\n"
        assert not is_running("sleep 71538")

    def test_it_is_never_chosen_silently(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CallError, match="not installed"):
            asyncio.run(Sandbox("bubblewrap", False, Limits()).check(tmp_path))


class TestContainers:
    """What is asked of Docker and Podman, whose daemons tests cannot count on."""

    @pytest.mark.parametrize("kind", ["docker", "podman"])
    def test_the_command_line(self, box: Box, kind: Kind) -> None:
        box.prepare()
        limits = Limits(cpu_seconds=5, memory_mb=300, processes=20, image="debian:12")
        arguments = Sandbox(kind, False, limits).command_line("echo a; echo b", box, "name-1")
        owner = box.workspace.stat()
        assert arguments[:5] == [kind, "run", "--rm", "--name", "name-1"]
        assert arguments[-4:] == ["debian:12", "/bin/bash", "-c", "echo a; echo b"]
        text = " ".join(arguments)
        for part in (
            "--network none",
            "--read-only",
            "--cap-drop ALL",
            "--security-opt no-new-privileges",
            f"--user {owner.st_uid}:{owner.st_gid}",
            "--memory 300m --memory-swap 300m",
            "--pids-limit 20",
            "--ulimit cpu=5",
            f"--volume {box.workspace}:/workspace:Z",
            f"--volume {box.tmp}:/tmp:Z",
            "--env HOME=/workspace",
            "--workdir /workspace",
        ):
            assert part in text
        assert "--privileged" not in text
        assert owner.st_uid != 0

    def test_the_network_of_a_container(self, box: Box) -> None:
        box.prepare()
        assert "--network bridge" in " ".join(Sandbox("docker", True, Limits()).command_line("x", box, "n"))

    def test_the_container_is_ended_at_the_timeout(
        self, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A stand-in for the client, which runs nothing and only notes what it is asked for.
        client = tmp_path / "bin" / "docker"
        client.parent.mkdir()
        client.write_text(
            f'#!/bin/bash\necho "$1 $2 $4" >> {tmp_path}/asked\n[ "$1" = run ] && echo begun && sleep 60\n',
            encoding="utf-8",
        )
        client.chmod(0o755)
        monkeypatch.setenv("PATH", str(client.parent), prepend=os.pathsep)
        monkeypatch.setenv("OPENAI_API_KEY", "the-secret-word")
        finished = run(box, "x", kind="docker", seconds=1)
        assert (finished.output, finished.code) == ("begun\n", None)
        started, killed = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
        name = started.split()[-1]
        assert started == f"run --rm {name}"
        assert killed.split() == ["kill", name]


class TestBox:
    def test_it_is_removed_whatever_its_permissions(self, box: Box) -> None:
        output(box, "mkdir -p a/b; touch a/b/c; chmod 000 a/b a; ln -s /etc link", kind="none")
        box.remove()
        assert not box.folder.exists()
        assert Path("/etc").is_dir()
