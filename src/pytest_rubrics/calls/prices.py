"""What a reply costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pytest_rubrics.calls.reply import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens; cached input costs as much as fresh input where nothing else is said."""

    input: float
    output: float
    cached_input: float | None = None

    def cost(self, usage: Usage) -> float:
        """Cost of one reply in USD.

        >>> Price(input=2.0, output=10.0, cached_input=0.5).cost(Usage(1_000_000, 100_000, cached_tokens=400_000))
        2.4
        """
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached_price + usage.output_tokens * self.output) / 1e6


@cache
def listed_price(model: str) -> Price | None:
    """The price in LiteLLM's own table, or None. Imports LiteLLM."""
    from pytest_rubrics.calls.litellm_client import listed

    info = listed(model)
    if info is None:
        return None
    per_input, per_output = info.get("input_cost_per_token"), info.get("output_cost_per_token")
    if not per_input and not per_output:
        return None  # the table holds 0 where it does not know
    cached = info.get("cache_read_input_token_cost")
    return Price(
        input=float(per_input or 0) * 1e6,
        output=float(per_output or 0) * 1e6,
        cached_input=None if cached is None else float(cached) * 1e6,
    )
