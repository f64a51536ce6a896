"""Who hears of LiteLLM's calls: for nobody it need not compose, price and log what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_NAMES = ("callbacks", "input_callback", "success_callback", "failure_callback", "logger_fn")
# Where LiteLLM moves them at the first call; and its own budget, which counts what it logs.
_MOVED = ("_async_input_callback", "_async_success_callback", "_async_failure_callback", "max_budget")


def are_any(litellm: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether anybody hears of a call with these arguments: a callback of the user's, or LiteLLM's own budget."""
    return any(getattr(litellm, name, None) for name in _NAMES + _MOVED) or any(arguments.get(name) for name in _NAMES)


@contextmanager
def none() -> Iterator[None]:
    """LiteLLM logs no call that is made in this block.

    Else it does after each, whether anybody listens or not. It has a way to leave that out for a call that is a part of
    another one, which logs and bills it; versions without it log as ever.
    """
    try:
        from litellm._internal_context import is_internal_call
    except ImportError:
        yield
        return
    token = is_internal_call.set(True)
    try:
        yield
    finally:
        is_internal_call.reset(token)
