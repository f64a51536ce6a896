"""The executor of a loop in which LiteLLM calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_only_prepares: ContextVar[bool] = ContextVar("_only_prepares", default=False)


@contextmanager
def first_only_prepares(yes: bool) -> Iterator[None]:
    """Say whether what is first handed to the executor in this block is no more than the preparation of a call."""
    _only_prepares.set(yes)
    try:
        yield
    finally:
        _only_prepares.set(False)


class LiteLLMExecutor(ThreadPoolExecutor):
    """Prepares calls at once, and does everything else in threads.

    LiteLLM begins each call in the loop's executor, for with some providers the whole call happens there. With others
    it is prepared there and made in the loop; then the change to a thread and back costs as much as the work.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Do the work at once where it is known to be short, else in a thread."""
        if not _only_prepares.get():
            return super().submit(fn, *args, **kwargs)
        _only_prepares.set(False)
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        return future
