"""The JSON values of a reply: strict JSON at once, anything else by the loose reader, which is loaded only then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, Union

Json: TypeAlias = Union[bool, int, float, str, "list[Json]", "Object", None]


class Object(tuple[tuple[str, Json], ...]):
    """A JSON object as its pairs in written order, so that a repeated key is seen."""

    __slots__ = ()


@dataclass(slots=True)
class Found:
    """What stands in a text.

    Attributes:
        values: The values, in order; for a broken one, a list of the objects inside it that are whole.
        doubt: A short excerpt from where the text is broken or ambiguous and bears on what is looked for, or None.
    """

    values: list[Json] = field(default_factory=list)
    doubt: str | None = None


INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
MAX_DEPTH = 32  # no reply that we ask for is nested deeper
# Each opening quote with those that may close it. A quote of another kind inside is text.
CLOSERS = dict(zip("\"“”＂'‘’＇「`", ('"', "“”", "“”", "＂", "'", "‘’", "‘’", "＇", "」", "`"), strict=True))
_FENCE = re.compile(r"(`{3,}|~{3,})[^\n`]{0,40}\n")


def find(text: str, matters: Callable[[str], bool]) -> Found:
    """Read every JSON value in a reply.

    Reasoning blocks do not count: what stands between ``<think>`` and ``</think>``, before an orphan closing tag, or
    after an opening one that is never closed. Tags inside a JSON string are text.

    Args:
        text: The reply.
        matters: Whether a key is one of those looked for. Broken or quoted JSON without such a key is prose.

    Returns:
        The values found, and whether the text leaves it in doubt what was meant.
    """
    text = _unwrap(text)
    whole = parse(text)
    if whole is not None:
        return Found([whole])
    from pytest_rubrics.judging.loose_json import Scanner

    return Scanner(text, matters).run()


def parse(text: str) -> Json:
    """Return the value of strict JSON; None where the text is none, or nested too deeply."""
    try:
        value: Json = json.loads(text, object_pairs_hook=Object)
    except (ValueError, RecursionError):
        return None
    return None if _exceeds(MAX_DEPTH, value) else value


def _exceeds(depth: int, value: Json) -> bool:
    members = [member for _, member in value] if isinstance(value, Object) else value
    if not isinstance(members, list):
        return depth < 0
    nested = [member for member in members if isinstance(member, (list, Object))]
    return depth < (1 if members else 0) or any(_exceeds(depth - 1, member) for member in nested)


def _unwrap(text: str) -> str:
    """Take off what encloses the whole reply: fences, quotes, one level of escaping each time."""
    for _ in range(4):
        text = text.strip().strip(INVISIBLE).strip()
        if (fence := _FENCE.match(text)) and text.endswith(fence[1]):
            text = text[fence.end() : -len(fence[1])]
        elif len(text) > 1 and text[-1] in CLOSERS.get(text[0], ""):
            text = _unescape_all(text[1:-1]) or text[1:-1]
        elif text[:1] in ("[", "{") and '\\"' in text:
            text = _unescape_all(text) or text
        else:
            break
    return text


def _unescape_all(text: str) -> str | None:
    """The text of which this is the inside of a JSON string, or None where it holds a bare quote."""
    try:
        unescaped: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return None
    return unescaped
