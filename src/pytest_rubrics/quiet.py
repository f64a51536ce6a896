"""Keeps warnings from being raised in threads that no test owns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@contextmanager
def without_warnings(threads: str) -> Iterator[None]:
    """Drop the warnings that code in some threads gives; those of other threads go their usual way.

    LiteLLM's first call makes pydantic warn dozens of times, and so does a reply with an odd field. Where a test suite
    turns warnings into errors, they would be raised inside the call and look like the provider's fault. Filters alone
    cannot help: they are global, and pytest replaces them around every test while the calls go on.

    Args:
        threads: What the names of the threads begin with.
    """
    put_filter_first(threads)
    original = warnings.warn

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any) -> None:
        if not threading.current_thread().name.startswith(threads):
            original(message, category, stacklevel + 1, source, **more)

    warnings.warn = warn
    try:
        yield
    finally:
        warnings.warn = original


def put_filter_first(threads: str) -> None:
    """Ignore the warnings of some threads until the filters in force are replaced.

    Code in C, such as pydantic's core, does not come through ``warnings.warn``; it asks the filters. These are replaced
    for every test, and by every ``catch_warnings`` that ends in another thread: to do this often costs nothing.
    """
    filters: Any = warnings.filters
    ours = ("ignore", _Threads(threads), Warning, None, 0)
    if not filters or filters[0] != ours:
        filters.insert(0, ours)


@dataclass(frozen=True, slots=True)
class _Threads:
    """Stands where a filter has the pattern of a message, and looks at who warns instead."""

    prefix: str

    def match(self, message: str) -> bool:
        return threading.current_thread().name.startswith(self.prefix)
