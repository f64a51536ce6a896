"""The probability of a hit, from the log-probabilities of a judge's reply on one criterion."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pytest_rubrics.calls.reply import Alternatives
from pytest_rubrics.judging import vocabulary as words

PARAMS = {"logprobs": True, "top_logprobs": 20}
"""What is asked for: no provider of the OpenAI format gives more than 20 alternatives. A judge's params win."""

_VALUE = re.compile(r"[\"'“](?P<key>[^\"'“”:：{},\n]{1,20})[\"'”]\s*[:：]\s*[\"'“]?")
_SIGNS = " \t\r\n\"'`*“”‘’:：([{"


def hit_probability(tokens: Alternatives, hit: bool) -> float | None:
    """P(hit) at the token where the verdict begins, among the alternatives that say hit or miss.

    The verdict is the value under the last key of a status in the JSON, or the first word of a reply without one.
    Alternatives that are the beginning of neither, or of both, count for nothing.

    Args:
        tokens: For each token of the reply its alternatives, the chosen one first.
        hit: How the reply was read; where the token found says otherwise, it is not the verdict's.

    Returns:
        A probability from 0 to 1; None without log-probabilities, or where the verdict's token cannot be told.

    >>> round(hit_probability([[("Yes", math.log(0.6)), ("No", math.log(0.2)), ("Well", math.log(0.2))]], True), 3)
    0.75
    """
    text = "".join(alternatives[0][0] for alternatives in tokens)
    start = _start(text)
    position = 0
    for alternatives in tokens:
        end = position + len(alternatives[0][0])
        if end > start and alternatives[0][0][max(0, start - position) :].strip(_SIGNS):
            return _share(alternatives, hit)
        position = end
    return None


def _start(text: str) -> int:
    """Where the verdict begins."""
    keys = [found for found in _VALUE.finditer(text) if words.name(found["key"]) in words.STATUS_KEYS]
    return keys[-1].end() if keys else 0


def _share(alternatives: Sequence[tuple[str, float]], hit: bool) -> float | None:
    if _says(alternatives[0][0]) is not hit:
        return None
    mass = {True: 0.0, False: 0.0}
    for token, logprob in alternatives:
        said = _says(token)
        if said is not None:
            mass[said] += math.exp(logprob)
    return mass[True] / (mass[True] + mass[False])


def _says(token: str) -> bool | None:
    """What a token is the beginning of: a word for hit, or one for miss."""
    return words.begins(token.lstrip(_SIGNS))
