"""The wire request: everything that decides what a provider is asked, and the key it is stored under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

KEY_VERSION = 1

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one endpoint.

    Attributes:
        model: LiteLLM model string.
        address: Where it goes: the base URL, or what identifies a served model; None is the provider's own address.
        messages: Chat messages as they are sent.
        params: Sampling parameters, sent as they are.
        extra_body: Fields that only this provider knows.
        response_format: OpenAI's ``response_format``, or None for plain text.
        tools: Tool definitions, or None.
        repeat: Index of the repeat, counted from 1; each repeat is a draw of its own.
        seat: Seat in a panel of judges, or None.
        attempt: Number of the ask, counted from 1; a re-ask has the next number.
    """

    model: str
    address: str | Mapping[str, Any] | None
    messages: Sequence[Message]
    params: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    response_format: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    repeat: int = 1
    seat: str | None = None
    attempt: int = 1
    _digests: dict[str, str] = field(init=False, default_factory=dict, compare=False, repr=False)

    def key(self) -> str:
        """SHA-256 over the canonical JSON of the request; 64 hex digits."""
        return self._once("key", lambda: {**self._question(), "attempt": self.attempt})

    def question_key(self) -> str:
        """The key without the attempt: what all asks of one question share."""
        return self._once("question", self._question)

    def again(self, attempt: int, messages: Sequence[Message] | None = None) -> Request:
        """The same request as another attempt, perhaps with a note of what was wrong."""
        if attempt == self.attempt and messages is None:
            return self
        return replace(self, attempt=attempt, messages=self.messages if messages is None else messages)

    def _once(self, name: str, value: Callable[[], Mapping[str, Any]]) -> str:
        # A judge's request is tens of kilobytes long, and its key is asked for several times.
        if name not in self._digests:
            self._digests[name] = _digest(value())
        return self._digests[name]

    def _question(self) -> dict[str, Any]:
        return {
            "version": KEY_VERSION,
            "model": self.model,
            "address": self.address,
            "messages": list(self.messages),
            "params": self.params,
            "extra_body": self.extra_body,
            "response_format": self.response_format,
            "tools": self.tools,
            "repeat": self.repeat,
            "seat": self.seat,
        }


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict)
    # A lone surrogate can stand in JSON data and has no UTF-8 form of its own.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
