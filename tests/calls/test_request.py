from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_rubrics.calls.request import Request

REQUEST = Request(
    model="openai/model",
    address="https://example.test/v1",
    messages=[{"role": "user", "content": "Wann kommt ein Vertrag zustande? 合同何时成立？"}],
    params={"temperature": 0.5, "reasoning": {"effort": "high", "summary": "auto"}},
    extra_body={"top_k": 20},
    response_format={"type": "json_object"},
    tools=[{"type": "function", "function": {"name": "search"}}],
    repeat=2,
    seat="a",
    attempt=3,
)


def test_the_key_of_a_request_never_changes() -> None:
    # A new key would make every stored reply be paid for again: change it with KEY_VERSION and a word in the changelog.
    assert REQUEST.key() == "226a73a359a7359d5f0102a0d178b30b2391044034aab592ea4f3b9b210014b8"
    assert REQUEST.question_key() == "812a54b7485b651a6b03c7cf2d4d883d1ec25d17cab990c1a92d090b315c4737"


@pytest.mark.parametrize(
    "change",
    [
        {"model": "openai/other"},
        {"address": "https://other.test/v1"},
        {"address": None},
        {"address": {"weights": "abc", "context": 8192}},
        {"messages": [{"role": "system", "content": "Wann kommt ein Vertrag zustande? 合同何时成立？"}]},
        {"messages": [*REQUEST.messages, {"role": "assistant", "content": ""}]},
        {"params": {"temperature": 0.6, "reasoning": {"effort": "high", "summary": "auto"}}},
        {"params": {"temperature": 0.5, "reasoning": {"effort": "low", "summary": "auto"}}},
        {"params": {"temperature": 0.5}},
        {"extra_body": {"top_k": 21}},
        {"extra_body": {}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes"]}}}},
        {"response_format": None},
        {"tools": None},
        {"repeat": 1},
        {"seat": "b"},
        {"seat": None},
        {"attempt": 4},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_is_asked_is_in_the_key(change: Mapping[str, Any]) -> None:
    assert replace(REQUEST, **change).key() != REQUEST.key()


def test_the_schema_itself_is_in_the_key() -> None:
    def with_words(*words: str) -> Request:
        schema = {"type": "json_schema", "json_schema": {"name": "verdicts", "schema": {"enum": list(words)}}}
        return replace(REQUEST, response_format=schema)

    assert with_words("yes", "no").key() != with_words("yes", "maybe").key()


def test_the_order_of_names_is_not_in_the_key() -> None:
    params = {"reasoning": {"summary": "auto", "effort": "high"}, "temperature": 0.5}
    assert list(params) != list(REQUEST.params)
    assert replace(REQUEST, params=params).key() == REQUEST.key()


def test_the_order_of_messages_is_in_the_key() -> None:
    two = [{"role": "user", "content": "first"}, {"role": "user", "content": "second"}]
    assert replace(REQUEST, messages=two).key() != replace(REQUEST, messages=two[::-1]).key()


def test_all_attempts_at_a_question_share_its_key() -> None:
    again = REQUEST.again(7)
    assert (again.attempt, again.question_key()) == (7, REQUEST.question_key())
    assert again.key() != REQUEST.key()


def test_another_attempt_can_say_what_was_wrong() -> None:
    longer = [*REQUEST.messages, {"role": "user", "content": "That was no JSON."}]
    assert REQUEST.again(4, longer).messages == longer
    assert REQUEST.again(4).messages == REQUEST.messages


def test_a_lone_surrogate_in_the_data_has_a_key() -> None:
    text = json.loads('"broken \\ud83d emoji"')
    other = json.loads('"broken \\ud83e emoji"')
    keys = {replace(REQUEST, messages=[{"role": "user", "content": one}]).key() for one in (text, other)}
    assert len(keys) == 2


def test_a_number_that_json_does_not_know_has_no_key() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(REQUEST, params={"temperature": float("nan")}).key()
