"""Spares the garbage collector objects that stay to the end of the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def long_lived() -> Iterator[None]:
    """Do not look for garbage while many objects are made that stay, and never look at them again.

    The collector walks over all of them again and again otherwise: that is a third of the time of collecting 40,000
    items, and of importing LiteLLM.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
