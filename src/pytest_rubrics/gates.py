"""Gates: the rule that decides a run, its verdict, and the exit code that follows. Pure but for `load_gate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rubrics.faults import Fault
from pytest_rubrics.suggestions import did_you_mean

if TYPE_CHECKING:
    from pytest_rubrics.evidence import Evidence
    from pytest_rubrics.gate_file import GateFile
    from pytest_rubrics.workspace import Workspace


class Verdict(Enum):
    """What a gate says, with its exit code. A worse one comes first."""

    FAIL = 1
    NOT_COMPARABLE = 12
    LOW_COVERAGE = 11
    INCONCLUSIVE = 10
    PASS = 0


_WORST_FIRST = list(Verdict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why.

    Attributes:
        verdict: The verdict.
        reason: One sentence in plain words.
    """

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate in use.

    Attributes:
        name: Name of its file.
        rules: What the file says.
    """

    name: str
    rules: GateFile

    def wrong_for(self, benchmarks: Sequence[str]) -> list[Fault]:
        """Faults of using it in a run of these benchmarks."""
        named = self.rules.benchmark
        if named is None or named in benchmarks:
            return []
        fix = did_you_mean(named, benchmarks) or f"This run has {', '.join(benchmarks)}."
        return [Fault(f"--gate {self.name}", f"is made for the benchmark {named}, which is not in this run.", fix=fix)]

    def is_for(self, benchmark: str) -> bool:
        """Whether it decides grades of a benchmark."""
        return self.rules.benchmark in {None, benchmark}

    def decide(self, evidence: Evidence) -> Decision:
        """Decide a run: each model of the gated benchmarks, and the worst counts."""
        manifest = evidence.manifest
        names = [name for name in manifest["benchmarks"] if self.is_for(name)]
        parts = [part for (name, _, _), part in evidence.parts.items() if name in names]
        selected = sum(figures.benchmark in names for figures in evidence.figures)
        tasks = sum(manifest["benchmarks"][name]["tasks"] for name in names)
        whole = tasks * len(manifest["models"]) * manifest["options"]["repeats"]
        if not parts or selected == 0:
            return Decision(Verdict.LOW_COVERAGE, "nothing was graded")
        if self.rules.selection == "whole" and selected < whole:
            reason = f"{selected} of {whole} tasks were selected, and the gate is made for all of them"
            return Decision(Verdict.NOT_COMPARABLE, reason)
        decisions = [self._decide_one(part) for part in parts]
        return min(decisions, key=lambda decision: _WORST_FIRST.index(decision.verdict))

    def _decide_one(self, part: Mapping[str, Any]) -> Decision:
        graded, total = part["scored"] + part["failed"], part["scored"] + part["failed"] + part["excluded"]
        if total == 0:
            return Decision(Verdict.LOW_COVERAGE, f"{part['model']}: nothing was graded")
        counts = f"{part['model']}: {graded} of {total} grades were made, coverage {graded / total:.1%}"
        if graded / total < self.rules.coverage:
            return Decision(Verdict.LOW_COVERAGE, f"{counts}, and the gate asks for {self.rules.coverage:.1%}")
        return Decision(Verdict.PASS, counts)


def load_gate(name: str, workspace: Workspace, cwd: Path | None = None) -> Gate:
    """A gate by name (``configs/gates/NAME.yaml``) or path.

    Raises:
        FaultsError: There is no such gate, or its file has faults.
    """
    from pytest_rubrics.gate_file import GateFile
    from pytest_rubrics.yaml_files import load_yaml

    path = workspace.find_gate(name, cwd=cwd)
    return Gate(path.stem, load_yaml(path, GateFile, shown_as=workspace.shown(path)))
