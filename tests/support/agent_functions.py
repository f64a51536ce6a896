"""Functions that tests offer to agents as tools."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated, Any

from pydantic import BaseModel, Field

not_a_function = 3


def search(query: Annotated[str, Field(description="Words to look for.")], limit: int = 3) -> list[str]:
    """Search the library."""
    return [f"{query} {n}" for n in range(limit)]


async def fetch(url: str) -> str:
    """Fetch a page."""
    await asyncio.sleep(0)
    return f"page {url}"


def fail(kind: str) -> str:
    """Fail in some way."""
    if kind == "exit":
        sys.exit("bye")
    if kind == "validation":
        Point(x="no number")  # type: ignore[arg-type]
    raise LookupError("nothing there")


class Point(BaseModel):
    """A point."""

    x: int


def hang() -> None:
    """Sleep for long."""
    time.sleep(600)


def nothing() -> None:
    """Give nothing."""


def by_position(text: str, /) -> str:
    """Take no names."""
    return text


def anything(value: Any) -> str:
    """Say what came."""
    return repr(value)
