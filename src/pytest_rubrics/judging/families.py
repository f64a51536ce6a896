"""Which family a model belongs to: a judge tends to prefer answers of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Patterns of model names, without their provider: one provider serves many families.
_FAMILIES = {
    "OpenAI": r"gpt|\bo[1-9](?![0-9])|codex",
    "Claude": r"claude",
    "Gemini": r"gemini|gemma",
    "Qwen": r"qwen|qwq|qvq|tongyi",
    "DeepSeek": r"deepseek",
    "GLM": r"glm",
    "Kimi": r"kimi|moonshot",
    "Mistral": r"mistral|mixtral|ministral|magistral|devstral|codestral",
    "Llama": r"(?<!o)llama",
    "Grok": r"grok",
    "Doubao": r"doubao|\bseed\b",
    "MiniMax": r"minimax|abab",
    "Hunyuan": r"hunyuan",
    "ERNIE": r"ernie",
    "Phi": r"\bphi\b",
    "Command": r"command-[ar]",
    "Nova": r"\bnova\b",
    "Nemotron": r"nemotron",
    "Step": r"\bstep-[0-9]",
    "Yi": r"\byi-",
}


def families(model: str) -> frozenset[str]:
    """Families whose name stands in a LiteLLM model string; a distilled model may have two.

    >>> sorted(families("openrouter/deepseek/deepseek-r1-distill-qwen-32b")), sorted(families("openai/my-model"))
    (['DeepSeek', 'Qwen'], [])
    """
    name = model.rsplit("/", 1)[-1].lower()
    return frozenset(family for family, pattern in _FAMILIES.items() if re.search(pattern, name))


def self_preference(models: Mapping[str, Mapping[str, Any]], judge: Mapping[str, Any], name: str) -> list[str]:
    """Warnings where a judge, or a member of a panel, marks answers of its own family.

    Args:
        models: Settings of the models under test by name, as in ``manifest.json``.
        judge: Settings of the judge, likewise.
        name: Name of the judge.
    """
    members = judge.get("members") or {name: judge}
    role = "member" if "members" in judge else "judge"
    return [
        f"SELF-PREFERENCE: {role} {seat} and model {model} are both of the {' and '.join(sorted(shared))} family; "
        "a judge tends to favour its own."
        for model, settings in models.items()
        for seat, own in members.items()
        if (shared := families(settings.get("model", model)) & families(own.get("model", seat)))
    ]
