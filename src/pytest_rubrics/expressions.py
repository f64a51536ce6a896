"""JMESPath expressions and templates of a ``benchmark.yaml``, compiled once and evaluated on every row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Getter = Callable[[Any], Any]

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*", re.ASCII)
_STEP = re.compile(r"(\w+)|\[(\d+)\]", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class ExpressionError(ValueError):
    """An expression is not JMESPath, or a row is of a shape it cannot be evaluated on."""


def compile_expression(text: str) -> Getter:
    """Return a function that evaluates a JMESPath expression.

    Plain paths such as ``tags.topics[0]`` do without the JMESPath interpreter, which costs ten times as much.

    Raises:
        ExpressionError: The text is not JMESPath; or, from the function, a value has the wrong type for it.
    """
    if _PATH.fullmatch(text):
        return _compile_path(text)

    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        compiled = jmespath.compile(text)
    except JMESPathError as error:
        raise ExpressionError(f"{text!r} is not a JMESPath expression: {_first_line(error)}") from error

    def search(value: Any) -> Any:
        try:
            return compiled.search(value)
        except JMESPathError as error:
            raise ExpressionError(f"{text!r} cannot be evaluated: {_first_line(error)}") from error

    return search


def compile_template(text: str) -> Getter:
    """Return a function that fills the ``{expression}`` places of a text; it gives None when one has no value.

    Raises:
        ExpressionError: As `compile_expression`.
    """
    literals = _PLACEHOLDER.split(text)
    getters = [compile_expression(expression.strip()) for expression in literals[1::2]]

    def fill(value: Any) -> str | None:
        filled = [get(value) for get in getters]
        if any(part is None for part in filled):
            return None
        parts = literals.copy()
        parts[1::2] = [str(part) for part in filled]
        return "".join(parts)

    return fill


def placeholders(template: str) -> list[str]:
    """Return the expressions inside the braces of a template."""
    return [expression.strip() for expression in _PLACEHOLDER.findall(template)]


def _compile_path(text: str) -> Getter:
    steps: list[str | int] = [name or int(index) for name, index in _STEP.findall(text)]
    if len(steps) == 1:
        key = text
        return lambda value: value.get(key) if isinstance(value, dict) else None

    def walk(value: Any) -> Any:
        for step in steps:
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            else:
                value = value[step] if isinstance(value, list) and step < len(value) else None
        return value

    return walk


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
