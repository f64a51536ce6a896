"""What the headers of a response say about the limits of OpenAI, Anthropic, OpenRouter and the like."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

_PART = re.compile(r"([\d.]+)(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TOKENS = re.compile(r"tokens per|\btpm\b|token[ _-](?:rate|limit|quota)|limit of [\d,]+ (?:\w+ )?tokens", re.I)


class Allowance(NamedTuple):
    """What is left of one limit.

    Attributes:
        remaining: How much is left.
        seconds: Seconds until there is more.
        limit: How much is permitted in all, in calls or in tokens of input and output together; None where the provider
            does not say, or counts otherwise.
    """

    remaining: float
    seconds: float
    limit: float | None


def allowance(headers: Mapping[str, str], *, by_tokens: bool) -> Allowance | None:
    """What is left of the limit of calls, or of tokens; None where the headers do not say.

    >>> allowance({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, by_tokens=False)
    Allowance(remaining=0.0, seconds=360.0, limit=None)
    """
    if not any("ratelimit" in name for name in headers):
        return None
    found = []
    for pattern in _NAMES[by_tokens]:
        remaining = _number(headers.get(pattern.format("remaining")))
        seconds = duration(headers.get(pattern.format("reset")))
        if remaining is not None and seconds is not None:
            limit = None if pattern in _IN_OTHER_UNITS else _number(headers.get(pattern.format("limit")))
            found.append(Allowance(remaining, seconds, limit))
    return min(found, key=lambda left: left[:2], default=None)


_IN_OTHER_UNITS = (
    "anthropic-ratelimit-tokens-{}",  # the tightest of these
    "anthropic-ratelimit-input-tokens-{}",
    "anthropic-ratelimit-output-tokens-{}",
)
_NAMES = {
    False: ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}", "x-ratelimit-{}"),
    True: ("x-ratelimit-{}-tokens", *_IN_OTHER_UNITS),
}


def is_about_tokens(headers: Mapping[str, str], text: str, tokens: float) -> bool:
    """Whether it is tokens that a refused call had too many of, and not calls.

    Args:
        headers: Headers of the refusal.
        text: Its message.
        tokens: How many the call was thought to use.
    """
    calls = allowance(headers, by_tokens=False)
    if calls is not None and calls.remaining < 1:
        return False
    left = allowance(headers, by_tokens=True)
    return (left is not None and left.remaining < tokens) or _TOKENS.search(text) is not None


def duration(text: str | None) -> float | None:
    """Seconds from now, from a length of time, a number of seconds, or a point in time; None if it is none of these.

    >>> [duration(text) for text in ("120ms", "1s", "6m0s", "1.5", "soon")]
    [0.12, 1.0, 360.0, 1.5, None]
    """
    if not text:
        return None
    number = _number(text)
    if number is not None:
        if number < 1e9:
            return number
        return max(0.0, (number / 1000 if number > 1e12 else number) - time.time())
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text.strip():
        return round(sum(float(number) * _SECONDS[unit] for number, unit in parts), 6)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - time.time())
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
