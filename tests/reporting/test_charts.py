from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from pytest_rubrics.reporting.charts import Point, Row, cost_chart, interval_chart, score_chart

ROWS = [Row("alpha", 0.4, 0.3, 0.55, 0), Row("a<b>&'\"\x00\ud800", 0.8, None, None, 9)]
CHARTS = {
    "intervals": interval_chart(ROWS, clip=True),
    "unclipped": interval_chart([Row("alpha", -0.4, -0.9, 0.1, 0)], clip=False),
    "scores": score_chart([0.0, 0.69, 0.7, 1.0], 0.7),
    "no mark": score_chart([-0.5, 0.2], None),
    "cost": cost_chart([Point("alpha", 0.02, 0.4, 0), Point("beta", 0.0, 0.7, 1)]),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_a_drawing_and_nothing_else(name: str) -> None:
    elements = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(CHARTS[name]).iter()}
    assert elements <= {"svg", "g", "rect", "path", "line", "text", "circle", "title"}


def test_every_interval_stands_at_its_row() -> None:
    titles = [element.text for element in ElementTree.fromstring(CHARTS["intervals"]).iter() if "title" in element.tag]
    assert "alpha: 0.400 (0.300 – 0.550)" in titles
    assert CHARTS["intervals"].count('r="5"') == 2


def test_a_colour_follows_the_model() -> None:
    assert 'class="series color-1"' in CHARTS["intervals"]  # the ninth of eight


def test_a_score_at_the_mark_is_a_pass() -> None:
    svg = ElementTree.fromstring(score_chart([0.69, 0.7, 0.71], 0.7))
    series = [group for group in svg.iter() if group.get("class", "").startswith("series")]
    groups = [[float(bar.get("height", 0)) for bar in group.iter() if bar.tag.endswith("rect")] for group in series]
    assert [sum(height > 1 for height in heights) for heights in groups if heights] == [1, 1]


def test_the_library_leaves_no_hook_behind() -> None:
    code = (
        "import sys, warnings; warnings.simplefilter('error');"
        "from pytest_rubrics.reporting.charts import score_chart; score_chart([0.5], None);"
        "import zipapp; assert not [f for f in sys.meta_path if not hasattr(f, 'find_spec')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
