from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from wcwidth import wcswidth

from pytest_rubrics.reporting.table import render_part
from pytest_rubrics.reporting.terminal import run_lines
from tests.support.runs import write_run

LONGEST = "global_healthcare_and_medicine"


@pytest.fixture
def part(tmp_path: Path) -> dict[str, Any]:
    folder = write_run(tmp_path / "run", models=("alpha",), tasks=40)
    return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8"))["parts"][0])


def test_the_longest_subset_fits_eighty_columns(part: dict[str, Any]) -> None:
    part["subsets"][LONGEST] = part["subsets"]["cn_law"]
    assert max(map(len, render_part(part, 80).splitlines())) <= 80


def test_wide_characters_stay_aligned(part: dict[str, Any]) -> None:
    part["subsets"] = {"法律": part["subsets"]["cn_law"], "law": part["subsets"]["global_law"]}
    assert len({wcswidth(line) for line in render_part(part, 120).splitlines()}) == 1


def test_notes_are_wrapped_in_a_terminal_and_not_in_a_log(part: dict[str, Any], tmp_path: Path) -> None:
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    manifest["models"]["alpha"]["note"] = "一个很小的演示模型，它的得分没有任何意义，" * 4
    ((_, wrapped),) = run_lines(manifest, {"parts": [part]}, Path("run"), 80, wraps=True)
    ((_, whole),) = run_lines(manifest, {"parts": [part]}, Path("run"), 120)
    assert max(map(wcswidth, wrapped)) <= 80
    assert f"model alpha: {manifest['models']['alpha']['note']}" in whole
