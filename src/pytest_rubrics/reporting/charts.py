"""Charts as SVG, drawn by pygal. Colours and fonts are the page's: a chart holds no style and no script of its own."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

ROW = 24  # height of a row in a chart of intervals
WIDTH = 480  # in pixels; the page scales a chart to its column
_TEXT = 13  # size of the labels in pixels, as in the page's style
_NAME = 30  # characters of a name
_DOT, _END = 5, 0.01  # radii: an interval has no dots at its ends
COLORS = 8  # of the page
_SERIES = re.compile(r"series serie-(\d+)")
_NO_XML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Row(NamedTuple):
    """A mean with its interval.

    Attributes:
        name: What it is the mean of.
        value: The mean; None for a heading above other rows.
        low, high: Ends of its interval; None where there is none.
        color: Number of its colour.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    color: int = 0


def interval_chart(rows: Sequence[Row], *, clip: bool) -> str:
    """A forest plot: a dot and a line for each mean, the first one on top."""
    spare = 0.1
    ends = [end for row in rows for end in (row.low, row.value, row.high) if end is not None]
    low, high = (0.0, 1.0) if clip else (min([0.0, *ends]), max([1.0, *ends]))
    chart = _pygal().XY(
        **_settings(height=60 + ROW * len(rows)),
        xrange=(low, high),
        range=(-len(rows) + 1 - spare * 4, spare * 4),
        x_labels=[round(low + (high - low) * n / 5, 3) for n in range(6)],
        y_labels=[{"value": -n, "label": _short(row.name)} for n, row in enumerate(rows)],
        dots_size=4,
        margin_left=10,
        show_x_guides=True,
        show_y_guides=False,
        truncate_label=-1,
    )
    for n, row in enumerate(rows):
        if row.value is None:
            continue
        span = [row.value] if row.low is None or row.high is None else [row.low, row.value, row.high]
        label = f"{_plain(row.name)}: {row.value:.3f}" + (
            "" if len(span) == 1 else f" ({row.low:.3f} – {row.high:.3f})"
        )
        radii = [_DOT] if len(span) == 1 else [_END, _DOT, _END]
        points = [{"value": (x, -n), "label": label, "node": {"r": r}} for x, r in zip(span, radii, strict=True)]
        chart.add("", points)
    headings = {_short(row.name) for row in rows if row.value is None}
    return _svg(chart, [row.color for row in rows if row.value is not None], headings)


def score_chart(scores: Sequence[float], pass_at: float | None) -> str:
    """How many tasks have which score; those that pass have a colour of their own.

    Args:
        scores: One score a task.
        pass_at: The pass mark, or None.
    """
    low, high = min([0.0, *scores]), max([1.0, *scores])
    width = (high - low) / 20
    counts = [0] * 20
    for score in scores:
        counts[min(19, max(0, int((score - low) / width + 1e-9)))] += 1
    bars = [(count, low + n * width, low + (n + 1) * width) for n, count in enumerate(counts)]
    mark = high + 1 if pass_at is None else pass_at
    chart = _pygal().Histogram(
        **_settings(height=170, kind="bars"),
        range=(0, max(counts, default=0) or 1),
        xrange=(low, high),
        x_labels=[round(low + (high - low) * n / 5, 3) for n in range(6)],
        y_labels=_whole_ticks(max(counts, default=0)),
        show_y_guides=True,
    )
    chart.add("below", [bar for bar in bars if bar[1] + 1e-9 < mark])
    chart.add("passed", [bar for bar in bars if bar[1] + 1e-9 >= mark])
    return _svg(chart, [0, 1])


class Point(NamedTuple):
    """A model's mean cost of a task in USD, and its mean score."""

    name: str
    cost: float
    score: float
    color: int


def cost_chart(points: Sequence[Point]) -> str:
    """Cost of a task against quality, a dot for each model."""
    most = max(point.cost for point in points) or 1.0
    scores = [point.score for point in points]
    lowest, highest = math.floor(10 * min(scores) - 0.5) / 10, math.ceil(10 * max(scores) + 0.5) / 10
    chart = _pygal().XY(
        **_settings(height=280),
        stroke=False,
        dots_size=7,
        xrange=(0, most * 1.15),
        range=(lowest, highest),
        x_labels=_ticks(most),
        y_labels=[round(lowest + (highest - lowest) * n / 4, 3) for n in range(5)],
        x_value_formatter=lambda value: f"${value:.3g}",
        show_x_guides=True,
    )
    for point in points:
        label = f"{_plain(point.name)}: {point.score:.3f}, ${point.cost:.4g}"
        chart.add("", [{"value": (point.cost, point.score), "label": label}])
    return _svg(chart, [point.color for point in points])


@cache
def _pygal() -> ModuleType:
    """The library, without its hook for plugins: every later import would warn that the hook is of an old kind."""
    import pygal

    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != pygal.__name__]
    return pygal  # type: ignore[no-any-return]


def _settings(height: int, kind: str = "dots") -> dict[str, Any]:
    return {
        "style": _pygal().style.Style(label_font_size=_TEXT, major_label_font_size=_TEXT),
        "width": WIDTH,
        "height": height,
        "margin": 8,
        "js": [],
        "css": [],
        "classes": ("chart", kind),
        "disable_xml_declaration": True,
        "no_prefix": True,
        "show_legend": False,
        "show_minor_x_labels": True,
        "no_data_text": "",
        "spacing": 8,
    }


def _whole_ticks(most: int) -> list[int]:
    step = max(1, -(-most // 4))
    return list(range(0, most + 1, step))


def _ticks(most: float) -> list[float]:
    """Round numbers from 0, at most six.

    >>> _ticks(0.019)
    [0.0, 0.005, 0.01, 0.015]
    """
    size = 10.0 ** math.floor(math.log10(most / 5))
    step = next(size * n for n in (1, 2, 5, 10) if most / (size * n) <= 5)
    return [round(step * n, 12) for n in range(int(most / step + 1e-9) + 1)]


def _svg(chart: Any, colors: Sequence[int], headings: Collection[str] = ()) -> str:
    """Only the drawing, with a colour for each series.

    What the library's script would show at the pointer becomes the browser's own hint.
    """
    root = chart.render_tree()
    for parent in list(root.iter("*")):
        if series := _SERIES.match(parent.get("class") or ""):
            parent.set("class", f"series color-{colors[int(series[1])] % COLORS}")
        for child in list(parent):
            if not isinstance(child.tag, str) or _is_furniture(child):
                parent.remove(child)
            elif child.tag == "desc":
                child.tag = "title"
            elif child.tag == "text" and child.text in headings:
                child.set("class", "heading")
    root.attrib.pop("id", None)
    return str(_pygal().etree.etree.tostring(root, encoding="unicode"))


def _is_furniture(element: Any) -> bool:
    names = element.get("class", "").split()
    return element.tag == "defs" or "tooltip-overlay" in names or (element.tag == "desc" and "label" not in names)


def _plain(name: str) -> str:
    return _NO_XML.sub("\ufffd", name)


def _short(name: str) -> str:
    """A name for an axis; both ends tell more than the middle.

    >>> _short("a-model-of-a-provider-with-a-name-2026-10-01")
    'a-model-of-a-pr…ame-2026-10-01'
    """
    plain = _plain(name)
    return plain if len(plain) <= _NAME else f"{plain[: _NAME // 2]}…{plain[1 - _NAME // 2 :]}"
