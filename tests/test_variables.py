from __future__ import annotations

import pickle

import pytest

from pytest_rubrics import redaction
from pytest_rubrics.redaction import redact
from pytest_rubrics.variables import Secret, UnsetVariableError, problems, resolve


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_registered", frozenset())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${GIVEN}", "值"),
        ("a ${GIVEN} b ${GIVEN}", "a 值 b 值"),
        ("${GIVEN:-other}", "值"),
        ("${ABSENT:-other}", "other"),
        ("${ABSENT:-}", ""),
        ("${BLANK:-other}", "other"),
        ("${ABSENT:-http://127.0.0.1:8000/v1}", "http://127.0.0.1:8000/v1"),
        ("$${GIVEN}", "${GIVEN}"),
        ("$GIVEN {x}", "$GIVEN {x}"),
    ],
)
def test_variables_are_replaced(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "值")
    monkeypatch.setenv("BLANK", "")
    monkeypatch.delenv("ABSENT", raising=False)
    assert problems(text) == []
    assert resolve(text) == expected


def test_an_unset_variable_is_named_with_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICS_TEST_BASE", "x")
    assert problems("${RUBRICS_TEST_BASES}") == [
        (
            "the environment variable RUBRICS_TEST_BASES is not set.",
            "Did you mean RUBRICS_TEST_BASE? Set it, or write ${RUBRICS_TEST_BASES:-default}.",
        )
    ]


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${A B}", "${1A}", "${A:default}"])
def test_what_is_no_variable_is_a_problem(text: str) -> None:
    assert problems(text) == [(f"{text!r} holds a variable that cannot be read.", "Write ${NAME} or ${NAME:-default}.")]


def test_a_secret_shows_its_template_and_resolves_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_VALUE", raising=False)
    secret = Secret("${SOME_VALUE}", place="m.yaml:2, api_key")
    assert str(secret) == repr(secret) == "${SOME_VALUE}"
    assert not secret.is_set()
    monkeypatch.setenv("SOME_VALUE", "abc-123-def")
    assert secret.is_set()
    assert secret.resolve() == "abc-123-def"
    assert redact("got abc-123-def") == "got ***"


@pytest.mark.parametrize("state", ["not set", "empty"])
def test_an_unset_secret_names_its_place(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICS_NO_SUCH", "")
    if state == "not set":
        monkeypatch.delenv("RUBRICS_NO_SUCH")
    with pytest.raises(UnsetVariableError) as caught:
        Secret("${RUBRICS_NO_SUCH}", place="configs/models/甲.yaml:2, api_key").resolve()
    assert str(caught.value) == (
        f"configs/models/甲.yaml:2, api_key: the environment variable RUBRICS_NO_SUCH is {state}. "
        "Set it, or write ${RUBRICS_NO_SUCH:-default}."
    )


def test_a_secret_written_out_is_masked_and_redacted() -> None:
    secret = Secret("Bearer abc-123-def", name="Authorization")
    assert str(secret) == repr(secret) == "***"
    assert secret.resolve() == "Bearer abc-123-def"
    assert redact("token abc-123-def") == "token ***"


def test_a_secret_that_travels_is_hidden_where_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(Secret("a-key-written-out-Xyz", place="model.yaml:2"))
    monkeypatch.setattr(redaction, "_registered", frozenset())  # as in another process
    secret = pickle.loads(sent)
    assert redact("it is a-key-written-out-Xyz.") == "it is ***."
    assert secret.resolve() == "a-key-written-out-Xyz"


def test_a_default_written_out_is_masked() -> None:
    assert str(Secret("Bearer ${SOME_VALUE:-abc-123-def}")) == "Bearer ${SOME_VALUE:-***}"


def test_a_harmless_header_is_not_redacted_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_TITLE", "rubric-bench-2")
    assert Secret("${APP_TITLE}", name="X-Title").resolve() == "rubric-bench-2"
    Secret("rubric-bench-3", name="X-Title").resolve()
    assert redact("rubric-bench-2 rubric-bench-3") == "rubric-bench-2 rubric-bench-3"


def test_secrets_of_one_template_are_equal() -> None:
    assert Secret("${A}") == Secret("${A}", place="elsewhere")
    assert len({Secret("${A}"), Secret("${A}"), Secret("${B}")}) == 2
