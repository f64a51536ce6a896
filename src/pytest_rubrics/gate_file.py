"""The contents of ``configs/gates/*.yaml``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_rubrics.yaml_files import YamlModel


class GateFile(YamlModel):
    """A rule that decides a run.

    Attributes:
        benchmark: The benchmark it is made for; every benchmark of the run if not given.
        coverage: Least share of the selected grades that must have been made.
        selection: ``whole``: only a run of all tasks is decided; ``any``: any selection.
    """

    benchmark: str | None = None
    coverage: float = Field(default=1.0, gt=0, le=1)
    selection: Literal["whole", "any"] = "whole"
