from __future__ import annotations

from typing import Any

import jmespath
import pytest

from pytest_rubrics.expressions import ExpressionError, compile_expression, compile_template, placeholders

ROWS: list[Any] = [
    {"a": {"b": [{"c": 1}, {"c": None}]}, "list": [1, 2], "text": "x"},
    {"a": {"b": "text"}, "list": {}},
    {"a": []},
    {},
    "text",
    None,
]


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize(
    "path", ["a", "a.b", "a.b[0]", "a.b[0].c", "a.b[1].c", "a.b[9]", "list[1]", "text[0]", "a[0].b"]
)
def test_plain_paths_agree_with_jmespath(path: str, row: Any) -> None:
    assert compile_expression(path)(row) == jmespath.search(path, row)


def test_expressions_beyond_paths_go_to_jmespath() -> None:
    assert compile_expression("a.b[].c | [0]")(ROWS[0]) == 1
    assert compile_expression("'en'")(ROWS[0]) == "en"


def test_what_is_not_jmespath_is_refused_with_its_text() -> None:
    with pytest.raises(ExpressionError, match=r"'a\.\[' is not a JMESPath expression"):
        compile_expression("a.[")


def test_a_function_on_the_wrong_type_names_the_expression() -> None:
    get = compile_expression("join(' ', text)")
    with pytest.raises(ExpressionError, match=r"join\(' ', text\).* cannot be evaluated"):
        get(ROWS[0])


def test_a_template_is_filled_from_expressions() -> None:
    assert compile_template("{text}: {list[1]}!")(ROWS[0]) == "x: 2!"


def test_a_template_without_places_is_a_constant() -> None:
    assert compile_template("default")({}) == "default"


def test_a_template_with_a_missing_value_gives_none() -> None:
    assert compile_template("{text}_{missing}")(ROWS[0]) is None


def test_braces_in_a_value_are_left_alone() -> None:
    assert compile_template("<{text}>")({"text": "{text} {0}"}) == "<{text} {0}>"


def test_placeholders_are_listed_in_order() -> None:
    assert placeholders("{ track }_{domain}") == ["track", "domain"]
