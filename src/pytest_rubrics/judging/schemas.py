"""JSON schemas of what a judge replies: objects at the root, as OpenAI's strict mode wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

BINARY = ("Satisfied", "Not Satisfied")
TERNARY = ("Satisfied", "Partially Satisfied", "Not Satisfied")


def sheet_schema(ids: Sequence[str], statuses: Sequence[str], *, fixed_order: bool, longest: int | None) -> Schema:
    """An array of verdicts under one key.

    Args:
        ids: Ids of the criteria.
        statuses: Words for hit and not hit.
        fixed_order: Whether every element has its own schema with its id as a constant. Small local models need it;
            hosted ones refuse ``prefixItems``. There is no ``items: false`` after it, which llama.cpp refuses.
        longest: Most characters of a justification; 0 for none at all, None for any number.
    """

    def element(rubric_id: Schema) -> Schema:
        status = {"type": "string", "enum": list(statuses)}
        return _object({"rubric_id": rubric_id, "status": status, **_reason("justification", longest)})

    array: dict[str, Any] = {"type": "array", "minItems": len(ids), "maxItems": len(ids)}
    if fixed_order:
        array["prefixItems"] = [element({"const": id_}) for id_ in ids]
    else:
        array["items"] = element({"type": "string", "enum": list(ids)})
    return _object({"verdicts": array})


def criterion_schema(*, ternary: bool, longest: int | None) -> Schema:
    """One verdict."""
    return _object(
        {
            "verdict": {"type": "string", "enum": list(TERNARY if ternary else BINARY)},
            "score": {"type": "number", "enum": [0, 0.5, 1] if ternary else [0, 1]},
            **_reason("reasoning", longest),
        }
    )


def evidence_schema() -> Schema:
    """Passages quoted from one part of a long report."""
    return _object({"relevant_evidence": {"type": "array", "items": {"type": "string"}}, "notes": {"type": "string"}})


def _reason(name: str, longest: int | None) -> dict[str, Any]:
    if longest is None:
        return {name: {"type": "string"}}
    return {name: {"type": "string", "maxLength": longest}} if longest else {}


def _object(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
