from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, ValidationInfo, field_validator

from pytest_rubrics import yaml_document
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.variables import Secret
from pytest_rubrics.yaml_files import YamlModel, load_yaml


class Part(YamlModel):
    size: int = Field(ge=1)
    unit: Literal["mm", "cm"] = "mm"


class Cat(YamlModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(YamlModel):
    kind: Literal["dog"] = "dog"
    name: str = Field(default="", description="what it is called by")


def _kind(data: Any) -> Any:
    return data.get("kind", "dog") if isinstance(data, dict) else "dog"


class Example(YamlModel):
    title: Annotated[str, Field(min_length=1, description="a text to print")]
    count: int = 1
    ratio: float = Field(default=0.5, gt=0, lt=1e6)
    open: bool = False
    parts: list[Part] = Field(default_factory=list)
    by_name: dict[str, Part] = Field(default_factory=dict)
    choice: str | list[int] | None = None
    either: bool | Part | None = None
    pet: Annotated[Annotated[Cat, Tag("cat")] | Annotated[Dog, Tag("dog")], Discriminator(_kind)] | None = None
    told: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    api_key: Secret | None = None
    headers: dict[str, Secret] = Field(default_factory=dict)
    params: dict[str, JsonValue] = Field(default_factory=dict)
    written_from: str = Field(default="", alias="from")


def load(tmp_path: Path, text: str | bytes, model: Any = Example) -> Any:
    path = tmp_path / "例子.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_yaml(path, model, shown_as="例子.yaml")


def faults(tmp_path: Path, text: str | bytes, model: Any = Example) -> list[str]:
    with pytest.raises(FaultsError) as caught:
        load(tmp_path, text, model)
    return str(caught.value).split("\n")


# What is read


def test_a_file_is_read_into_the_model(tmp_path: Path) -> None:
    text = "title: 标题\nparts:\n  - {size: 3, unit: cm}\nby_name: {左: {size: 1}}\npet: {name: Rex}\nfrom: here\n"
    example = load(tmp_path, text)
    assert example.title == "标题"
    assert example.parts == [Part(size=3, unit="cm")]
    assert example.by_name == {"左": Part(size=1)}
    assert example.pet == Dog(name="Rex")
    assert example.written_from == "here"


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbftitle: \xe4\xb8\xad\r\ncount: 2\r\n",
        "title: 中\ncount: 2".encode(),
        "---\ntitle: 中\ncount: 2\n...\n".encode(),
    ],
    ids=["bom and crlf", "no last newline", "markers"],
)
def test_bom_crlf_and_document_markers_are_read(text: bytes, tmp_path: Path) -> None:
    assert load(tmp_path, text) == Example(title="中", count=2)


def test_keys_are_text_as_they_are_written(tmp_path: Path) -> None:
    text = "title: x\nparams: {no: 1, on: 2, 1: 3, 1.50: 4, null: 5, 2026-01-01: 6}\n"
    assert load(tmp_path, text).params == {"no": 1, "on": 2, "1": 3, "1.50": 4, "null": 5, "2026-01-01": 6}


def test_a_number_with_an_exponent_is_a_number(tmp_path: Path) -> None:
    text = 'title: x\nparams: {a: 1e-3, b: 2E5, c: "1e-3", d: 1.5e3, e: 1e}\n'
    assert load(tmp_path, text).params == {"a": 0.001, "b": 2e5, "c": "1e-3", "d": 1500.0, "e": "1e"}


def test_a_lone_equals_sign_is_text(tmp_path: Path) -> None:
    assert load(tmp_path, "title: =\n").title == "="


def test_an_alias_repeats_its_anchor(tmp_path: Path) -> None:
    text = "title: x\nparts: [&p {size: 2}, *p]\n"
    assert load(tmp_path, text).parts == [Part(size=2), Part(size=2)]


def test_variables_are_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICS_TEST_COUNT", "12")
    text = """
title: "${RUBRICS_TEST_COUNT}"
count: ${RUBRICS_TEST_COUNT}
ratio: ${RUBRICS_TEST_RATIO:-0.25}
open: ${RUBRICS_TEST_OPEN:-yes}
choice: ${RUBRICS_TEST_CHOICE:-}
params:
  plain: ${RUBRICS_TEST_COUNT}
  part: n=${RUBRICS_TEST_COUNT}
  list: ["${RUBRICS_TEST_COUNT}"]
"""
    example = load(tmp_path, text)
    assert (example.title, example.count, example.ratio, example.open, example.choice) == ("12", 12, 0.25, True, None)
    assert example.params == {"plain": 12, "part": "n=12", "list": ["12"]}


def test_credentials_are_not_read_at_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUBRICS_TEST_ABSENT", raising=False)
    text = """
title: x
api_key: ${RUBRICS_TEST_ABSENT}
headers: {X-Number: 12, Authorization: "Bearer ${RUBRICS_TEST_ABSENT}"}
"""
    example = load(tmp_path, text)
    assert str(example.api_key) == "${RUBRICS_TEST_ABSENT}"
    assert example.headers["X-Number"].resolve() == "12"
    assert example.model_dump(mode="json")["headers"] == {
        "X-Number": "***",
        "Authorization": "Bearer ${RUBRICS_TEST_ABSENT}",
    }


def test_files_are_read_alike_without_the_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_document, "_Loader", yaml.SafeLoader)
    text = 'title: "标题"\ncount: ${RUBRICS_TEST_ABSENT:-3}\nparams: {a: 1e-3, b: no, c: "no", d: 5}\n'
    example = load(tmp_path, text)
    assert example.count == 3
    assert example.params == {"a": 0.001, "b": False, "c": "no", "d": 5}
    assert faults(tmp_path, "title: x\ncount: 'x'\n") == [
        '例子.yaml:2, count: found "x" (text), expected a whole number.'
    ]
    assert faults(tmp_path, "title: x\nfrom: a\x07b\n") == [r"例子.yaml:2: character '\x07' is not allowed in YAML."]


def test_other_pydantic_models_are_read_too(tmp_path: Path) -> None:
    class Plain(BaseModel):
        model_config = ConfigDict(extra="forbid")
        size: int

    assert faults(tmp_path, "sise: 1\n", Plain) == [
        "例子.yaml:1, size: the key is missing.",
        "例子.yaml:1, sise: unknown key. Did you mean size?",
    ]


def test_the_context_reaches_validators(tmp_path: Path) -> None:
    class Asks(YamlModel):
        name: str

        @field_validator("name")
        @classmethod
        def _greets(cls, name: str, info: ValidationInfo) -> str:
            return f"{cast('Mapping[str, str]', info.context)['greeting']} {name}"

    path = tmp_path / "a.yaml"
    path.write_text("name: you\n", encoding="utf-8")
    assert load_yaml(path, Asks, context={"greeting": "hello"}).name == "hello you"


# Faults of values: one text, one line of the message


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("count: many", '2, count: found "many" (text), expected a whole number.'),
        ('count: "12"', '2, count: found "12" (text), expected a whole number. Remove the quotes.'),
        ("count: 1.5", "2, count: found 1.5 (a number), expected a whole number."),
        ("count: yes", "2, count: found yes, which YAML reads as true, expected a whole number."),
        ("count: true", "2, count: found true, expected a whole number."),
        ("count:", "2, count: found nothing, expected a whole number."),
        ("count: [1]", "2, count: found a list, expected a whole number."),
        ("count: {a: 1}", "2, count: found a mapping, expected a whole number."),
        ("count: 2026-11-01", "2, count: found 2026-11-01 (a date), expected a whole number."),
        ("ratio: 0", "2, ratio: found 0 (a number), expected a number greater than 0."),
        ("ratio: 1e9", "2, ratio: found 1e9 (a number), expected a number less than 1e+06."),
        ("ratio: .inf", "2, ratio: found .inf (a number), expected a finite number."),
        ("open: maybe", '2, open: found "maybe" (text), expected true or false.'),
        ('open: "no"', '2, open: found "no" (text), expected true or false. Remove the quotes.'),
        ("open: 1", "2, open: found 1 (a number), expected true or false."),
        ("from: no", '2, from: found no, which YAML reads as false, expected text. Put it in quotes: "no".'),
        ("from: 010", '2, from: found 010 (a number), expected text. Put it in quotes: "010".'),
        ("from: 2026-11-01", '2, from: found 2026-11-01 (a date), expected text. Put it in quotes: "2026-11-01".'),
        ("parts: {size: 1}", "2, parts: found a mapping, expected a list."),
        ("parts: [3]", "2, parts[0]: found 3 (a number), expected a mapping (key: value)."),
        ("parts: [{size: 1}, {size: 0}]", "2, parts[1].size: found 0 (a number), expected a number of at least 1."),
        (
            "parts: [{size: 1, unit: km}]",
            '2, parts[0].unit: found "km" (text), expected one of mm or cm.',
        ),
        ("parts: [{unit: cm}]", "2, parts[0].size: the key is missing."),
        ("by_name: {左: {siz: 1, size: 1}}", "2, by_name.左.siz: unknown key. Did you mean size?"),
        ("choice: 3", '2, choice: found 3 (a number), expected text or a list. Put it in quotes: "3".'),
        ("choice: [1, x]", '2, choice[1]: found "x" (text), expected a whole number.'),
        ("either: {size: x}", '2, either.size: found "x" (text), expected a whole number.'),
        ("either: {sise: 1, size: 1}", "2, either.sise: unknown key. Did you mean size?"),
        ("either: 3", "2, either: found 3 (a number), expected true or false or a mapping (key: value)."),
        ("pet: {kind: dgo}", '2, pet.kind: found "dgo" (text), expected one of cat, dog. Did you mean dog?'),
        ("pet: {kind: 7}", "2, pet.kind: found 7 (a number), expected one of cat, dog."),
        ("pet: {kind: cat, name: Tom}", "2, pet.name: unknown key. Allowed are kind, lives."),
        ("pet: {lives: 7}", "2, pet.lives: unknown key. Allowed are kind, name."),
        ("told: {kind: cow}", '2, told.kind: found "cow" (text), expected one of cat, dog.'),
        ("told: {name: Rex}", "2, told.kind: the key is missing."),
        ("pet: Tom", '2, pet: found "Tom" (text), expected a mapping (key: value).'),
        (
            "params: {a: [{b: 2026-11-01}]}",
            "2, params.a[0].b: found 2026-11-01 (a date), expected text, a number, true or false, a list or a mapping. "
            'Put it in quotes: "2026-11-01".',
        ),
        ("params: {a: [1, .nan]}", "2, params.a[1]: found .nan (a number), expected a finite number."),
        ("params: x", '2, params: found "x" (text), expected a mapping (key: value).'),
        ("headers: {A: null}", "2, headers.A: found nothing, expected text."),
        ("coutn: 1", "2, coutn: unknown key. Did you mean count?"),
        ("Counts: 1", "2, Counts: unknown key. Did you mean count?"),
        ("count: 1\ncount: 2", "3, count: the key stands here again, first on line 2. Remove one of them."),
        ("<<: {count: 1}", "2, <<: merging with << is not supported. Write the keys out."),
        ("count: !!python/name:os.system", "2, count: the YAML tag !!python/name:os.system is not supported."),
        ("from: !secret x", "2, from: the YAML tag !secret is not supported."),
        ("params: !!set {a}", "2, params: the YAML tag !!set is not supported."),
        ("from: 2026-13-45", "2, from: '2026-13-45' cannot be read as a date. Put it in quotes if it is text."),
        ("count: !!int x", "2, count: 'x' cannot be read as a whole number. Put it in quotes if it is text."),
        ("open: !!bool x", "2, open: 'x' cannot be read as true or false. Put it in quotes if it is text."),
        ("? [a]\n: 1", "2: a key is a list or a mapping, expected text."),
        ("params: &p {a: *p}", "2, params.a: the value contains itself."),
        (
            "from: ${RUBRICS_TEST_ABSENT}",
            "2, from: the environment variable RUBRICS_TEST_ABSENT is not set. "
            "Set it, or write ${RUBRICS_TEST_ABSENT:-default}.",
        ),
        (
            "count: ${RUBRICS_TEST_ABSENT:-many}",
            '2, count: found "many" (text, from ${RUBRICS_TEST_ABSENT:-many}), expected a whole number.',
        ),
        (
            "api_key: ${OPENAI_KEY",
            "2, api_key: '${OPENAI_KEY' holds a variable that cannot be read. Write ${NAME} or ${NAME:-default}.",
        ),
    ],
)
def test_a_fault_names_line_key_what_was_found_and_what_was_expected(
    text: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUBRICS_TEST_ABSENT", raising=False)
    assert faults(tmp_path, f"title: x\n{text}\n") == [f"例子.yaml:{fault}"]


def test_a_missing_key_is_described(tmp_path: Path) -> None:
    assert faults(tmp_path, "\n\ncount: 2\n") == ["例子.yaml:3, title: the key is missing, expected a text to print."]


def test_an_empty_text_is_named(tmp_path: Path) -> None:
    assert faults(tmp_path, "title: ''\n") == ['例子.yaml:1, title: found "" (text), expected text that is not empty.']


def test_a_long_text_is_shortened(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, f"title: x\ncount: {'很' * 200}\n")
    assert fault == f'例子.yaml:2, count: found "{"很" * 57}..." (text), expected a whole number.'


def test_all_faults_of_a_file_come_at_once_in_its_order(tmp_path: Path) -> None:
    text = """\
titel: x
count: many
parts:
  - size: 0
  - unti: cm
    size: 1
open: ${RUBRICS_TEST_ABSENT}
count: 3
"""
    assert faults(tmp_path, text) == [
        "例子.yaml:1, title: the key is missing, expected a text to print.",
        "例子.yaml:1, titel: unknown key. Did you mean title?",
        '例子.yaml:2, count: found "many" (text), expected a whole number.',
        "例子.yaml:4, parts[0].size: found 0 (a number), expected a number of at least 1.",
        "例子.yaml:5, parts[1].unti: unknown key. Did you mean unit?",
        "例子.yaml:7, open: the environment variable RUBRICS_TEST_ABSENT is not set. "
        "Set it, or write ${RUBRICS_TEST_ABSENT:-default}.",
        "例子.yaml:8, count: the key stands here again, first on line 2. Remove one of them.",
    ]


def test_a_credential_in_the_wrong_place_is_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abc-123-def")
    [fault] = faults(tmp_path, "title: x\ncount: ${SOME_API_KEY}\n")
    assert fault == '例子.yaml:2, count: found "***" (text, from ${SOME_API_KEY}), expected a whole number.'


# Faults of whole files


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\ufeff"])
def test_an_empty_file_is_a_fault(text: str, tmp_path: Path) -> None:
    assert faults(tmp_path, text) == ["例子.yaml:1: the file is empty, expected keys and values."]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a\n- b\n", "1: found a list, expected a mapping (key: value)."),
        ("hello\n", '1: found "hello" (text), expected a mapping (key: value).'),
        (
            "title: a: b\n",
            "1: not valid YAML: mapping values are not allowed in this context. "
            "Put text that holds ': ' in quotes, and indent the keys of one mapping alike.",
        ),
        (
            "title: x\n\tcount: 1\n",
            "2: not valid YAML: found a tab character that violates indentation "
            "(while scanning a plain scalar, from line 1). Indent with spaces, not with tabs.",
        ),
        (
            "title: x\nparts: [1,\ncount: 2\n",
            "4: not valid YAML: did not find expected ',' or ']' (while parsing a flow sequence, from line 2).",
        ),
        (
            "title: *x\n",
            "1: not valid YAML: found undefined alias. Put text that begins with * in quotes.",
        ),
        (
            "title: @x\n",
            "1: not valid YAML: found character that cannot start any token "
            "(while scanning for the next token, from line 1). Put the value in quotes, and indent with spaces.",
        ),
        (
            "title: x\nparams: {a: ${HOME}}\n",
            "2: not valid YAML: did not find expected ',' or '}' (while parsing a flow mapping, from line 2). "
            "Put ${...} in quotes where it stands inside { } or [ ].",
        ),
        (
            "title: x\n---\ntitle: y\n",
            "2: not valid YAML: but found another document (expected a single document in the stream, from line 1). "
            "Keep one document in a file: remove the line '---'.",
        ),
        ("title: x\nfrom: a\x07b\n", r"2: character '\x07' is not allowed in YAML."),
        (b"title: x\nfrom: \xb7\xa8\n", "2: byte 0xb7 is not UTF-8 text. Save the file as UTF-8."),
        ("title: x\n".encode("utf-16"), "1: byte 0xff is not UTF-8 text. Save the file as UTF-8."),
    ],
)
def test_a_file_that_is_no_yaml_is_one_fault(text: str | bytes, fault: str, tmp_path: Path) -> None:
    assert faults(tmp_path, text) == [f"例子.yaml:{fault}"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FaultsError) as caught:
        load_yaml(tmp_path, Example, shown_as="models")
    assert str(caught.value) == "models: this is a folder, expected a YAML file."


def test_a_missing_file_is_told_with_near_names(tmp_path: Path) -> None:
    (tmp_path / "模型一.yaml").write_text("", encoding="utf-8")
    with pytest.raises(FaultsError) as caught:
        load_yaml(tmp_path / "模型二.yaml", Example, shown_as="模型二.yaml")
    assert str(caught.value) == "模型二.yaml: no such file. Did you mean 模型一.yaml?"


def test_without_a_shown_name_the_path_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("- 1\n", encoding="utf-8")
    with pytest.raises(FaultsError) as caught:
        load_yaml(path, Example)
    assert caught.value.faults[0].file == str(path)
