"""A judge that knows the verdicts: replies that fit the schema or the prompt they are asked with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from tests.support.replies import HIT_WORDS, MISS_WORDS, Body, is_chinese, text_of
from tests.support.truth import verdict

Schema = Mapping[str, Any]
TruthSource = Mapping[str, Mapping[str, bool]] | Callable[[Body], Mapping[str, bool]]


class CannotJudgeError(Exception):
    """The judge's prompt lacks what a verdict needs. The server answers 400 with this text."""


class TextIndex:
    """Finds which of many known texts stands in a prompt, in time that grows with the prompt only.

    Every text is entered under the slices that begin at its first STRIDE positions. A prompt is probed once every
    STRIDE characters, so one probe falls on such a slice wherever the text begins.
    """

    STRIDE = 16
    SLICE = 8

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._known: dict[str, str] = {}
        self._slices: dict[str, list[str]] = {}
        self._short: list[str] = []
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Enter a text; white space around it does not count."""
        stripped = text.strip()
        if not stripped or stripped in self._known:
            return
        self._known[stripped] = text
        if len(stripped) < self.STRIDE + self.SLICE:
            self._short.append(stripped)
            return
        for start in range(self.STRIDE):
            self._slices.setdefault(stripped[start : start + self.SLICE], []).append(stripped)

    def find(self, prompt: str) -> str | None:
        """Return the longest known text that stands in the prompt, as it was entered."""
        probes = (prompt[start : start + self.SLICE] for start in range(0, len(prompt), self.STRIDE))
        candidates = dict.fromkeys(text for probe in probes for text in self._slices.get(probe, ()))
        found = max((text for text in (*candidates, *self._short) if text in prompt), key=len, default=None)
        return None if found is None else self._known[found]


def requested_schema(body: Body) -> Schema | None:
    """Return the JSON schema that a request asks its reply to fit, if any."""
    schema: Schema | None = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    return schema


class Judge:
    """Replies to a judge's prompts with known verdicts.

    Args:
        truth: The verdicts of each task by the task's prompt, or a function from the request to the verdicts by id.
            Without it the verdict is ``truth.verdict(question, id)``, the question being one that was asked on this
            server before; a prompt with no such question stands for itself.
        criteria_truth: The verdicts by the criterion's text, for prompts with one criterion.
    """

    def __init__(self, truth: TruthSource | None, criteria_truth: Mapping[str, bool] | None) -> None:
        self._truth = truth
        self._criteria_truth = criteria_truth or {}
        self._questions = TextIndex(truth if isinstance(truth, Mapping) else ())
        self._criteria = TextIndex(self._criteria_truth)

    def learn(self, question: str) -> None:
        """Remember a question, to find it in prompts when no truth is given."""
        if self._truth is None:
            self._questions.add(question)

    def reply(self, body: Body, schema: Schema | None) -> str:
        """Return the reply as JSON text: a sheet, one verdict, or the evidence of a chunk, whichever is asked for.

        Raises:
            CannotJudgeError: When no known question, or criterion, stands in the prompt, or the ids are unknown.
        """
        prompt = text_of(body)
        chinese = is_chinese(prompt[:100])  # the judge's instructions come first
        wanted = _wanted(schema, prompt)
        if wanted == "sheet":
            form = _Form(self._verdicts(body, prompt, schema_ids(schema) if schema else []), chinese)
        else:
            form = _Form({"": wanted == "verdict" and self._criterion(prompt)}, chinese)
        return json.dumps(form.fill(schema) if schema else form.free(wanted), ensure_ascii=False)

    def _verdicts(self, body: Body, prompt: str, ids: Sequence[str]) -> dict[str, bool]:
        if callable(self._truth):
            known = self._truth(body)
        else:
            question = self._questions.find(prompt)
            if self._truth is None:
                known = {name: verdict(question or prompt, name) for name in ids}
            elif question is None:
                raise CannotJudgeError("none of the questions in `truth` stands in the judge's prompt")
            else:
                known = self._truth[question]
        missing = [name for name in ids if name not in known]
        if missing or not known:
            raise CannotJudgeError(f"`truth` knows the ids {list(known)}; the schema asks for {list(ids)}")
        return {name: known[name] for name in ids or known}

    def _criterion(self, prompt: str) -> bool:
        if not self._criteria_truth:
            return verdict(prompt, "")
        criterion = self._criteria.find(prompt)
        if criterion is None:
            raise CannotJudgeError("none of the criteria in `criteria_truth` stands in the judge's prompt")
        return self._criteria_truth[criterion]


def _wanted(schema: Schema | None, prompt: str) -> str:
    """Tell which reply is asked for, by the keys in the schema or else in the prompt."""
    asked = json.dumps(schema) if schema else prompt
    if "rubric_id" in asked or (schema and schema_ids(schema)):
        return "sheet"
    for key, wanted in (("verdict", "verdict"), ("relevant_evidence", "evidence")):
        if re.search(rf"[\"'`“]{key}[\"'`”]", asked):
            return wanted
    return "sheet"


def schema_ids(schema: Schema) -> list[str]:
    """Return the criterion ids that a schema asks for, in its order.

    They are the constants of ``rubric_id`` anywhere in it, or else the properties that hold a status each.
    """
    objects = [node["properties"] for node in _nodes(schema) if isinstance(node.get("properties"), dict)]
    fields = [_resolve(properties["rubric_id"], schema) for properties in objects if "rubric_id" in properties]
    constants = [
        str(value) for field in fields for value in field.get("enum", [field.get("const")]) if value is not None
    ]
    named = [name for properties in objects for name, sub in properties.items() if _has_status(name, sub, schema)]
    return list(dict.fromkeys(constants or named))


def _has_status(name: str, sub: Schema, root: Schema) -> bool:
    sub = _resolve(sub, root)
    if name in {"status", "verdict", "score"}:
        return False
    words = {str(word) for word in sub.get("enum", ())}
    return bool(words & set(HIT_WORDS)) or not {"status", "verdict"}.isdisjoint(sub.get("properties", ()))


def _nodes(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping):
        yield node
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _nodes(child)


def _resolve(schema: Schema, root: Schema) -> Schema:
    """Follow ``$ref``, take the first alternative that is not null, and merge ``allOf``."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return _resolve(target, root)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _resolve(next(s for s in schema[word] if s.get("type") != "null"), root)
    if "allOf" in schema:
        return {key: value for part in schema["allOf"] for key, value in _resolve(part, root).items()}
    return schema


@dataclass(frozen=True, slots=True)
class _Form:
    """Fills in replies. The verdict of a prompt with one criterion stands under the id ``""``."""

    verdicts: Mapping[str, bool]
    chinese: bool

    def hit(self, name: str) -> bool:
        return self.verdicts.get(name, False)

    def status(self, name: str) -> str:
        return ("是" if self.hit(name) else "否") if self.chinese else ("yes" if self.hit(name) else "no")

    def reason(self, name: str) -> str:
        if self.chinese:
            return f"回答{'' if self.hit(name) else '未'}满足要求 {name}".strip() + "。"
        return f"The answer {'meets' if self.hit(name) else 'does not meet'} criterion {name}".strip() + "."

    def verdict(self, name: str) -> str:
        return "Satisfied" if self.hit(name) else "Not Satisfied"

    def free(self, wanted: str) -> dict[str, Any]:
        """Return a reply in the shape that goes with the request when no schema says otherwise."""
        if wanted == "sheet":
            rows = [{"rubric_id": n, "status": self.status(n), "justification": self.reason(n)} for n in self.verdicts]
            return {"results": rows}
        if wanted == "verdict":
            return {"verdict": self.verdict(""), "score": int(self.hit("")), "reasoning": self.reason("")}
        return {"relevant_evidence": [self.reason("")]}

    def fill(self, root: Schema) -> Any:
        """Return an instance of a JSON schema with the verdicts filled in."""
        return self._value(root, root, "", "")

    def _value(self, schema: Schema, root: Schema, key: str, name: str) -> Any:
        """Return the value of a node: ``key`` is the property it stands under, ``name`` the criterion it belongs to."""
        schema = _resolve(schema, root)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._choice(schema["enum"], key, name)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = next(k for k in kind if k != "null") if isinstance(kind, list) else kind
        if kind == "object":
            return self._object(schema, root, name)
        if kind == "array":
            return [self._value(sub, root, key, inner) for sub, inner in self._elements(schema, root, name)]
        if kind == "string":
            return self._text(schema, key, name)
        if key == "rubric_id":
            return int(name)
        if kind == "boolean":
            return self.hit(name)
        return min(max(int(self.hit(name)), schema.get("minimum", 0)), schema.get("maximum", 1))

    def _object(self, schema: Schema, root: Schema, name: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        constant = _resolve(properties.get("rubric_id", {}), root)
        own = constant.get("const", constant["enum"][0] if len(constant.get("enum", ())) == 1 else name)
        return {
            key: self._value(sub, root, key, key if key in self.verdicts else str(own))
            for key, sub in properties.items()
        }

    def _elements(self, schema: Schema, root: Schema, name: str) -> list[tuple[Schema, str]]:
        """Return the schema and the criterion of each element: one for each criterion where elements name theirs."""
        if "prefixItems" in schema:
            names = list(self.verdicts) if len(schema["prefixItems"]) == len(self.verdicts) else repeat(name)
            return list(zip(schema["prefixItems"], names, strict=False))
        items = schema.get("items", {})
        alternatives = items.get("anyOf", items.get("oneOf", ()))
        if len(alternatives) > 1:
            return [(sub, name) for sub in alternatives]
        if "rubric_id" in _resolve(items, root).get("properties", ()):
            return [(items, inner) for inner in self.verdicts]
        return [(items, name)] * max(1, schema.get("minItems", 1))

    def _choice(self, options: Sequence[Any], key: str, name: str) -> Any:
        if key == "rubric_id":
            return next(option for option in options if str(option) == name)
        words = HIT_WORDS if self.hit(name) else MISS_WORDS
        lower = {word.lower() for word in words}
        return next((option for option in options if str(option).lower() in lower), options[0])

    def _text(self, schema: Schema, key: str, name: str) -> str:
        if key == "rubric_id":
            return name
        if key == "status":
            return self.status(name)
        if key == "verdict":
            return self.verdict(name)
        return self.reason(name).ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
