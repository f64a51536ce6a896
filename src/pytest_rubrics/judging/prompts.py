"""Judge prompts: templates, the fence around what is judged, and the rendered criteria."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.tasks import Criterion

_PLACE = re.compile(r"\{\{(\w+)\}\}")
MARKER_DIGITS = 12
SHEET_PLACES = frozenset({"question", "answer", "criteria", "count", "first_id"})
SHEET_MUST_HAVE = frozenset({"question", "answer", "criteria"})


def render(template: str, values: Mapping[str, str]) -> str:
    """Fill ``{{name}}`` places in one pass, so that braces in task text mean nothing.

    >>> render("Q: {{question}}", {"question": "what is {{answer}}?"})
    'Q: what is {{answer}}?'
    """
    return _PLACE.sub(lambda place: values[place[1]], template)


def places(template: str) -> set[str]:
    """Names of the places in a template."""
    return set(_PLACE.findall(template))


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
    return "\n".join(_block(criterion, show_weights) for criterion in criteria)


def _block(criterion: Criterion, show_weights: bool) -> str:
    weight = f"(weight {criterion.weight:+g}) " if show_weights else ""
    return f"[{criterion.id}] {weight}{criterion.text}"


def load_template(prompt: str, language: str, folders: Sequence[Path], root: Path) -> str:
    """Read the text of a judge prompt.

    Args:
        prompt: Name of ``<prompt>.<language>.md`` in one of the folders, the path of any file (``{language}`` in it is
            replaced), or ``python:package.module:NAME`` for a string in an installed package.
        language: ``en`` or ``zh``.
        folders: Where named prompts are looked up, in this order.
        root: What a relative path is relative to.

    Raises:
        FaultsError: The prompt is not there, or lacks a place.
    """
    shown, text = _find_template(prompt, language, folders, root)
    missing = sorted(SHEET_MUST_HAVE - places(text))
    unknown = sorted(places(text) - SHEET_PLACES - {"marker"})
    if missing or unknown:
        wrong = [f"lacks {{{{{name}}}}}" for name in missing] + [f"has the unknown {{{{{name}}}}}" for name in unknown]
        expected = ", ".join(f"{{{{{name}}}}}" for name in sorted(SHEET_PLACES | {"marker"}))
        raise FaultsError([Fault(shown, f"the judge prompt {' and '.join(wrong)}.", fix=f"Its places are {expected}.")])
    return text


def _find_template(prompt: str, language: str, folders: Sequence[Path], root: Path) -> tuple[str, str]:
    if prompt.startswith("python:"):
        return prompt, _python_text(prompt)
    if "/" in prompt or prompt.endswith((".md", ".txt")):
        candidates = [root / prompt.replace("{language}", language)]
    else:
        candidates = [folder / f"{prompt}.{language}.md" for folder in folders]
    for path in candidates:
        if path.is_file():
            return str(path), path.read_text(encoding="utf-8-sig")
    names = sorted({path.name for folder in folders if folder.is_dir() for path in folder.glob("*.md")})
    raise FaultsError(
        [Fault(str(candidates[0]), "the judge prompt is not there.", fix=f"Prompts that exist: {', '.join(names)}.")]
    )


def _python_text(prompt: str) -> str:
    _, _, place = prompt.partition(":")
    module, _, name = place.partition(":")
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FaultsError(
            [Fault(prompt, f"cannot be loaded: {error}.", fix="Write python:package.module:NAME.")]
        ) from error
    if not isinstance(value, str):
        raise FaultsError([Fault(prompt, f"is a {type(value).__name__}, expected a string.")])
    return value
