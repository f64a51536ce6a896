from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import time

import pytest

from pytest_rubrics.calls.errors import refusal
from pytest_rubrics.calls.rate_headers import Allowance, allowance, duration, is_about_tokens


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120ms", 0.12),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("0", 0.0),
        ("12.5", 12.5),
        ("soon", None),
        ("5 apples", None),
        ("-1", None),
        ("", None),
        (None, None),
    ],
)
def test_lengths_of_time(text: str | None, seconds: float | None) -> None:
    assert duration(text) == seconds


def test_points_in_time() -> None:
    at = datetime.now(UTC) + timedelta(seconds=30)
    for text in (at.isoformat(), at.strftime("%Y-%m-%dT%H:%M:%SZ"), str(time() + 30), str(1000 * (time() + 30))):
        assert duration(text) == pytest.approx(30, abs=1.5)
    assert duration((at - timedelta(hours=1)).isoformat()) == 0


@pytest.mark.parametrize(
    ("headers", "calls", "tokens"),
    [
        ({}, None, None),
        ({"x-ratelimit-remaining-requests": "3"}, None, None),
        (
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "149984",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            Allowance(0, 1, 60),
            Allowance(149984, 360, None),
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "5",
                "anthropic-ratelimit-requests-reset": "2000-01-01T00:00:00Z",
                "anthropic-ratelimit-tokens-limit": "8000",
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2000-01-01T00:00:00Z",
                "anthropic-ratelimit-input-tokens-limit": "30000",
                "anthropic-ratelimit-input-tokens-remaining": "9000",
                "anthropic-ratelimit-input-tokens-reset": "2000-01-01T00:00:00Z",
                "anthropic-ratelimit-output-tokens-limit": "8000",
                "anthropic-ratelimit-output-tokens-remaining": "0",
                "anthropic-ratelimit-output-tokens-reset": "2000-01-01T00:00:00Z",
            },
            Allowance(5, 0, 50),
            Allowance(0, 0, None),
        ),
    ],
)
def test_what_is_left(headers: dict[str, str], calls: Allowance | None, tokens: Allowance | None) -> None:
    assert allowance(headers, by_tokens=False) == calls
    assert allowance(headers, by_tokens=True) == tokens


@pytest.mark.parametrize(
    ("headers", "text", "expected"),
    [
        ({}, "Too many requests", False),
        ({}, "Rate limit reached on tokens per min (TPM): Limit 10000", True),
        ({}, "Rate limit reached on requests per min (RPM): Limit 3", False),
        ({"x-ratelimit-remaining-tokens": "10", "x-ratelimit-reset-tokens": "1s"}, "slow down", True),
        ({"x-ratelimit-remaining-tokens": "9000", "x-ratelimit-reset-tokens": "1s"}, "slow down", False),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}, "tokens per min", False),
    ],
)
def test_what_there_was_too_much_of(headers: dict[str, str], text: str, expected: bool) -> None:
    assert is_about_tokens(headers, text, 500) is expected


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({}, "Too many requests", None),
        ({}, "Rate limit reached. Please try again in 6m0s. Visit the site.", 360),
        ({}, '{"@type": "RetryInfo", "retryDelay": "34s"}', 34),
        ({}, "Please retry in 34.07s.", 34.07),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, "try again in 5s", 0.02),
        ({"Retry-After": "7"}, "try again in 5s", 7),
    ],
)
def test_how_long_a_refusal_lasts(headers: dict[str, str], text: str, seconds: float | None) -> None:
    assert refusal(text, 429, headers).retry_after == seconds
