"""Tasks and their criteria."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One weighted statement that a judge marks as hit or not hit.

    Attributes:
        id: Opaque name, unique inside the task. It is never an index: published numbers have gaps.
        text: The statement, without surrounding white space.
        weight: Points; a positive weight rewards a hit, a negative one penalises it. Never 0.
        tag: Kind of criterion in its canonical English name, or None.
    """

    id: str
    text: str
    weight: float
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its rubric.

    Attributes:
        benchmark: Name of the benchmark, also its folder.
        id: Unique identity in the published data.
        key: Short name used in pytest ids; unique inside its subset.
        subset: ASCII slug of the slice, such as ``cn_law``.
        language: Language of the prompt; it chooses the judge's prompt.
        prompt: What the model is asked, verbatim.
        system_prompt: System message, or None.
        criteria: The rubric, in published order.
        topics: Topic path as published; each one is an extra keyword for ``-k``.
        markers: Markers of the item: subset, track, domain.
        groups: Further fields to report by, such as ``time_sensitivity``.
        cluster: Tasks that share it are not independent, such as translations of one case.
        value: Economic value: currency, and what an expert's work on it costs; None where there is none.
    """

    benchmark: str
    id: str
    key: str
    subset: str
    language: Language
    prompt: str
    criteria: tuple[Criterion, ...]
    system_prompt: str | None = None
    topics: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""
    value: tuple[str, float] | None = None
