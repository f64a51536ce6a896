"""What came back from a provider, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

Alternatives: TypeAlias = Sequence[Sequence[tuple[str, float]]]
"""For each token of a reply what could have stood there, with its log-probability; the chosen one comes first."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply, as the provider counts them. Cached ones are part of the input, reasoning of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Usage)))


@dataclass(frozen=True, slots=True)
class Reply:
    """One paid reply.

    Attributes:
        content: Text of the message, or None.
        reasoning: Reasoning text where the provider shows it.
        tool_calls: Tool calls in OpenAI's shape.
        finish_reason: Why the model stopped, in OpenAI's words; ``content_filter`` also for a refusal by the filter.
        usage: Token counts.
        cost_usd: Price of the reply on the day it was made, in USD; None where the price is unknown.
        response_id: The provider's own id of the response.
        served_model: The model's name in the response.
        seconds: Time of this call alone, without any waiting.
        at: When it arrived, in seconds since the epoch.
        run: Id of the run that paid for it.
        malformed: What was wrong with a response of status 200 that held no message; else None.
        logprobs: Likely alternatives at each token, where log-probabilities were asked for and given; else empty.
    """

    content: str | None = None
    reasoning: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    response_id: str | None = None
    served_model: str | None = None
    seconds: float = 0.0
    at: float = 0.0
    run: str = ""
    malformed: str | None = None
    logprobs: Alternatives = ()

    def to_row(self) -> dict[str, Any]:
        """The reply as plain JSON types."""
        row = _plain(self)
        row["usage"] = _plain(self.usage)
        row["tool_calls"] = [dict(call) for call in self.tool_calls]
        row["logprobs"] = [[list(one) for one in alternatives] for alternatives in self.logprobs]
        return row if self.logprobs else {name: value for name, value in row.items() if name != "logprobs"}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Reply:
        """Read a stored row; fields of a later version are ignored."""
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in row.items() if name in known}
        values["tool_calls"] = tuple(values.get("tool_calls") or ())
        usage = values.get("usage") or {}
        values["usage"] = Usage(**{f.name: int(usage.get(f.name) or 0) for f in fields(Usage)})
        values["logprobs"] = [[(token, p) for token, p in one] for one in values.get("logprobs") or ()]
        return cls(**values)


def _plain(one: Reply | Usage) -> dict[str, Any]:
    # Not asdict, which copies all that is inside: rows are only written.
    return {f.name: getattr(one, f.name) for f in fields(one)}
