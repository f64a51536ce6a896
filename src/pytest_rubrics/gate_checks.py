"""The checks of a gate: each looks at one model's run and says what it found. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pytest_rubrics.baselines import Baseline
from pytest_rubrics.comparability import judge_fingerprint
from pytest_rubrics.comparing import SHOWN_NAMES, TOTAL, SliceComparison, by_track, obstacles, unshared
from pytest_rubrics.figures import NOT_A_NUMBER
from pytest_rubrics.gate_file import BaselineRule, Bound, Floor, GateFile
from pytest_rubrics.statistics.comparison import holm, minimal_detectable_difference
from pytest_rubrics.suggestions import did_you_mean
from pytest_rubrics.task_results import TaskResult
from pytest_rubrics.wording import Figure, p_words, shown, with_interval


class Verdict(Enum):
    """What a gate says, with its exit code. A worse one comes first."""

    FAIL = 1
    NOT_COMPARABLE = 12
    LOW_COVERAGE = 11
    INCONCLUSIVE = 10
    PASS = 0


_ORDER = list(Verdict)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The one that counts among several."""
    return min(verdicts, key=_ORDER.index)


@dataclass(frozen=True, slots=True)
class Check:
    """What one rule of a gate found.

    Attributes:
        verdict: The verdict.
        sentence: Why, in plain words with the figures.
    """

    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model's run on one benchmark, as a gate looks at it.

    Attributes:
        part: Its summary.
        results: Its tasks.
        scores: The same task by task, with what they were made with.
    """

    part: Mapping[str, Any]
    results: Sequence[TaskResult]
    scores: Baseline


def check(rules: GateFile, baseline: Baseline | None, candidate: Candidate) -> list[Check]:
    """Look at one model by every rule. What makes the scores useless is said alone: the others would mislead."""
    obstacle = _first(_obstacles(rules, baseline, candidate))
    if obstacle is not None:
        return [obstacle]
    checks = [check for floor in rules.floors for check in _floor(floor, candidate.part)]
    if rules.baseline is not None and baseline is not None:
        checks.append(_against_baseline(rules.baseline, baseline, candidate.scores))
    if rules.must_pass:
        checks.append(_must_pass(rules.must_pass, candidate.results))
    if rules.max_cost_usd is not None:
        checks.append(_cost(rules.max_cost_usd, candidate.part["cost_usd"]))
    return checks


def _first(checks: Iterator[Check]) -> Check | None:
    return next(checks, None)


def _obstacles(rules: GateFile, baseline: Baseline | None, candidate: Candidate) -> Iterator[Check]:
    """What forbids a decision, the gravest first."""
    for sentence in _not_comparable(rules, baseline, candidate):
        yield Check(Verdict.NOT_COMPARABLE, sentence)
    part = candidate.part
    broken = part["reasons"].get(f"excluded: {NOT_A_NUMBER}", 0)
    if broken:
        yield Check(Verdict.LOW_COVERAGE, f"the score of {broken} grades is no number")
    if not part["coverage"]:
        yield Check(Verdict.LOW_COVERAGE, "nothing was graded")
    if part["coverage"] < rules.coverage:
        sentence = f"the gate asks for {rules.coverage:.1%}"
        if bounds := part["exclusion_bounds"]:
            low, high = bounds["mean"]
            sentence += f"; what is missing could bring the mean anywhere from {low:.3f} to {high:.3f}"
        yield Check(Verdict.LOW_COVERAGE, f"{sentence}. --retry excluded asks for it anew")
    if missing := _named(rules.must_pass, [result for result in candidate.results if not result.graded]):
        yield Check(Verdict.LOW_COVERAGE, f"{_listed(missing)} must be passed and was excluded")


def _not_comparable(rules: GateFile, baseline: Baseline | None, candidate: Candidate) -> Iterator[str]:
    part, scores = candidate.part, candidate.scores
    if rules.selection == "whole" and scores.selected < scores.whole:
        yield f"{scores.selected} of {scores.whole} tasks were selected, and the gate is made for all of them"
    found = judge_fingerprint(scores.settings)
    if rules.judge_fingerprint not in {None, found}:
        judge = scores.settings["judge"]
        served = f", served as {', '.join(judge['served'])}" if judge["served"] else ""
        yield (
            f"the gate asks for the judge {rules.judge_fingerprint}, and {scores.judge} is {found}: "
            f"{judge.get('model', 'a panel')}{served}"
        )
    if baseline is not None:
        reasons = obstacles(baseline, scores) or (unshared(baseline, scores) if rules.selection == "whole" else [])
        if reasons:
            yield f"the scores cannot be compared with those of the baseline: {'; '.join(reasons)}"
    for floor in rules.floors:
        for kind, name in (("track", floor.track), ("subset", floor.subset)):
            if name is not None and name not in part[f"{kind}s"]:
                yield f"no task of the {kind} {name} was selected"
    if part["pass_rate"] is None and scores.pass_at is None and _asks_for_passes(rules):
        yield f"{scores.benchmark} has no pass mark, so there is no pass rate and no task is passed"
    for name in rules.must_pass:
        if not _named([name], candidate.results):
            known = [name for result in candidate.results for name in _names(result)]
            hint = did_you_mean(name, known)
            yield f"{name} must be passed and was not selected{f'. {hint}' if hint else ''}"


def _asks_for_passes(rules: GateFile) -> bool:
    on_passes = rules.baseline is not None and rules.baseline.on == "pass_rate"
    return bool(rules.must_pass) or on_passes or any(floor.pass_rate for floor in rules.floors)


def _floor(floor: Floor, part: Mapping[str, Any]) -> Iterator[Check]:
    for name, numbers in _places(floor, part):
        where = f" of {name}" if name else ""
        if floor.mean is not None:
            yield _bound(floor.mean, f"mean {numbers['metric']}{where}", numbers["mean"], "mean")
        if floor.pass_rate is not None:
            yield _bound(floor.pass_rate, f"pass rate{where}", numbers["pass_rate"], "pass_rate")


def _places(floor: Floor, part: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Where a floor holds: in its subset or track, else in each track, which are never pooled."""
    if floor.subset is not None:
        return [(floor.subset, part["subsets"][floor.subset])]
    if floor.track is not None:
        return [(floor.track, part["tracks"][floor.track])]
    return list(part["tracks"].items()) or [("", part)]


def _bound(bound: Bound, name: str, estimate: Mapping[str, Any] | None, figure: Figure) -> Check:
    floor = shown(bound.at_least, figure)
    if estimate is None:
        return Check(Verdict.LOW_COVERAGE, f"{name}: nothing was graded")
    value, interval = estimate["value"], estimate["ci95"]
    found = f"{name} is {with_interval(value, interval, figure)}"
    if bound.on == "estimate":
        holds = value >= bound.at_least
        word = "which reaches" if holds else "below"
        return Check(Verdict.PASS if holds else Verdict.FAIL, f"{found}, {word} the floor {floor}")
    if interval is None:
        return Check(Verdict.INCONCLUSIVE, f"{found}: too few tasks to tell whether it reaches the floor {floor}")
    low, high = interval
    if low >= bound.at_least:
        return Check(Verdict.PASS, f"{found}, above the floor {floor}")
    if high < bound.at_least:
        return Check(Verdict.FAIL, f"{found}, below the floor {floor}")
    needed = shown(bound.at_least + value - low, figure)
    sentence = f"{found} and the interval holds the floor {floor}: with this many tasks it takes about {needed} to pass"
    return Check(Verdict.INCONCLUSIVE, sentence)


def _against_baseline(rule: BaselineRule, baseline: Baseline, candidate: Baseline) -> Check:
    slices = by_track(baseline, candidate, rule.on)
    if not slices or not all(each.tasks for each in slices):
        return Check(Verdict.NOT_COMPARABLE, "no task was graded both in the baseline and in this run")
    if rule.margin is None:
        verdict, advice = _not_worse(rule, slices)
    else:
        verdict, advice = _non_inferior(rule, rule.margin, slices)
    found = "; ".join(_difference(each, rule.on, candidate.metric) for each in slices)
    return Check(verdict, f"against {baseline.model} (run {baseline.run}) {found}. {advice}")


def _not_worse(rule: BaselineRule, slices: Sequence[SliceComparison]) -> tuple[Verdict, str]:
    """Significantly worse in any track fails; p values are corrected for the number of tracks."""
    p_values = [_p_below(each, 0.0) for each in slices]
    known = [p for p in p_values if p is not None]
    if known and min(holm(known)) < rule.alpha:
        return Verdict.FAIL, f"That is worse (one-sided {p_words(min(holm(known)))})"
    if len(known) < len(p_values):
        return Verdict.INCONCLUSIVE, "There are too few tasks to tell whether it is worse"
    least = max(_smallest_loss(each, rule.alpha) for each in slices)
    advice = f"That is not significantly worse (one-sided {p_words(min(holm(known)))})"
    if least > 0:
        advice += f"; a loss of {shown(least, rule.on)} would be found four times in five"
    return Verdict.PASS, advice


def _p_below(each: SliceComparison, limit: float) -> float | None:
    """P value of "not below the limit"; equal scores in every task are no sign of a loss."""
    p = each.comparison.p_below(limit)
    return 1.0 if p is None and each.comparison.same == each.tasks else p


def _non_inferior(rule: BaselineRule, margin: float, slices: Sequence[SliceComparison]) -> tuple[Verdict, str]:
    """Every track must be shown to lose less than the margin; one shown to lose more fails."""
    above = [each.comparison.p_above(-margin) for each in slices]
    worst_above = max((p for p in above if p is not None), default=None)
    margin_shown = shown(margin, rule.on)
    if worst_above is not None and None not in above and worst_above < rule.alpha:
        return Verdict.PASS, f"A loss of {margin_shown} or more is ruled out (one-sided {p_words(worst_above)})"
    below = [p for each in slices if (p := each.comparison.p_below(-margin)) is not None]
    if below and min(holm(below)) < rule.alpha:
        return Verdict.FAIL, f"That is a loss of more than {margin_shown} (one-sided {p_words(min(holm(below)))})"
    advice = f"Whether the loss is less than {margin_shown} these tasks do not tell"
    if worst_above is not None:
        advice += f" (one-sided {p_words(worst_above)})"
    needed = max(_tasks_needed(each, margin, rule.alpha) for each in slices)
    if needed:
        where = "" if slices[0].name == TOTAL else " in each track"
        advice += f"; without a true loss about {needed} tasks{where}, or more repeats, show it four times in five"
    return Verdict.INCONCLUSIVE, advice


def _smallest_loss(each: SliceComparison, alpha: float) -> float:
    sd = each.comparison.sd
    return minimal_detectable_difference(sd, each.tasks, alpha=alpha) if sd else 0.0


def _tasks_needed(each: SliceComparison, margin: float, alpha: float) -> int:
    """Number of tasks at which the smallest loss that shows is the margin."""
    loss = _smallest_loss(each, alpha)
    return max(each.tasks, round((loss / margin) ** 2 * each.tasks)) if loss > margin else 0


def _difference(each: SliceComparison, figure: Figure, metric: str) -> str:
    name = f"mean {metric}" if figure == "mean" else "pass rate"
    where = "" if each.name == TOTAL else f" of {each.name}"
    estimate = each.comparison.difference
    interval = None if estimate.interval is None else list(estimate.interval)
    change = with_interval(estimate.value, interval, figure, sign=True)
    return (
        f"{name}{where} went from {shown(each.baseline, figure)} to {shown(each.candidate, figure)} "
        f"on {each.tasks} tasks, by {change}"
    )


def _must_pass(names: Sequence[str], results: Sequence[TaskResult]) -> Check:
    lost = _named(names, [result for result in results if (result.passed or 0.0) < 1.0])
    if lost:
        return Check(Verdict.FAIL, f"{_listed(lost)} must be passed and was not")
    return Check(Verdict.PASS, f"what must be passed was ({_listed(_named(names, results))})")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _named(names: Sequence[str], results: Sequence[TaskResult]) -> list[str]:
    """The tasks that are named, by subset and key."""
    wanted = set(names)
    return [f"{result.subset}-{result.key}" for result in results if wanted & set(_names(result))]


def _names(result: TaskResult) -> tuple[str, str, str]:
    return result.id, result.key, f"{result.subset}-{result.key}"


def _cost(most: float, cost: Mapping[str, float | None]) -> Check:
    if None in cost.values():
        sentence = "what the run cost is not known, because a price is missing: give the model and the judge a price"
        return Check(Verdict.INCONCLUSIVE, sentence)
    total = sum(amount for amount in cost.values() if amount is not None)
    verdict = Verdict.PASS if total <= most else Verdict.FAIL
    return Check(verdict, f"answers and judging cost ${total:.2f}, and the gate allows ${most:.2f}")
