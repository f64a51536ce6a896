"""Read a YAML file into a pydantic model, and say of every fault where it stands and how to mend it."""

from __future__ import annotations

import datetime
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.redaction import redact
from pytest_rubrics.suggestions import did_you_mean
from pytest_rubrics.yaml_document import Document, KeyPath, read_document

T = TypeVar("T")

_A_NUMBER, _A_MAPPING, _A_LIST, _TEXT = "a number", "a mapping (key: value)", "a list", "text"
_A_WHOLE_NUMBER, _TRUE_OR_FALSE = "a whole number", "true or false"
_EXPECTED = {
    "bool_parsing": _TRUE_OR_FALSE,
    "bool_type": _TRUE_OR_FALSE,
    "dataclass_type": _A_MAPPING,
    "dict_type": _A_MAPPING,
    "finite_number": "a finite number",
    "float_parsing": _A_NUMBER,
    "float_type": _A_NUMBER,
    "frozen_set_type": _A_LIST,
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "int_from_float": _A_WHOLE_NUMBER,
    "int_parsing": _A_WHOLE_NUMBER,
    "int_type": _A_WHOLE_NUMBER,
    "invalid-json-value": "text, a number, true or false, a list or a mapping",
    "less_than": "a number less than {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "list_type": _A_LIST,
    "mapping_type": _A_MAPPING,
    "model_attributes_type": _A_MAPPING,
    "model_type": _A_MAPPING,
    "none_required": "nothing",
    "path_type": "a path",
    "set_type": _A_LIST,
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "text of at most {max_length} characters",
    "string_too_short": "text of at least {min_length} characters",
    "string_type": _TEXT,
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
    "tuple_type": _A_LIST,
}


class YamlModel(BaseModel):
    """Base of what is written in YAML: unknown keys and wrong types are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def load_yaml(
    path: Path, model: type[T], *, shown_as: str | None = None, context: Mapping[str, Any] | None = None
) -> T:
    """Read and check one file.

    ``${NAME}`` and ``${NAME:-default}`` in values are replaced from the environment. Under ``api_key`` and ``headers``
    they stay a `Secret`.

    Args:
        path: The file, in UTF-8.
        model: A pydantic model, or a union of such.
        shown_as: Its name in messages; the path if not given.
        context: Handed to the model's validators.

    Raises:
        FaultsError: Everything that is wrong with it, in the order of its lines.
    """
    document = read_document(path, shown_as or str(path))
    value: Any = None
    try:
        value = _adapter(cast(Any, model)).validate_python(document.data, context=dict(context or {}))
    except ValidationError as error:
        # A value that could not be read has its fault already.
        known = {(fault.line, fault.key) for fault in document.faults}
        found = _faults(error, document, model)
        document.faults += [fault for fault in found if (fault.line, fault.key) not in known]
    if document.faults:
        raise FaultsError(sorted(document.faults, key=lambda fault: fault.line or 0))
    return value  # type: ignore[no-any-return]


@lru_cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


@dataclass(frozen=True, slots=True)
class _Mistake:
    """One error of pydantic: where in the data it stands, and at which depths pydantic tried members of a union."""

    path: KeyPath
    branches: frozenset[int]
    error: Mapping[str, Any]


def _faults(error: ValidationError, document: Document, model: Any) -> Iterator[Fault]:
    mistakes = [_mistake(entry, document.data) for entry in error.errors(include_url=False)]
    while mistakes:
        first = mistakes.pop(0)
        if any(_is_deeper(other, first) for other in mistakes):
            continue
        depth = len(first.path)
        same = [other for other in mistakes if other.path == first.path and depth in other.branches & first.branches]
        mistakes = [other for other in mistakes if other not in same]
        yield _fault(first, same, document, model)


def _mistake(entry: Any, data: Any) -> _Mistake:
    """Find the error's place in the data; what is no part of it names a member of a union, or a validator."""
    path: list[str | int] = []
    branches: set[int] = set()
    value = data
    for part in entry["loc"]:
        if not path and not branches and isinstance(data, dict) and part == data.get("kind"):
            branches.add(0)  # the kind chooses the model; a key may have the same name
        elif (isinstance(value, dict) and part in value) or (isinstance(value, list) and part in range(len(value))):
            path.append(part)
            value = value[part]
        elif entry["type"] in {"missing", "extra_forbidden"} and part == entry["loc"][-1]:
            path.append(part)
        else:
            branches.add(len(path))
    return _Mistake(tuple(path), frozenset(branches), entry)


def _is_deeper(other: _Mistake, mistake: _Mistake) -> bool:
    """Whether another member of the same union came further: its errors are the ones to show."""
    depth = len(mistake.path)
    return depth in mistake.branches & other.branches and len(other.path) > depth and other.path[:depth] == mistake.path


def _fault(mistake: _Mistake, same: list[_Mistake], document: Document, model: Any) -> Fault:
    path, error = mistake.path, mistake.error
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            description = _description(model, document.data, path)
            return document.fault(path, f"the key is missing{f', expected {description}' if description else ''}.")
        case "extra_forbidden":
            allowed = _allowed_keys(model, document.data, path[:-1])
            fix = did_you_mean(str(path[-1]), allowed) or f"Allowed are {', '.join(allowed)}."
            return document.fault(path, "unknown key.", fix)
        case "value_error" | "assertion_error":
            return document.fault(path, f"{redact(str(context['error'])).rstrip('.')}.")
        case "union_tag_invalid":
            expected, value = f"one of {context['expected_tags']}".replace("'", ""), context["tag"]
            if (chooser := _chooser(context)) in error["input"]:
                path, value = (*path, chooser), error["input"][chooser]
        case "union_tag_not_found":
            return document.fault((*path, _chooser(context)), "the key is missing.")
        case _:
            value = error["input"]
            expected = " or ".join(dict.fromkeys(_expected(each.error) for each in (mistake, *same)))
    text = document.texts.get(path, "")
    message = f"found {redact(_describe(value, text))}, expected {expected}."
    return document.fault(path, message, _fix(value, text, expected))


def _chooser(context: Mapping[str, Any]) -> str:
    """The key that chooses between the members of a union; pydantic gives it, or the name of a function, quoted."""
    return str(context["discriminator"]).strip("'_()")


def _expected(error: Mapping[str, Any]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in {"literal_error", "enum"}:
        return f"one of {context['expected']}".replace("'", "")
    if kind == "string_too_short" and context["min_length"] == 1:
        return "text that is not empty"
    if kind in _EXPECTED:
        return _EXPECTED[kind].format(**context)
    return str(error["msg"]).removeprefix("Input should be ")


def _describe(value: Any, text: str) -> str:
    """A value in plain words; `text` is how it is written."""
    source = f", from {text}" if "${" in text else ""
    match value:
        case None:
            return "nothing"
        case bool():
            meaning = str(value).lower()
            return meaning if text.lower() == meaning else f"{text}, which YAML reads as {meaning}"
        case int() | float():
            return f"{value if source else text or value} (a number{source})"
        case str():
            return f'"{value if len(value) <= 60 else value[:57] + "..."}" (text{source})'
        case datetime.date():
            return f"{text} (a date)"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "a value of another kind"


def _fix(value: Any, text: str, expected: str) -> str | None:
    options = re.split(r", | or ", expected.removeprefix("one of "))
    if isinstance(value, bool | int | float | datetime.date) and (_TEXT in options or text in options):
        return f'Put it in quotes: "{text}".'
    if not isinstance(value, str):
        return None
    if expected.startswith("one of "):
        return did_you_mean(value, options)
    is_number = expected in {_A_NUMBER, _A_WHOLE_NUMBER} and re.fullmatch(r"[-+]?[\d.]+", value)
    is_truth = expected == _TRUE_OR_FALSE and value.lower() in {"true", "false", "yes", "no", "on", "off"}
    return "Remove the quotes." if is_number or is_truth else None


def _description(model: Any, data: Any, path: KeyPath) -> str | None:
    fields = [found for found in _fields(model, data, path[:-1]) if found[0] == path[-1]]
    return fields[0][1].description if fields else None


def _allowed_keys(model: Any, data: Any, path: KeyPath) -> list[str]:
    return list(dict.fromkeys(name for name, _ in _fields(model, data, path)))


def _fields(model: Any, data: Any, path: KeyPath) -> Iterator[tuple[str, FieldInfo]]:
    """Keys and fields of the models that may stand at a path and that fit what the data says about its kind."""
    models = list(_models(model, path))
    value = _value_at(data, path)
    for each in [fitting for fitting in models if _fits(fitting, value)] or models:
        for name, info in each.model_fields.items():
            yield info.alias or name, info


def _models(annotation: Any, path: KeyPath) -> Iterator[type[BaseModel]]:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType, Annotated}:
        for member in members:
            yield from _models(member, path)
    elif origin is not None and path:
        elements = [member for member in members if member is not ...]
        yield from _models(elements[-1], path[1:])
    elif isinstance(annotation, type) and issubclass(annotation, RootModel):
        yield from _models(annotation.model_fields["root"].annotation, path)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not path:
            yield annotation
        for name, info in annotation.model_fields.items():
            if path and path[0] == (info.alias or name):
                yield from _models(info.annotation, path[1:])


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _fits(model: type[BaseModel], value: Any) -> bool:
    """Whether the choices that the data makes, such as its kind, are those of a model."""
    return isinstance(value, dict) and all(
        value.get(name, info.default) in get_args(info.annotation)
        for name, info in model.model_fields.items()
        if get_origin(info.annotation) is Literal
    )
