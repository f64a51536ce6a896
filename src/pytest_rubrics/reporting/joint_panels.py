"""Judges that marked the same answers in runs of their own, looked at as if they were a panel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from pytest_rubrics.evidence import Evidence
from pytest_rubrics.facts import TaskFacts
from pytest_rubrics.figures import Figures, Vote
from pytest_rubrics.judge_figures import panel_figures
from pytest_rubrics.records import Run
from pytest_rubrics.task_results import task_results


class _Marked(NamedTuple):
    """What a judge said of one answer."""

    answer: int
    figures: Figures
    hits: Mapping[str, tuple[str | None, float, float]]  # criterion to tag, weight and verdict


_Members: TypeAlias = dict[tuple[str | float, ...], Mapping[str, float]]


def joint_panels(runs: Sequence[tuple[Run, Evidence]]) -> dict[tuple[str, str], dict[str, Any]]:
    """How far the judges of several runs agree, for each benchmark and model that more than one of them judged.

    Only answers that all of them marked count, and only where they read the same text.

    Args:
        runs: Runs with what they come to. Of two with the same judge, the first counts.

    Returns:
        Agreement as in ``panel`` of a summary, with the number of ``answers``, by benchmark and model.
    """
    judges: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    facts: dict[tuple[str, str], TaskFacts] = {}
    for _, evidence in runs:
        facts |= evidence.facts
        for benchmark, model, judge in evidence.parts:
            judges[benchmark, model][judge] = None
    wanted = {name: list(found) for name, found in judges.items() if len(found) > 1}
    shared = _shared(runs, wanted) if wanted else {}
    found = {}
    for name, figures in shared.items():
        panel = panel_figures(task_results(figures, facts))
        if panel is not None:
            found[name] = {**panel, "answers": len(figures)}
    return found


def _shared(
    runs: Sequence[tuple[Run, Evidence]], wanted: Mapping[tuple[str, str], Sequence[str]]
) -> dict[tuple[str, str], list[Figures]]:
    """The answers that all judges marked, each with the votes of all."""
    marked: dict[tuple[str, str, str, int], dict[str, _Marked]] = defaultdict(dict)
    for run, _ in runs:
        for id_, judge, mark in _marks(run, wanted):
            marked[id_].setdefault(judge, mark)
    shared: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    members: _Members = {}
    for (benchmark, model, _, _), by_judge in marked.items():
        names = wanted[benchmark, model]
        marks = [by_judge[name] for name in names if name in by_judge]
        if len(marks) == len(names) and len({(mark.answer, mark.figures.state, *mark.hits) for mark in marks}) == 1:
            shared[benchmark, model].append(_joined(names, marks, members))
    return shared


def _marks(
    run: Run, wanted: Mapping[tuple[str, str], Sequence[str]]
) -> Iterator[tuple[tuple[str, str, str, int], str, _Marked]]:
    for figures, grade in zip(run.figures, run.grades, strict=True):
        if (figures.benchmark, figures.model) in wanted and figures.state != "excluded":
            hits = {
                verdict["id"]: (verdict.get("tag"), verdict["weight"], float(verdict.get("value", verdict["hit"])))
                for verdict in grade.verdicts
                if verdict["hit"] is not None
            }
            id_ = (figures.benchmark, figures.model, figures.task_id, figures.repeat)
            yield id_, figures.judge, _Marked(hash(grade.answer), figures, hits)


def _joined(names: Sequence[str], marks: Sequence[_Marked], members: _Members) -> Figures:
    """One grade with the votes of all; equal votes are one object, as there are many."""
    first = marks[0]
    votes = []
    for criterion, (tag, weight, _) in first.hits.items():
        values = tuple(mark.hits[criterion][2] for mark in marks)
        given = members.setdefault((*names, *values), dict(zip(names, values, strict=True)))
        votes.append(Vote(criterion, tag, weight, sum(values) / len(values), None, given))
    return replace(first.figures, low=first.figures.score, high=first.figures.score, votes=tuple(votes))
