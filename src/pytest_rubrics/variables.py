"""Environment variables in YAML values: ``${NAME}`` and ``${NAME:-default}``."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any

from pytest_rubrics.redaction import MASK, is_credential_name, register_secret
from pytest_rubrics.suggestions import did_you_mean

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MENTION = re.compile(rf"\$\$\{{|{_VARIABLE.pattern}|\$\{{")


class UnsetVariableError(Exception):
    """A variable that a value needs is unset or empty; the text says where the value stands."""


def problems(text: str, *, may_be_unset: bool = False) -> list[tuple[str, str]]:
    """What keeps a text from being resolved, as pairs of message and fix; empty if nothing does."""
    found = []
    for mention in _MENTION.finditer(text):
        name, default = mention.group(1, 2)
        if mention.group() == "${":
            found.append((f"{text!r} holds a variable that cannot be read.", "Write ${NAME} or ${NAME:-default}."))
        elif name and default is None and not may_be_unset and not os.environ.get(name):
            found.append((_unset(name), _how_to_set(name)))
    return found


def resolve(text: str) -> str:
    """Put the values of variables in their places; ``$${`` stands for a plain ``${``.

    An empty variable counts as unset: CI systems hand over missing secrets that way, and LiteLLM reads it so too.
    """
    return _MENTION.sub(lambda mention: _value(mention) if mention.group(1) else "${", text)


def _value(mention: re.Match[str]) -> str:
    return os.environ.get(mention.group(1)) or mention.group(2) or ""


def _unset(name: str) -> str:
    return f"the environment variable {name} is {'empty' if name in os.environ else 'not set'}."


def _how_to_set(name: str) -> str:
    near = did_you_mean(name, os.environ.keys() - {name}, cutoff=0.8)
    return " ".join(filter(None, [near, f"Set it, or write ${{{name}:-default}}."]))


class Secret:
    """A credential: what stands in the file, which may be shown, and its value, which may not.

    The value is read at the first call, so that a replay needs no key. One written out in the file is shown as ``***``.
    """

    __slots__ = ("_name", "_place", "_template")

    def __init__(self, template: str, *, name: str = "api_key", place: str = "") -> None:
        """Keep a text unresolved.

        Args:
            template: The text as it stands in the file.
            name: Its key or header. Under a name that is no credential's, such as ``X-Title``, it may be written.
            place: File, line and key, for messages.
        """
        self._template = template
        self._name = name
        self._place = place
        if not _VARIABLE.search(template):
            self._hide(template, name)

    def resolve(self) -> str:
        """The value, which is kept out of everything written from now on.

        Raises:
            UnsetVariableError: A variable in it is unset or empty.
        """
        if found := problems(self._template):
            message, fix = found[0]
            raise UnsetVariableError(f"{self._place}: {message} {fix}" if self._place else f"{message} {fix}")
        for mention in _VARIABLE.finditer(self._template):
            self._hide(_value(mention), mention[1])
        return resolve(self._template)

    def is_set(self) -> bool:
        """Whether `resolve` gives a value."""
        return not problems(self._template) and bool(resolve(self._template))

    def _hide(self, value: str, name: str) -> None:
        if is_credential_name(self._name) or is_credential_name(name):
            # "Bearer abc" is quoted by servers as "abc".
            for secret in {value, *value.split()[-1:]}:
                register_secret(secret)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that another process hides a written-out value too.
        return partial(Secret, name=self._name, place=self._place), (self._template,)

    def __str__(self) -> str:
        if not _VARIABLE.search(self._template):
            return MASK
        return _VARIABLE.sub(lambda it: f"${{{it[1]}{'' if it[2] is None else ':-' + MASK}}}", self._template)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._template == other._template

    def __hash__(self) -> int:
        return hash(self._template)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Accept a text or a `Secret`; write the template only."""
        from pydantic_core import PydanticKnownError, core_schema

        def validate(value: object) -> Secret:
            if isinstance(value, str):
                return cls(value)
            if not isinstance(value, cls):
                raise PydanticKnownError("string_type")
            return value

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )
