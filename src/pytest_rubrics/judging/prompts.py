"""Judge prompts: templates, the fence around what is judged, and the rendered criteria."""

from __future__ import annotations

import hashlib
import importlib
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.tasks import Criterion

_PLACE = re.compile(r"\{\{(\w+)\}\}")
MARKER_DIGITS = 12

# What each kind of prompt may say; every one must have the first two.
_NEEDED = frozenset({"answer", "criteria"})
_COMMON = _NEEDED | {"question", "marker"}
_SINGLE = _COMMON | {"weight", "tag", "scale"}
PLACES: Mapping[str, frozenset[str]] = {
    "sheet": _COMMON | {"count", "first_id"},
    "criterion": _SINGLE,
    "evidence": _COMMON | {"part", "parts"},
    "synthesis": _SINGLE | {"parts"},
}
# Names of the same places in templates that other packages fill with ``str.format``.
_ALIASES = {
    "prompt": "question",
    "model_response": "answer",
    "response": "answer",
    "document_content": "answer",
    "rubrics": "criteria",
    "rubric_title": "criteria",
    "rubric_category": "tag",
    "rubric_weight": "weight",
}


def render(template: str, values: Mapping[str, str]) -> str:
    """Fill ``{{name}}`` places in one pass, so that braces in task text mean nothing.

    >>> render("Q: {{question}}", {"question": "what is {{answer}}?"})
    'Q: what is {{answer}}?'
    """
    return _PLACE.sub(lambda place: values[place[1]], template)


def marker_for(question: str, answer: str) -> str:
    """A fence that the fenced text cannot contain: hex digits of a SHA-256 over it, extended until they are absent."""
    digest = hashlib.sha256(f"{question}\x00{answer}".encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(MARKER_DIGITS, len(digest) + 1):
        marker = digest[:length]
        if marker not in question and marker not in answer:
            return marker
    raise ValueError("the text contains its own SHA-256")


def render_criteria(criteria: Sequence[Criterion], *, show_weights: bool) -> str:
    r"""One block for each criterion: id, signed weight if shown, text.

    >>> render_criteria([Criterion("7", "Names the risk.", 5), Criterion("9", "Guesses.", -10)], show_weights=True)
    '[7] (weight +5) Names the risk.\n[9] (weight -10) Guesses.'
    """
    return "\n".join(f"[{criterion.id}] {render_criterion(criterion, show_weights)}" for criterion in criteria)


def render_criterion(criterion: Criterion, show_weight: bool) -> str:
    """One criterion: signed weight if shown, text."""
    return f"(weight {criterion.weight:+g}) {criterion.text}" if show_weight else criterion.text


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Where prompts are looked up.

    Attributes:
        folders: Folders of named prompts, in the order of the search.
        root: What a relative path is relative to.
    """

    folders: Sequence[Path]
    root: Path

    def load(self, prompt: str, kind: str, language: str) -> str:
        """Read the text of a judge prompt.

        Args:
            prompt: Name of ``<prompt>.<language>.md`` in one of the folders; the path of any file, in which
                ``{language}`` is replaced; or ``python:package.module:NAME`` for a string in an installed package.
            kind: ``sheet``, ``criterion``, ``evidence`` or ``synthesis``: it says which places there may be.
            language: ``en`` or ``zh``.

        Raises:
            FaultsError: The prompt is not there, lacks a place, or has an unknown one.
        """
        shown, text = self._find(prompt, language)
        text = _in_our_places(text)
        found = set(_PLACE.findall(text))
        missing, unknown = sorted(_NEEDED - found), sorted(found - PLACES[kind])
        if missing or unknown:
            wrong = [f"lacks {{{{{name}}}}}" for name in missing]
            wrong += [f"has the unknown place {{{{{name}}}}}" for name in unknown]
            places = ", ".join(f"{{{{{name}}}}}" for name in sorted(PLACES[kind]))
            raise FaultsError([Fault(shown, f"the judge prompt {' and '.join(wrong)}.", fix=f"Places are {places}.")])
        return text

    def _find(self, prompt: str, language: str) -> tuple[str, str]:
        if prompt.startswith("python:"):
            return prompt, _python_text(prompt)
        if "/" in prompt or prompt.endswith((".md", ".txt")):
            candidates = [self.root / prompt.replace("{language}", language)]
        else:
            candidates = [folder / f"{prompt}.{language}.md" for folder in self.folders]
        for path in candidates:
            if path.is_file():
                return str(path), path.read_text(encoding="utf-8-sig")
        names = sorted({path.name for folder in self.folders if folder.is_dir() for path in folder.glob("*.md")})
        fix = f"Prompts that exist: {', '.join(names)}."
        raise FaultsError([Fault(str(candidates[0]), "the judge prompt is not there.", fix=fix)])


def _in_our_places(text: str) -> str:
    """A template written for ``str.format``, with its ``{name}`` places written as ours."""
    if _PLACE.search(text):
        return text
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:  # braces of another meaning
        return text
    if not any(name in _ALIASES or name in _COMMON for _, name, _, _ in parts):
        return text
    return "".join(
        literal + (f"{{{{{_ALIASES.get(name, name)}}}}}" if name is not None else "") for literal, name, _, _ in parts
    )


def _python_text(prompt: str) -> str:
    module, _, name = prompt.removeprefix("python:").partition(":")
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        fix = "Write python:package.module:NAME."
        raise FaultsError([Fault(prompt, f"cannot be loaded: {error}.", fix=fix)]) from error
    if not isinstance(value, str):
        raise FaultsError([Fault(prompt, f"is of type {type(value).__name__}, expected str.")])
    return value
