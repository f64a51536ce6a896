from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rubrics import redaction
from pytest_rubrics.redaction import is_clean, is_credential_name, redact, redact_json, register_secret

SECRET = 'Kx7/p+q=Z"密\\9w'


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_registered", frozenset())


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower().replace("kx7", "Kx7").replace("q%3dz", "q%3dZ"),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_registered_secret_is_replaced_in_every_spelling(spelling: str) -> None:
    register_secret(SECRET)
    assert redact(f"before {spelling} after") == "before *** after"


@pytest.mark.parametrize("user", ["", "u", "me", "bob", "alice"])
def test_a_password_is_replaced_inside_basic_credentials(user: str) -> None:
    register_secret("correct-Horse-7")
    encoded = base64.b64encode(f"{user}:correct-Horse-7:more".encode()).decode()
    hidden = redact(f"x={encoded}")
    assert "***" in hidden
    left = base64.b64decode(hidden.removeprefix("x=").split("***")[0] + "==")
    assert f"{user}:".encode().startswith(left.rstrip(b"\0"))


def test_variables_with_the_name_of_a_credential_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-of-a-key-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "value-of-a-key-2")
    monkeypatch.setenv("DB_PASSWORD", "hunter2hunter2")
    monkeypatch.setenv("HARMLESS", "value-of-a-key-3")
    text = "value-of-a-key-1, value-of-a-key-2, hunter2hunter2, value-of-a-key-3"
    assert redact(text) == "***, ***, ***, value-of-a-key-3"


def test_a_variable_set_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redact("late-value-9") == "late-value-9"
    monkeypatch.setenv("LATE_TOKEN", "late-value-9")
    assert redact("late-value-9") == "***"


@pytest.mark.parametrize("value", ["", "EMPTY", "none", "short-1", "password", "not-needed", "00000000", "12345678"])
def test_values_that_are_no_secret_are_left_in_the_text(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", value)
    register_secret(value)
    text = f"an answer with {value} in it"
    assert redact(text) == text


def test_the_longer_of_two_secrets_goes_first() -> None:
    register_secret("abcdefgh1")
    register_secret("abcdefgh1-and-more")
    assert redact("abcdefgh1-and-more") == "***"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Authorization: Bearer abcdefgh12345678ijk", "Authorization: ***"),
        ('{"authorization": "bearer abcdefgh12345678ijk"}', '{"authorization": "***"}'),
        ("Authorization: Basic dXNlcjpwYXNzd29yZDEyMw==", "Authorization: ***"),
        ("Incorrect API key provided: sk-proj-abcde************f1xyz.", "Incorrect API key provided: ***."),
        ("sk-ant-api03-AbCdEf012345678", "***"),
        ("?key=AIzaSyA1234567890abcdefghijklmno", "?key=***"),
    ],
)
def test_what_looks_like_a_token_is_replaced(text: str, hidden: str) -> None:
    assert redact(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "Bearer instruments/certificates are negotiable.",
        "a bearer token of the note",
        "Basic understanding/interpretation",
        "task-12345678901234567890",
        "risk-weighted-assets-2024-total",
        "sk-learn and sk-circle-fade-dot",
        "The AIza prefix",
    ],
)
def test_prose_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_nested_data_is_copied_with_its_texts_redacted() -> None:
    register_secret("s3cret-value")
    data = {"s3cret-value": ["is s3cret-value", 1, None, True, {"a": ("s3cret-value", 2.5)}], "kept": "text"}
    copy = redact_json(data)
    assert copy == {"***": ["is ***", 1, None, True, {"a": ["***", 2.5]}], "kept": "text"}
    assert data["kept"] == "text"
    assert "s3cret-value" in data


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OPENAI_API_KEY", True),
        ("openai_apikey", True),
        ("HF_TOKEN", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("x-api-key", True),
        ("Authorization", True),
        ("Proxy-Authorization", True),
        ("MAX_TOKENS", False),
        ("X-Title", False),
        ("MONKEY", False),
        ("prompt_cache_key", False),
    ],
)
def test_which_names_hold_credentials(name: str, expected: bool) -> None:
    assert is_credential_name(name) is expected


_spoiled = st.sampled_from(
    [
        SECRET,
        quote(SECRET, safe=""),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        "Bearer\nabcdefghijklmnop1",
        "basic \t abcdefghijklmnop1",
        "sk-abcdefghijklmnop1",
        "AKIAabcdefghijklmnop1",
    ]
)
_joint = st.sampled_from(["\n", "\\", "\\n", '"', "\t"])
_text = st.lists(_spoiled | st.text(max_size=5) | _joint, max_size=4).map("".join)
_data = st.recursive(
    _text | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)


@given(_data)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_json_that_is_clean_has_nothing_to_replace(data: object) -> None:
    register_secret(SECRET)
    if is_clean(json.dumps(data, ensure_ascii=False)):
        assert redact_json(data) == data


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz ,.\n"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_prose_is_clean(text: str) -> None:
    register_secret(SECRET)
    assert is_clean(json.dumps({"answer": text}))
