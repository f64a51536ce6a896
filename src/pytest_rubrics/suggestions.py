"""What a misspelt word may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """A question that names what is spelled like a word, or None where nothing is.

    Args:
        word: What was written.
        known: What could have been written.
        cutoff: How alike they must be, from 0 to 1.

    >>> did_you_mean("max_token", ["timeout", "max_tokens"])
    'Did you mean max_tokens?'
    """
    by_case = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), by_case, n=3, cutoff=cutoff)
    return f"Did you mean {' or '.join(by_case[name] for name in near)}?" if near else None
