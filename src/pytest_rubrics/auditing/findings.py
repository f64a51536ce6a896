"""What the probes found: figures with intervals, and a verdict by stated limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pytest_rubrics.auditing.labels import Labels
from pytest_rubrics.auditing.probes import BASE, Probe
from pytest_rubrics.estimates import estimate
from pytest_rubrics.grades import Grade
from pytest_rubrics.statistics import agreement
from pytest_rubrics.statistics.intervals import Estimate
from pytest_rubrics.tasks import Task

Mark = Literal["PASS", "WARN", "FAIL", "ERROR", ""]
_ORDER: tuple[Mark, ...] = ("", "PASS", "WARN", "FAIL", "ERROR")


class Probed(NamedTuple):
    """One probe of one task.

    Attributes:
        task: The task as published.
        probe: The probe.
        grade: What the judge said.
    """

    task: Task
    probe: Probe
    grade: Grade


class _Pair(NamedTuple):
    """A criterion under the base answer and under a probe; with the cluster that it belongs to."""

    weight: float
    base: bool
    hit: bool
    cluster: str


def findings(probed: Sequence[Probed]) -> list[dict[str, Any]]:
    """One row for each probe, in the order of their first appearance."""
    bases = {one.task.id: one.grade for one in probed if one.probe is BASE}
    return [_finding(probe, [one for one in probed if one.probe is probe], bases) for probe in _probes(probed)]


def overall(rows: Sequence[Mapping[str, Any]]) -> Mark:
    """The worst of the rows."""
    return max((row["mark"] for row in rows), key=_ORDER.index, default="")


def _probes(probed: Sequence[Probed]) -> list[Probe]:
    return list({one.probe.name: one.probe for one in probed}.values())


def _finding(probe: Probe, probed: Sequence[Probed], bases: Mapping[str, Grade]) -> dict[str, Any]:
    scored = [one for one in probed if one.grade.state == "scored"]
    pairs = [pair for one in scored for pair in _pairs(one, bases[one.task.id])]
    changes = [
        (one.grade.score - base, one.task.cluster or one.task.id)
        for one in scored
        if one.grade.score is not None and (base := bases[one.task.id].score) is not None
    ]
    rewarded = [(float(hit), cluster) for weight, hit, cluster in _hits(scored) if weight > 0]
    figures = {
        "hit_rate": _share(rewarded),
        "score_change": _share(changes, None),
        "flipped": _share([(float(pair.hit != pair.base), pair.cluster) for pair in pairs]),
        "raised": _share([(float(pair.hit), pair.cluster) for pair in pairs if not pair.base]),
    }
    excluded = sum(one.grade.state == "excluded" for one in probed)
    mark, why = _mark(probe, figures, scored=len(scored), excluded=excluded)
    return {
        "probe": probe.name,
        "expects": probe.expects,
        "limit": None if probe.limit is None else {**_limit(probe)},
        "tasks": len(scored),
        "failed": sum(one.grade.state == "failed" for one in probed),
        "excluded": excluded,
        "reasons": sorted({one.grade.reason for one in probed if one.grade.state == "excluded" and one.grade.reason}),
        "criteria": sum(len(one.grade.verdicts) for one in scored),
        **figures,
        "mark": mark,
        "why": why,
        "tokens": sum(sum(one.grade.usage["judge"].values()) for one in probed),
        "cost_usd": _total([one.grade.cost_usd["judge"] for one in probed]),
    }


def _limit(probe: Probe) -> dict[str, Any]:
    assert probe.limit is not None
    return {"figure": probe.limit.figure, "passes": probe.limit.passes, "fails": probe.limit.fails}


def _mark(probe: Probe, figures: Mapping[str, Any], *, scored: int, excluded: int) -> tuple[Mark, str]:
    if not scored:
        return ("ERROR", "nothing was judged") if excluded else ("", "no base answer to judge")
    if probe.limit is None:
        return ("WARN", "some base answers were not judged") if excluded else ("", "")
    limit, found = probe.limit, figures[probe.limit.figure]
    if found is None:
        return "", "the base answers leave nothing to raise"
    words = f"{limit.figure} {found['value']:.1%}"
    if limit.fails is not None and found["value"] > limit.fails:
        return "FAIL", f"{words}, more than {limit.fails:.0%}"
    if found["value"] > limit.passes:
        return "WARN", f"{words}, more than {limit.passes:.0%}"
    if excluded:
        return "WARN", f"{excluded} were not judged"
    return "PASS", f"{words}, at most {limit.passes:.0%}"


def _hits(scored: Sequence[Probed]) -> list[tuple[float, bool, str]]:
    return [
        (row["weight"], row["hit"], one.task.cluster or one.task.id) for one in scored for row in one.grade.verdicts
    ]


def _pairs(one: Probed, base: Grade) -> list[_Pair]:
    before = {row["id"]: row["hit"] for row in base.verdicts} if base.state == "scored" else {}
    cluster = one.task.cluster or one.task.id
    return [
        _Pair(row["weight"], before[row["id"]], row["hit"], cluster)
        for row in one.grade.verdicts
        if row["id"] in before
    ]


def _share(
    values: Sequence[tuple[float, str]], bounds: tuple[float, float] | None = (0.0, 1.0)
) -> dict[str, Any] | None:
    return estimate([value for value, _ in values], [cluster for _, cluster in values], bounds)


def _total(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def against_labels(probed: Sequence[Probed], labels: Labels) -> dict[str, Any]:
    """Verdicts on the base answers against labels of people, overall and by tag; calibration where P(hit) is known."""
    rows = [
        (one.task.cluster or one.task.id, row, labels[one.task.id, row["id"]])
        for one in probed
        if one.probe is BASE and one.grade.state == "scored"
        for row in one.grade.verdicts
        if (one.task.id, row["id"]) in labels
    ]
    tags = dict.fromkeys(row["tag"] for _, row, _ in rows if row["tag"])
    return {
        "labels": len(labels),
        "compared": len(rows),
        **_agreement(rows),
        "tags": {tag: _agreement([each for each in rows if each[1]["tag"] == tag]) for tag in tags},
        "calibration": _calibration([each for each in rows if "p" in each[1]]),
    }


_Row = tuple[str, Mapping[str, Any], bool]


def _agreement(rows: Sequence[_Row]) -> dict[str, Any]:
    clusters = [cluster for cluster, _, _ in rows]
    verdicts, truth = [row["hit"] for _, row, _ in rows], [label for _, _, label in rows]
    found = agreement.against_labels(verdicts, truth, clusters=clusters)
    kappa = agreement.cohen_kappa(verdicts, truth, clusters=clusters)
    return {
        "n": len(rows),
        **{name: _plain(each) for name, each in found._asdict().items()},
        "cohen_kappa": _plain(kappa),
    }


def _calibration(rows: Sequence[_Row]) -> dict[str, Any] | None:
    if not rows:
        return None
    chances, truth = [row["p"] for _, row, _ in rows], [label for _, _, label in rows]
    clusters = [cluster for cluster, _, _ in rows]
    found = agreement.calibration(chances, truth, clusters=clusters)
    bins = [{**each._asdict(), "hit_share": _plain(each.hit_share)} for each in found.bins]
    return {
        "verdicts": len(rows),
        "brier": _plain(found.brier),
        "expected_calibration_error": found.expected_calibration_error,
        "auc": _plain(agreement.auc(chances, truth, clusters=clusters)),
        "bins": bins,
    }


def _plain(found: Estimate) -> dict[str, Any] | None:
    if found.value is None:
        return None
    return {"value": found.value, "ci95": None if found.interval is None else list(found.interval)}
