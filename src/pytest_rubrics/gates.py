"""Gates: the rule that decides a run, its verdict, and the exit code that follows. Pure but for `load_gate`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.suggestions import did_you_mean

if TYPE_CHECKING:
    from pytest_rubrics.baselines import Baseline
    from pytest_rubrics.evidence import Evidence
    from pytest_rubrics.gate_checks import Check, Verdict
    from pytest_rubrics.gate_file import GateFile
    from pytest_rubrics.summary import PartName
    from pytest_rubrics.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why.

    Attributes:
        verdict: The verdict.
        reason: Why, in plain words with the figures.
    """

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate in use.

    Attributes:
        name: Name of its file.
        rules: What the file says.
        baseline: What runs are compared with, or None.
    """

    name: str
    rules: GateFile
    baseline: Baseline | None = None

    @property
    def benchmark(self) -> str | None:
        """The benchmark it is made for; None for every benchmark of a run."""
        return self.rules.benchmark or (self.baseline.benchmark if self.baseline else None)

    def wrong_for(self, benchmarks: Mapping[str, Collection[str]]) -> list[Fault]:
        """Faults of using it in a run.

        Args:
            benchmarks: Those of the run, each with the names of its subsets and tracks; without any, these are not
                known and not checked.
        """
        named = self.benchmark
        place = f"--gate {self.name}"
        if named is not None and named not in benchmarks:
            fix = did_you_mean(named, benchmarks) or f"This run has {', '.join(benchmarks)}."
            return [Fault(place, f"is made for the benchmark {named}, which is not in this run.", fix=fix)]
        slices = [name for benchmark, names in benchmarks.items() if self.is_for(benchmark) for name in names]
        asked = [name for floor in self.rules.floors if (name := floor.subset or floor.track)]
        return [
            Fault(place, f"has a floor for {name}, which is no subset or track.", fix=did_you_mean(name, slices))
            for name in asked
            if slices and name not in slices
        ]

    def is_for(self, benchmark: str) -> bool:
        """Whether it decides grades of a benchmark."""
        return self.benchmark in {None, benchmark}

    def decide(self, evidence: Evidence) -> Decision:
        """Decide a run: each model of the gated benchmarks by itself, and the worst verdict counts."""
        from pytest_rubrics.gate_checks import Verdict, worst

        decisions = [self._decide_one(evidence, name) for name in evidence.results if self.is_for(name[0])]
        if not decisions:
            return Decision(Verdict.LOW_COVERAGE, "nothing was graded")
        if self.rules.selection == "whole":
            decisions += self._left_out(evidence)
        verdict = worst([decision.verdict for decision in decisions])
        if len(decisions) == 1:
            return decisions[0]
        ordered = sorted(decisions, key=lambda decision: decision.verdict is not verdict)
        return Decision(verdict, " | ".join(f"{decision.verdict.name}: {decision.reason}" for decision in ordered))

    def _left_out(self, evidence: Evidence) -> list[Decision]:
        """A decision for each model of which no task at all was selected."""
        from pytest_rubrics.gate_checks import Verdict

        manifest = evidence.manifest
        names = [name for name, entry in manifest["benchmarks"].items() if self.is_for(name) and entry["tasks"]]
        seen = {(benchmark, model) for benchmark, model, _ in evidence.results}
        return [
            Decision(Verdict.NOT_COMPARABLE, f"{model}: no task of {name} was selected, and the gate is made for all")
            for name in names
            for model in manifest["models"]
            if (name, model) not in seen
        ]

    def _decide_one(self, evidence: Evidence, name: PartName) -> Decision:
        from pytest_rubrics.baselines import baseline_of
        from pytest_rubrics.gate_checks import Candidate, Verdict, check, worst

        part = evidence.parts[name]
        scores = baseline_of(evidence, name, fingerprints=self.baseline is not None)
        candidate = Candidate(part, evidence.results[name], scores)
        checks = check(self.rules, self.baseline, candidate)
        verdict = worst([Verdict.PASS, *(check.verdict for check in checks)])
        graded, total = part["scored"] + part["failed"], part["scored"] + part["failed"] + part["excluded"]
        counts = f"{part['model']}: {graded} of {total} grades were made, coverage {graded / total:.1%}"
        return Decision(verdict, "; ".join([counts, *_sentences(checks, verdict)]))


def _sentences(checks: Sequence[Check], verdict: Verdict) -> list[str]:
    """What decided, then what else was found."""
    decisive = [check.sentence for check in checks if check.verdict is verdict]
    return decisive + [check.sentence for check in checks if check.verdict is not verdict]


def load_gate(name: str, workspace: Workspace, cwd: Path | None = None) -> Gate:
    """A gate by name (``configs/gates/NAME.yaml``) or path, with its baseline.

    Raises:
        FaultsError: There is no such gate, or its file or its baseline has faults.
    """
    from pytest_rubrics.baselines import read_baseline
    from pytest_rubrics.gate_file import GateFile
    from pytest_rubrics.yaml_files import load_yaml

    path = workspace.find_gate(name, cwd=cwd)
    shown = workspace.shown(path)
    rules = load_yaml(path, GateFile, shown_as=shown)
    if rules.baseline is None:
        return Gate(path.stem, rules)
    baseline = read_baseline(workspace.root / rules.baseline.file, shown_as=f"{shown}, baseline.file")
    if rules.benchmark not in {None, baseline.benchmark}:
        message = f"is made for {rules.benchmark}, and its baseline is of {baseline.benchmark}."
        raise FaultsError([Fault(shown, message, key="benchmark", fix="Name a baseline of the same benchmark.")])
    return Gate(path.stem, rules, baseline)
