"""How often gates err, and what they find: the tables of docs/gates.md.

Run it as ``python perf/gate_simulation.py [floors|baselines]``; without a name it prints both. Each figure is the share
of 2,000 simulated runs (``--runs``) that the gate's own code gave a verdict: with that many, a true 5 % shows as 4 to
6 % in nineteen figures of twenty. Tasks, models and pairs are those of ``interval_coverage.py``; NumPy is needed here,
not in the package.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from interval_coverage import Floats, clusters_of, difficulties, rubric_scores

from pytest_rubrics.baselines import Baseline, TaskScore
from pytest_rubrics.estimates import estimate
from pytest_rubrics.gate_checks import Candidate, Verdict, check, worst
from pytest_rubrics.gate_file import BaselineRule, Bound, Floor, GateFile
from pytest_rubrics.statistics.comparison import compare, minimal_detectable_difference
from pytest_rubrics.wording import Figure

SIZES = (40, 200, 400)
PASS_AT = 0.7
ABILITY = 0.5  # of the baseline: a mean score of about .6
MARGIN = 0.03
SEED = 20_261_130
SETTINGS = {"judge": {}, "prompts": {}, "scoring": {"metric": "expert_score", "clip": True, "pass_at": PASS_AT}}


class Truth(NamedTuple):
    """True figures of a model, by its ability."""

    abilities: Floats
    means: Floats
    pass_rates: Floats

    def of(self, figure: Figure) -> Floats:
        """Its true mean score, or pass rate."""
        return self.means if figure == "mean" else self.pass_rates

    def at(self, ability: float, figure: Figure) -> float:
        """The true figure of a model."""
        return float(np.interp(ability, self.abilities, self.of(figure)))

    def ability(self, value: float, figure: Figure) -> float:
        """The ability at which a figure has this true value."""
        return float(np.interp(value, self.of(figure), self.abilities))


def truth(seed: int) -> Truth:
    """True figures from 400,000 tasks, the same ones at each ability, so that their differences are exact enough."""
    abilities = np.linspace(-0.8, 1.4, 23)
    figures = [_of_many_tasks(np.random.default_rng(seed), ability) for ability in abilities]
    return Truth(abilities, *(np.array(column) for column in zip(*figures, strict=True)))


def _of_many_tasks(rng: np.random.Generator, ability: float) -> tuple[float, float]:
    parts = [rubric_scores(rng, difficulties(rng, 1, 20_000, False), ability) for _ in range(20)]
    return float(np.mean(parts)), float(np.mean([part >= PASS_AT for part in parts]))


def made(scores: Sequence[float], clusters: Sequence[int], tracks: int) -> Baseline:
    """A run with these scores; with two tracks, tasks are dealt to them in turn."""
    tasks = {
        str(number): TaskScore(
            key=str(number),
            subset="all",
            track=("", f"track {number % tracks}")[tracks > 1],
            cluster=str(cluster),
            fingerprint="",
            score=score,
            passed=float(score >= PASS_AT),
        )
        for number, (score, cluster) in enumerate(zip(scores, clusters, strict=True))
    }
    return Baseline("b", "m", "j", "r", None, "d", 1, len(tasks), len(tasks), SETTINGS, tasks)


def verdict(rules: GateFile, candidate: Baseline, baseline: Baseline | None = None) -> Verdict:
    """What the gate says."""
    tasks = list(candidate.tasks.values())
    clusters = [task.cluster for task in tasks]
    part: dict[str, Any] = {
        "metric": "expert_score",
        "coverage": 1.0,
        "reasons": {},
        "exclusion_bounds": None,
        "tracks": {},
        "subsets": {},
        "mean": estimate([task.score or 0.0 for task in tasks], clusters),
        "pass_rate": estimate([task.passed or 0.0 for task in tasks], clusters),
    }
    return worst([found.verdict for found in check(rules, baseline, Candidate(part, [], candidate))])


def shares(verdicts: Sequence[Verdict]) -> dict[Verdict, float]:
    """How often each verdict was given."""
    return {each: verdicts.count(each) / len(verdicts) for each in (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL)}


def floor_shares(
    rng: np.random.Generator, runs: int, n: int, paired: bool, ability: float, floor: Floor
) -> dict[Verdict, float]:
    """Verdicts on a model of this ability."""
    rules, clusters = GateFile(floors=[floor]), clusters_of(n, paired)
    verdicts: list[Verdict] = []
    for count in batches(runs, n):
        scores = rubric_scores(rng, difficulties(rng, count, n, paired), ability)
        verdicts += [verdict(rules, made(row, clusters, 1)) for row in scores.tolist()]
    return shares(verdicts)


def batches(runs: int, n: int) -> list[int]:
    """Numbers of runs that are drawn at once, so that they fit into memory."""
    most = max(1, 40_000 // n)
    return [min(most, runs - start) for start in range(0, runs, most)]


def print_floors(rng: np.random.Generator, runs: int) -> None:
    """Floors on the lower end of the interval, and on the bare figure."""
    known = truth(SEED)
    figures: dict[Figure, float] = {"mean": 0.60, "pass_rate": 0.40}
    for figure, at_least in figures.items():
        print(f"\nfloor of {at_least:.2f} on the {figure}; verdicts by what is true")
        print(f"{'on':>10} {'tasks':>6} {'pairs':>6} {'truth':>7} {'PASS':>7} {'undecided':>10} {'FAIL':>7}")
        for on in ("lower_end", "estimate"):
            bound = Bound(at_least=at_least, on=on)
            floor = Floor(mean=bound) if figure == "mean" else Floor(pass_rate=bound)
            for n in SIZES:
                for paired in (False, True):
                    for distance in (-0.10, -0.05, 0.0, 0.05, 0.10):
                        ability = known.ability(at_least + distance, figure)
                        found = floor_shares(rng, runs, n, paired, ability, floor)
                        print_line([f"{on:>10}", n, paired, at_least + distance], found)


def baseline_shares(
    rng: np.random.Generator, runs: int, n: int, paired: bool, ability: float, rule: BaselineRule, tracks: int
) -> dict[Verdict, float]:
    """Verdicts on a model of this ability against the baseline model, on the same tasks."""
    rules, clusters = GateFile(baseline=rule), clusters_of(n, paired)
    verdicts: list[Verdict] = []
    for count in batches(runs, n):
        difficulty = difficulties(rng, count, n, paired)
        before, after = rubric_scores(rng, difficulty, ABILITY), rubric_scores(rng, difficulty, ability)
        rows = zip(before.tolist(), after.tolist(), strict=True)
        verdicts += [verdict(rules, made(b, clusters, tracks), made(a, clusters, tracks)) for a, b in rows]
    return shares(verdicts)


def deviation(rng: np.random.Generator, figure: Figure, paired: bool) -> float:
    """Standard deviation of the differences of two equal models, with the effect of pairs in it."""
    found = []
    for _ in range(20):
        difficulty = difficulties(rng, 1, 4_000, paired)[0]
        before, after = rubric_scores(rng, difficulty, ABILITY), rubric_scores(rng, difficulty, ABILITY)
        if figure == "pass_rate":
            before, after = np.asarray(before >= PASS_AT, float), np.asarray(after >= PASS_AT, float)
        found.append(compare(before.tolist(), after.tolist(), clusters=clusters_of(4_000, paired)).sd or 0.0)
    return float(np.mean(found))


def print_baselines(rng: np.random.Generator, runs: int) -> None:
    """Not worse, and non-inferior by a margin, on the same tasks."""
    known = truth(SEED)
    both: tuple[Figure, Figure] = ("mean", "pass_rate")
    for figure in both:
        start = known.at(ABILITY, figure)
        for rule_name, margin in (("not_worse", None), ("non_inferior", MARGIN)):
            rule = BaselineRule(file="-", rule=rule_name, margin=margin, on=figure)  # type: ignore[arg-type]
            print(f"\n{rule_name}{f' by {margin}' if margin else ''} on the {figure} (baseline {start:.3f})")
            print(f"{'tracks':>10} {'tasks':>6} {'pairs':>6} {'loss':>7} {'PASS':>7} {'undecided':>10} {'FAIL':>7}")
            for tracks in (1, 2):
                for n in SIZES:
                    for paired in (False, True):
                        for loss in losses(rng, figure, n, paired, tracks, margin):
                            ability = known.ability(start - loss, figure)
                            found = baseline_shares(rng, runs, n, paired, ability, rule, tracks)
                            print_line([f"{tracks:>10}", n, paired, loss], found)


def losses(
    rng: np.random.Generator, figure: Figure, n: int, paired: bool, tracks: int, margin: float | None
) -> list[float]:
    """No loss, three points, the loss that the gate says is found four times in five, and twice the margin."""
    least = minimal_detectable_difference(deviation(rng, figure, paired), n // tracks)
    return sorted({0.0, 0.03, *([2 * margin] if margin else []), round(least, 3)})


def print_line(cells: Sequence[Any], found: dict[Verdict, float]) -> None:
    """One line of a table."""
    first, n, paired, value = cells
    rates = f"{found[Verdict.PASS]:>7.3f} {found[Verdict.INCONCLUSIVE]:>10.3f} {found[Verdict.FAIL]:>7.3f}"
    print(f"{first} {n:>6} {'yes' if paired else 'no':>6} {value:>7.3f} {rates}", flush=True)


SECTIONS: dict[str, Callable[[np.random.Generator, int], None]] = {
    "floors": print_floors,
    "baselines": print_baselines,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="?", choices=SECTIONS)
    parser.add_argument("--runs", type=int, default=2_000)
    options = parser.parse_args()
    for name, section in SECTIONS.items():
        if options.section in {None, name}:
            section(np.random.default_rng(SEED), options.runs)
