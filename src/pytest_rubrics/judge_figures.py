"""What a panel of judges, or the probabilities of one, tell of the verdicts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from pytest_rubrics.estimates import estimate
from pytest_rubrics.figures import Figures, Vote
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.statistics import agreement, repeats
from pytest_rubrics.statistics.intervals import Estimate
from pytest_rubrics.task_results import TaskResult

LISTED = 20  # verdicts that are listed one by one


class _Unit(NamedTuple):
    """A vote and where it was given."""

    vote: Vote
    figures: Figures
    cluster: str

    @property
    def place(self) -> dict[str, Any]:
        """Which verdict it is."""
        figures = self.figures
        return {"task_id": figures.task_id, "key": figures.key, "repeat": figures.repeat, "criterion": self.vote.id}


def judge_figures(results: Sequence[TaskResult]) -> dict[str, Any]:
    """``panel`` and ``probabilities`` of one benchmark x model x judge; each is None where there is none."""
    return {"panel": panel_figures(results), "probabilities": _probabilities(results, _units(results))}


def _units(results: Sequence[TaskResult]) -> list[_Unit]:
    return [
        _Unit(vote, figures, result.facts.cluster or result.id)
        for result in results
        for figures in result.graded
        for vote in figures.votes
    ]


def panel_figures(results: Sequence[TaskResult]) -> dict[str, Any] | None:
    """How far the members agree, overall, by tag and by subset, and what each alone would have said.

    A failed answer counts 0 under every member. ``variance`` splits the variance of the members' scores into tasks,
    answers and judge. None where there are not two members.
    """
    units = _units(results)
    names = list(dict.fromkeys(name for unit in units for name in unit.vote.members))
    if len(names) < 2:
        return None
    tags = dict.fromkeys(unit.vote.tag for unit in units if unit.vote.tag)
    subsets = dict.fromkeys(unit.figures.subset for unit in units)
    scores = _scores(results, names)
    return {
        "members": {name: _member(results, units, name, scores) for name in names},
        "agreement": _agreement(units, names),
        "tags": {tag: _agreement([unit for unit in units if unit.vote.tag == tag], names) for tag in tags},
        "subsets": {
            subset: _agreement([unit for unit in units if unit.figures.subset == subset], names) for subset in subsets
        },
        "contested": _contested(units),
        "variance": _variance(scores),
    }


def _agreement(units: Sequence[_Unit], names: Sequence[str]) -> dict[str, Any]:
    """Krippendorff's alpha and Fleiss' kappa of all members, and Cohen's kappa of each pair."""
    whole = [unit for unit in units if len(unit.vote.members) == len(names)]
    clusters = [unit.cluster for unit in whole]
    votes = [[unit.vote.members[name] for name in names] for unit in whole]
    return {
        "criteria": len(whole),
        "unanimous": estimate([float(len(set(given)) == 1) for given in votes], clusters),
        "krippendorff_alpha": _plain(agreement.krippendorff_alpha(votes, clusters=clusters)),
        "fleiss_kappa": _plain(agreement.fleiss_kappa(votes, clusters=clusters)),
        "pairs": [
            {
                "members": [first, second],
                "agreement": estimate([float(given[i] == given[j]) for given in votes], clusters),
                "cohen_kappa": _plain(
                    agreement.cohen_kappa(
                        [given[i] for given in votes], [given[j] for given in votes], clusters=clusters
                    )
                ),
            }
            for (i, first), (j, second) in combinations(enumerate(names), 2)
        ],
    }


def _member(
    results: Sequence[TaskResult],
    units: Sequence[_Unit],
    name: str,
    scores: Mapping[str, Sequence[Mapping[str, float]]],
) -> dict[str, Any]:
    """Leniency of a member: the share of criteria that it marks as hit; and the headline under it alone."""
    given = [(unit.vote.members[name], unit.cluster) for unit in units if name in unit.vote.members]
    means, passes, clusters = [], [], []
    for result in results:
        own = [of_one[name] for of_one in scores[result.id]]
        if own:
            mark = result.facts.pass_at
            means.append(sum(own) / len(own))
            passes.append(0.0 if mark is None else sum(score >= mark for score in own) / len(own))
            clusters.append(result.facts.cluster)
    has_mark = any(result.facts.pass_at is not None for result in results)
    return {
        "leniency": estimate([value for value, _ in given], [cluster for _, cluster in given]),
        "mean": estimate(means, clusters, results[0].facts.bounds),
        "pass_rate": estimate(passes, clusters) if has_mark else None,
    }


def _scores(results: Sequence[TaskResult], names: Sequence[str]) -> dict[str, list[dict[str, float]]]:
    """For each task, for each of its answers, the score under each member."""
    return {
        result.id: [
            found for figures in result.graded if (found := _scores_of(figures, names, result.facts.clip)) is not None
        ]
        for result in results
    }


def _scores_of(figures: Figures, names: Sequence[str], clip: bool) -> dict[str, float] | None:
    if figures.state == "failed":
        return dict.fromkeys(names, 0.0)
    if figures.low != figures.high or any(len(vote.members) < len(names) for vote in figures.votes):
        return None  # criteria are unjudged
    scoring = Scoring("", clip, None)
    return {name: scoring.score((vote.weight, vote.members[name]) for vote in figures.votes) for name in names}


def _contested(units: Sequence[_Unit]) -> list[dict[str, Any]]:
    """The criteria that the members disagree most on, over all answers to a task; the heaviest first among equals."""
    by_criterion: dict[tuple[str, str], list[_Unit]] = defaultdict(list)
    for unit in units:
        by_criterion[unit.figures.task_id, unit.vote.id].append(unit)
    rows: list[dict[str, Any]] = []
    for (task_id, criterion), members in by_criterion.items():
        votes = [value for unit in members for value in unit.vote.members.values()]
        share = sum(votes) / len(votes)
        if any(len(set(unit.vote.members.values())) > 1 for unit in members):
            first = members[0]
            row = {"task_id": task_id, "key": first.figures.key, "subset": first.figures.subset, "criterion": criterion}
            rows.append({**row, "weight": first.vote.weight, "hit_share": share, "votes": len(votes)})
    return sorted(rows, key=lambda row: (abs(row["hit_share"] - 0.5), -abs(row["weight"])))[:LISTED]


def _variance(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    parts = repeats.variance_components([[list(answer.values()) for answer in answers] for answers in scores.values()])
    return {name: None if part is None else part._asdict() for name, part in parts._asdict().items()}


def _probabilities(results: Sequence[TaskResult], units: Sequence[_Unit]) -> dict[str, Any] | None:
    """The soft mean, with P(hit) in place of each verdict, and the verdicts nearest to even."""
    known = [unit for unit in units if unit.vote.p is not None]
    if not known:
        return None
    soft = []
    for result in results:
        own = [score for figures in result.graded if (score := _soft(figures, result.facts.clip)) is not None]
        if own:
            soft.append((sum(own) / len(own), result.facts.cluster))
    nearest = sorted(known, key=lambda unit: abs((unit.vote.p or 0.0) - 0.5))[:LISTED]
    return {
        "verdicts": len(known),
        "soft_mean": estimate([score for score, _ in soft], [cluster for _, cluster in soft], results[0].facts.bounds),
        "near_even": sum(0.2 < (unit.vote.p or 0.0) < 0.8 for unit in known),
        "nearest_to_even": [
            {**unit.place, "weight": unit.vote.weight, "hit": unit.vote.value == 1, "p": unit.vote.p}
            for unit in nearest
        ],
    }


def _soft(figures: Figures, clip: bool) -> float | None:
    if figures.state == "failed":
        return 0.0
    marks = [(vote.weight, vote.p) for vote in figures.votes if vote.p is not None]
    whole = marks and len(marks) == len(figures.votes) and figures.low == figures.high
    return Scoring("", clip, None).score(marks) if whole else None


def _plain(found: Estimate) -> dict[str, Any] | None:
    if found.value is None:
        return None
    return {"value": found.value, "ci95": None if found.interval is None else list(found.interval)}
