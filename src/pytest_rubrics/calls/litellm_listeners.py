"""Who hears of LiteLLM's calls: for nobody it need not compose, price and log what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

_NAMES = ("callbacks", "input_callback", "success_callback", "failure_callback", "logger_fn")
# Where LiteLLM moves them at the first call; and its own budget, which counts what it logs.
_MOVED = ("_async_input_callback", "_async_success_callback", "_async_failure_callback", "max_budget")


def are_any(litellm: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether anybody hears of a call with these arguments: a callback of the user's, or LiteLLM's own budget."""
    return any(getattr(litellm, name, None) for name in _NAMES + _MOVED) or any(arguments.get(name) for name in _NAMES)


@contextmanager
def logged(yes: bool) -> Iterator[None]:
    """Say whether LiteLLM is to log the calls that are made in this block.

    Untold it does, whether anybody listens or not. It has a way to leave that out for a call that is a part of another
    one, which logs and bills it.
    """
    leave_out = _leave_out()
    token = leave_out.set(not yes)
    try:
        yield
    finally:
        leave_out.reset(token)


@cache
def _leave_out() -> ContextVar[bool]:
    try:
        from litellm._internal_context import is_internal_call
    except ImportError:  # a version without it logs every call
        return ContextVar("leave_out")
    return is_internal_call
