"""Keep secrets out of everything that is written: records, reports, the cache, logs and error text."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

# Shorter values are left alone: replacing "none" or "local" wherever they stand would spoil the records.
_MIN_LENGTH = 8
_PLACEHOLDERS = {
    "dummy-key",
    "fake-api-key",
    "no-api-key",
    "no-key-required",
    "not-needed",
    "not-required",
    "not_needed",
    "sk-no-key-required",
    "your-api-key",
    "your_api_key",
}
_CREDENTIAL_NAME = re.compile(
    r"(?:^|[-_])(?:(?:api|access|secret|private|auth|subscription)[-_]?key(?:[-_]?id)?"
    r"|token|secret|password|passwd|authorization|auth|cookie)$",
    re.IGNORECASE,
)
# Tokens that are recognised by their form: at least 16 characters with a digit, so that prose is not hit; answers speak
# of "Bearer instruments". Each form begins with plain letters, which lets the regex skip most of a text.
_SCHEMES = ("Bearer", "bearer", "Basic", "basic")
_PREFIXES = ("sk-", "gsk_", "xai-", "hf_", "gho_", "ghp_", "ghs_", "ghu_", "AIza", "AKIA")
_FORMS = (
    *(rf"{scheme}\s+(?=[\w.~+/*=-]*\d)[\w.~+/*=-]{{16,}}" for scheme in _SCHEMES),
    *(rf"{prefix}(?<![A-Za-z0-9]{prefix})(?=[\w*-]*\d)[\w*-]{{16,}}" for prefix in _PREFIXES),
)
# The same in JSON, where white space may be escaped, and a letter before a prefix may belong to an escape.
_FORMS_IN_JSON = (
    *(rf"{scheme}[\s\\]" for scheme in _SCHEMES),
    *(rf"{prefix}[\w*-]{{16}}" for prefix in _PREFIXES),
)

_registered: frozenset[str] = frozenset()


def register_secret(value: str) -> None:
    """Have a value replaced from now on. Values that are no secret, being short or common words, are left alone."""
    global _registered
    if _is_worth_hiding(value):
        _registered |= {value}


@lru_cache(maxsize=1024)
def is_credential_name(name: str) -> bool:
    """Whether a header or an environment variable of this name holds a credential.

    >>> is_credential_name("OPENAI_API_KEY"), is_credential_name("x-api-key"), is_credential_name("MAX_TOKENS")
    (True, True, False)
    """
    return bool(_CREDENTIAL_NAME.search(name))


def redact(text: str) -> str:
    """Replace every known secret, and what looks like one, with ``***``.

    Known are the registered values and those of environment variables with the name of a credential: plain,
    URL-encoded, in base64 and escaped for JSON.
    """
    return _pattern().sub(MASK, text)


def redact_json(value: Any) -> Any:
    """Copy nested data with every text in it redacted, keys too."""
    return _walk(value, partial(_pattern().sub, MASK))


def is_clean(text: str) -> bool:
    """Whether a line of JSON surely holds nothing that `redact_json` would replace; it is much faster.

    Args:
        text: JSON whose characters beyond ASCII are not escaped.
    """
    return _pattern(in_json=True).search(text) is None


def _walk(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value) if len(value) >= _MIN_LENGTH else value
    if isinstance(value, dict):
        return {_walk(key, clean): _walk(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, clean) for item in value]
    return value


def _pattern(*, in_json: bool = False) -> re.Pattern[str]:
    values = {os.environ[name] for name in os.environ if is_credential_name(name)}
    return _compile(_registered | set(filter(_is_worth_hiding, values)), in_json)


@lru_cache(maxsize=8)
def _compile(secrets: frozenset[str], in_json: bool) -> re.Pattern[str]:
    spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
    if in_json:
        spellings = {json.dumps(spelling, ensure_ascii=False)[1:-1] for spelling in spellings}
    longest_first = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
    return re.compile("|".join([*map(re.escape, longest_first), *(_FORMS_IN_JSON if in_json else _FORMS)]))


def _spellings(secret: str) -> set[str]:
    encoded = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    lower_case = {re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), text) for text in encoded}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {secret, *encoded, *lower_case, *escaped, *_base64_spellings(secret)}


def _base64_spellings(secret: str) -> set[str]:
    """What is left of a secret in base64 wherever it starts, as in ``user:secret``: three alignments of bytes."""
    data = secret.encode("utf-8", "surrogatepass")
    spellings = {base64.b64encode(data).decode("ascii")}
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode("ascii").rstrip("=")
        start = (before * 8 + 5) // 6
        end = (before + len(data)) * 8 // 6
        spellings.add(text[start:end])
    return spellings | {text.replace("+", "-").replace("/", "_") for text in spellings}


def _is_worth_hiding(value: str) -> bool:
    if len(value) < _MIN_LENGTH or len(set(value)) < 4 or value.lower() in _PLACEHOLDERS:
        return False
    is_word = value.isalpha() and (value.islower() or value.isupper() or value.istitle())
    is_number = value.isdigit()
    return len(value) >= 16 or not (is_word or is_number)
