"""Keeps warnings from being raised in threads that no test owns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_warnings(threads: str) -> Iterator[None]:
    """Drop the warnings that code in some threads gives; those of other threads go their usual way.

    LiteLLM's first call makes pydantic warn dozens of times. Where a test suite turns warnings into errors, they would
    be raised inside the call and look like the provider's fault. Filters cannot help: they are global, and pytest
    replaces them around every test while the calls go on.

    Args:
        threads: What the names of the threads begin with.
    """
    original = warnings.warn

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any) -> None:
        if not threading.current_thread().name.startswith(threads):
            original(message, category, stacklevel + 1, source, **more)

    warnings.warn = warn  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.warn = original
