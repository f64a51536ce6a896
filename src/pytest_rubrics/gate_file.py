"""The contents of ``configs/gates/*.yaml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_rubrics.yaml_files import YamlModel

Name = Annotated[str, Field(min_length=1)]
Probability = Annotated[float, Field(gt=0, lt=0.5)]


class Bound(YamlModel):
    """A least value.

    Attributes:
        at_least: The value.
        on: ``estimate`` compares the figure as it is; ``lower_end`` asks that its 95 % interval lies above, fails it
            only where the interval lies below, and calls the rest undecided.
    """

    at_least: float
    on: Literal["estimate", "lower_end"] = "lower_end"


class Floor(YamlModel):
    """What scores must reach.

    Attributes:
        mean: Of the mean score.
        pass_rate: Of the pass rate.
        track: The track it holds for; each one if neither track nor subset is given.
        subset: The subset it holds for.
    """

    mean: Bound | None = None
    pass_rate: Bound | None = None
    track: Name | None = None
    subset: Name | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Floor:
        if self.mean is None and self.pass_rate is None:
            raise ValueError("give mean or pass_rate, or both")
        if self.track and self.subset:
            raise ValueError("give track or subset, not both: a subset lies in one track")
        return self


class BaselineRule(YamlModel):
    """How a run is compared with the committed record of another one.

    Attributes:
        file: The record, as ``rubrics baseline`` writes it; relative to the workspace.
        rule: ``not_worse``: fails where the run is significantly worse. ``non_inferior``: passes only where it is shown
            not to be worse by the margin, and fails only where it is shown to be worse by more.
        margin: Largest loss that can be borne, in units of the figure (0.03 is 3 points of 100).
        on: The figure that is compared.
        alpha: Chance of a false alarm, and of a false pass.
    """

    file: Name
    rule: Literal["not_worse", "non_inferior"] = "not_worse"
    margin: float | None = Field(default=None, gt=0)
    on: Literal["mean", "pass_rate"] = "mean"
    alpha: Probability = 0.05

    @model_validator(mode="after")
    def _has_its_margin(self) -> BaselineRule:
        if (self.rule == "non_inferior") != (self.margin is not None):
            raise ValueError("rule: non_inferior needs a margin, and not_worse has none")
        return self


class GateFile(YamlModel):
    """A rule that decides a run. What it does not name is not asked.

    Attributes:
        benchmark: The benchmark it is made for; every benchmark of the run if not given.
        coverage: Least share of the selected grades that must have been made.
        selection: ``whole``: only a run of all tasks is decided; ``any``: any selection.
        floors: What scores must reach.
        baseline: What the run is compared with.
        must_pass: Tasks that must be passed, in every repeat: ids, keys, or ``subset-key``.
        max_cost_usd: Most that the answers and their judging may cost for one model, at the price of their time.
        judge_fingerprint: The judge that must have been used, as ``rubrics baseline`` prints it.
    """

    benchmark: Name | None = None
    coverage: float = Field(default=1.0, gt=0, le=1)
    selection: Literal["whole", "any"] = "whole"
    floors: list[Floor] = Field(default=[])
    baseline: BaselineRule | None = None
    must_pass: list[Name] = Field(default=[])
    max_cost_usd: float | None = Field(default=None, ge=0)
    judge_fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
