from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.calls import pacing
from pytest_rubrics.calls.errors import ProviderError
from pytest_rubrics.calls.pace import Schedule
from pytest_rubrics.calls.pacing import Pacer

HOLD = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits" / "an endpoint"


def slow_down(seconds: float | None = 30.0) -> ProviderError:
    return ProviderError("slow down", status=429, transient=True, retry_after=seconds)


def start(pacer: Pacer) -> bool:
    return pacer.take(1.0, alone=True)


def refuse(pacer: Pacer, seconds: float = 30.0) -> float:
    assert start(pacer)
    return pacer.refused(time.monotonic(), 1.0, slow_down(seconds))


class TestShared:
    def test_a_refusal_pauses_all_processes(self, path: Path) -> None:
        one, other = Pacer(path), Pacer(path)
        assert start(other)
        assert refuse(one) == pytest.approx(30, abs=1.5)
        assert not start(other)
        assert other.wait() == pytest.approx(30, abs=1.5)

    def test_a_stated_limit_holds_for_all_together(self, path: Path) -> None:
        one, other = Pacer(path, rpm=60), Pacer(path, rpm=60)
        assert start(one)
        assert not start(other)
        assert 0.5 < other.wait() <= 1.1

    def test_tokens_are_counted_as_they_were_used(self, path: Path) -> None:
        pacer = Pacer(path, tpm=60_000)
        began = time.monotonic()
        assert pacer.take(1_000.0, alone=True)
        assert pacer.wait() == pytest.approx(1, abs=0.2)
        pacer.answered(began, 1_000.0, 5_000.0, {})
        assert pacer.wait() == pytest.approx(5, abs=0.5)
        assert pacer.typical_tokens() == 5_000

    def test_what_was_not_used_is_given_back(self, path: Path) -> None:
        pacer = Pacer(path, rpm=1)
        assert start(pacer)
        assert pacer.wait() > 30
        pacer.give_back(1.0)
        assert pacer.wait() == 0

    def test_a_good_reply_that_says_nothing_is_left_pauses_all(self, path: Path) -> None:
        one, other = Pacer(path), Pacer(path)
        assert start(one)
        headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}
        one.answered(time.monotonic(), 1.0, 0.0, headers)
        assert start(other) is False
        assert other.wait() == pytest.approx(20, abs=0.5)

    def test_only_its_owner_can_read_the_file(self, path: Path) -> None:
        start(Pacer(path))
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


class TestTrouble:
    @given(st.binary(max_size=400))
    def test_a_damaged_file_is_an_empty_one(self, data: bytes) -> None:
        assert pacing._unpacked(data) == Schedule()

    @pytest.mark.parametrize("how", ["cut", "changed", "emptied"])
    def test_a_file_damaged_meanwhile_stops_nothing(self, path: Path, how: str) -> None:
        pacer = Pacer(path)
        refuse(pacer)
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes({"cut": bytes(data[:50]), "changed": bytes(data), "emptied": b""}[how])
        assert start(pacer)
        refuse(pacer)
        assert not start(pacer)

    def test_a_removed_file_stops_nothing(self, path: Path) -> None:
        pacer = Pacer(path)
        refuse(pacer)
        path.unlink()
        assert not start(pacer)
        assert start(Pacer(path))

    def test_a_file_of_another_clock_counts_as_new(self, path: Path) -> None:
        refuse(Pacer(path), 20.0)
        now = time.monotonic()
        assert start(Pacer(path, clock=lambda: now - 5))  # as if the machine had just started

    def test_a_folder_that_cannot_be_written_leaves_each_process_its_own_pace(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("", encoding="utf-8")
        pacer = Pacer(tmp_path / "file" / "limits")
        refuse(pacer)
        assert not start(pacer)

    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
    def test_a_process_that_ends_or_stops_with_the_lock_holds_up_nobody(self, path: Path, end: signal.Signals) -> None:
        pacer = Pacer(path)
        start(pacer)
        command = [sys.executable, "-c", HOLD, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            os.kill(process.pid, end)
            if end == signal.SIGKILL:
                process.wait()
            assert start(pacer)
            refuse(pacer)
            assert not start(Pacer(path))
            process.kill()
