from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.judging.json_reply import Found, Json, Object, find, parse

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(st.tuples(st.text(max_size=20), inner), max_size=4).map(Object)
    ),
    max_leaves=12,
)


def dumped(value: Json, indent: int | None = None) -> str:
    """The value as strict JSON, repeated keys and all."""
    if isinstance(value, Object):
        return "{" + ", ".join(f"{json.dumps(key)}: {dumped(member)}" for key, member in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False, indent=indent)


def never(_: str) -> bool:
    return False


@given(VALUES)
def test_strict_json_amid_prose_is_read_as_it_is(value: Json) -> None:
    text = dumped(Object([("value", value)]))
    assert find(f"So [1]:\n{text}\nDone.", never).values == [Object([("value", value)])]


@given(VALUES)
def test_strict_json_alone_is_read_as_it_is(value: Json) -> None:
    assert parse(dumped(value)) == value


def test_a_repeated_key_is_kept() -> None:
    twice = Object([("a", 1), ("a", 2)])
    assert find('{"a": 1, "a": 2}', never) == Found([twice])
    assert find("{a: 1, a: 2,}", never) == Found([twice])


def test_the_whole_objects_of_a_broken_value_are_kept() -> None:
    assert find('[{"a": {"b": 1}}, {"c": 2}, oops}', never).values == [
        [Object([("a", Object([("b", 1)]))]), Object([("c", 2)])]
    ]


def test_only_what_matters_raises_a_doubt() -> None:
    broken = 'see {"a": 1, "b": } there'
    assert find(broken, never).doubt is None
    assert find(broken, "a".__eq__).doubt == "} there"
    assert find('a stray "a": 1 here', "a".__eq__).doubt == '"a": 1 here'
    assert find('he says "{a: 1}", so', "a".__eq__).doubt == '{a: 1}", so'


def test_an_object_that_only_begins_raises_a_doubt() -> None:
    for end in ("{", '{"', '{ "ke', '{"key"'):
        assert find('{"a": 1}\n' + end, never) == Found([Object([("a", 1)])], doubt=end)


def test_an_escape_that_json_does_not_know_stands_for_itself() -> None:
    assert find(r'{"a": "\(x\) \n \u00e9 \u12", }', never).values == [Object([("a", "\\(x\\) \n é \\u12")])]


def test_words_and_numbers_are_told_apart() -> None:
    text = "{a: TRUE, b: None, c: -1.50, d: １２, e: two words, f: 1e3, g: 1.2.3, h: nil}"
    members = ("a", True), ("b", None), ("c", -1.5), ("d", 12), ("e", "two words"), ("f", 1000.0), ("g", "1.2.3")
    assert find(text, never).values == [Object([*members, ("h", "nil")])]
