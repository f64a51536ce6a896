"""Why a call gave no reply, in the reason codes of the records."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pytest_rubrics.calls.rate_headers import allowance, duration

Reason = Literal[
    "transport",
    "authentication",
    "credit",
    "bad_request",
    "context_length",
    "malformed_response",
    "cache_miss",
    "budget",
    "interrupted",
    "judge_malformed",
    "no_answer",
    "error",
]


class CallError(Exception):
    """A call that ended without a reply.

    Attributes:
        reason: Reason code, as it stands in a record.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class ProviderError(Exception):
    """One try that failed.

    Attributes:
        status: HTTP status, or None where no response came.
        reason: Reason code if this was the last try.
        transient: Whether the same request may succeed later.
        retry_after: Seconds the provider asked to wait, or None.
        headers: Headers of the response, names in lower case.
        rate_limited: Whether the provider asked to slow down.
        filtered: Whether the provider's content filter refused; that is an answer, not an error.
        malformed: Whether it was a response of status 200 without a message: paid for, and no answer.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: Reason = "transport",
        transient: bool = False,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        filtered: bool = False,
        malformed: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason: Reason = reason
        self.transient = transient
        self.retry_after = retry_after
        self.headers: Mapping[str, str] = headers or {}
        self.filtered = filtered
        self.malformed = malformed

    @property
    def rate_limited(self) -> bool:
        """Whether the provider asked to slow down."""
        return self.status == 429 and self.transient


_CREDIT = re.compile(r"insufficient_quota|insufficient[ _]balance|exceeded your current quota|billing_hard_limit", re.I)
_CONTEXT = re.compile(
    r"context_length_exceeded|maximum context length|context window|prompt is too long|exceed_context_size"
    r"|exceeds the (?:available|maximum) context|input is too long|input token count .* exceeds",
    re.I,
)
_FILTER = re.compile(
    r"content_filter|content management policy|data_inspection_failed|content_policy_violation|requires moderation",
    re.I,
)
_NO_CHOICES = re.compile(r"no 'choices'|'choices' that is not a list|missing 'choices'|invalid response object", re.I)
_NO_KEY = re.compile(
    r"missing credentials|api[_ ]key.*(?:must be set|not set|missing|required)|missing.*api[_ ]?key", re.I
)
_TRANSIENT = frozenset({408, 409, 425, 429, 498})


def classify(error: Exception) -> ProviderError:
    """Read an exception of LiteLLM by its status and text; its class differs from version to version."""
    text = _APPENDED.split(str(error))[0] or type(error).__name__
    return refusal(with_code(text, getattr(error, "body", None)), _status_of(error), _headers_of(error))


def refusal(text: str, status: int | None, headers: Mapping[str, str] | None = None) -> ProviderError:
    """What a provider's words come to.

    Args:
        text: Its message.
        status: HTTP status, or None where no response came.
        headers: HTTP headers of the response.
    """
    headers = {name.lower(): value for name, value in (headers or {}).items()}

    def found(status: int | None, **kind: Any) -> ProviderError:
        return ProviderError(text, status=status, headers=headers, **kind)

    if _NO_CHOICES.search(text):
        return found(200, reason="malformed_response", malformed=True)
    if _NO_KEY.search(text) and status in {None, 401, 500}:
        return found(401, reason="authentication")
    if status == 402 or (status == 429 and _CREDIT.search(text)):
        return found(status, reason="credit")
    if status in {400, 403, 422} and _FILTER.search(text):
        return found(status, filtered=True)
    if status in {401, 403}:
        return found(status, reason="authentication")
    if status in {400, 413, 422} and _CONTEXT.search(text):
        return found(status, reason="context_length")
    if status is not None and 400 <= status < 500 and status not in _TRANSIENT:
        return found(status, reason="bad_request")
    retry_after = _retry_after(headers)
    if retry_after is None and status == 429:
        retry_after = _reset_of(headers, text)
    return found(status, transient=True, retry_after=retry_after)


def with_code(text: str, body: object) -> str:
    """A message, with the error code of the body where the message leaves it out."""
    code = body.get("code") if isinstance(body, dict) else None
    return f"{text} ({code})" if isinstance(code, str) and code not in text else text


# What LiteLLM puts behind some messages.
_APPENDED = re.compile(r"\n\nThis looks like a bug in LiteLLM| Traceback \(most recent call last\)")


def _status_of(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    # LiteLLM says 500 also where no response came, or none that could be read.
    spoken = status != 500 or any("HTTPStatusError" in type(cause).__name__ for cause in _causes(error))
    return status if spoken else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _headers_of(error: Exception) -> Mapping[str, str]:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    return headers or getattr(error, "litellm_response_headers", None) or {}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


# OpenAI's "Please try again in 6m0s", Gemini's '"retryDelay": "34s"' and "Please retry in 34.07s".
_SAID = re.compile(r"(?:again in|retry in|retry after|retryDelay\W+)\s*((?:[\d.]+(?:ms|h|m|s))+)", re.I)


def _reset_of(headers: Mapping[str, str], text: str) -> float | None:
    """How long a refusal lasts by other headers than Retry-After, or by its words."""
    lefts = [allowance(headers, by_tokens=by_tokens) for by_tokens in (False, True)]
    resets = [left.seconds for left in lefts if left is not None and left.remaining < 1]
    said = _SAID.search(text)
    return max(resets) if resets else duration(said.group(1)) if said else None


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
