"""Signals that end a run as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from functools import partial

import pytest


def treat_as_ctrl_c(config: pytest.Config) -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: the book is closed and the table printed."""
    if threading.current_thread() is not threading.main_thread():
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)
            config.add_cleanup(partial(_reset, number))


def _reset(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
