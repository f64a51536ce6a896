"""``report.md``: what fits into a pull request or into GitHub's step summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytest_rubrics.rebuilding import count_selected
from pytest_rubrics.reporting.conclusions import conclusions
from pytest_rubrics.reporting.report_data import ColumnName, Page, RunView
from pytest_rubrics.reporting.rich_text import visible
from pytest_rubrics.reporting.table import percent, score, usd
from pytest_rubrics.sources import SAMPLE

MOST_BYTES = 60_000
"""Of 65,536 characters that GitHub takes as a comment; a step summary may be larger."""
SHOWN = 20  # rows of tables that could be long
_NAME = 80  # characters of a name
# Everything that could begin markup, a mention or a link. Line ends become blanks.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#!|~$])")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def markdown_report(page: Page) -> str:
    """The report, never longer than 60,000 bytes: what matters least is left out first.

    Args:
        page: The runs.
    """
    blocks = [*_head(page), *_tables(page)]
    kept: list[str] = []
    size = 0
    for block in blocks:
        size += len(block.encode("utf-8", "replace")) + 2
        if size > MOST_BYTES - 200:
            kept.append("*The rest did not fit: see report.html.*")
            break
        kept.append(block)
    return "\n\n".join(kept) + "\n"


def escape(text: object, most: int = _NAME) -> str:
    """A text of a model or data set inside a table: no markup, no link, no mention, one line.

    >>> escape("<b> @you")
    '&lt;b&gt; @\u200byou'
    """
    line = visible(_CONTROLS.sub(" ", str(text)))
    line = line if len(line) <= most else line[: most - 1] + "…"
    plain = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A blank of no width parts "www" and "@" from what would make them a link or a mention.
    for beginning, parted in (("@", "@\u200b"), ("www.", "www\u200b."), ("//", "/\u200b/")):
        plain = plain.replace(beginning, parted)
    return _SPECIAL.sub(r"\\\1", plain)


def _head(page: Page) -> Iterator[str]:
    for view in page.views:
        gate = view.summary.get("gate")
        title = f"## {_verdict(gate)}{escape(view.name)}"
        yield title
        if gate:
            yield f"Gate **{escape(gate['name'])}**: {escape(gate['reason'], 1000)}"
        yield from (f"> {note}" for note in _notes(view))


def _verdict(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return ""
    return f"{gate['verdict'] or 'NOT DECIDED'} · "


def _notes(view: RunView) -> Iterator[str]:
    manifest = view.run.manifest
    for entry in manifest["benchmarks"].values():
        if entry.get("source") == SAMPLE:
            yield f"**Sample**: bundled sample tasks; the scores say nothing about {escape(entry['title'])}."
    for name, settings in [*manifest["models"].items(), *manifest["judge"].items()]:
        if settings.get("scale") == "ternary":
            yield "A criterion met in part counts half: such scores are not comparable to binary ones."
        if settings.get("note"):
            yield f"{escape(name)}: {escape(settings['note'], 300)}"
    if missing := len(view.missing):
        yield f"**Incomplete**: {missing} of {count_selected(view.run)} selected grades have no record."


def _tables(page: Page) -> Iterator[str]:
    for benchmark in page.benchmarks:
        columns = [name for name in page.columns if name.benchmark == benchmark]
        yield f"### {escape(benchmark)}"
        yield "\n".join(f"- {escape(row.text['en'], 1000)}" for row in conclusions(page, benchmark))
        yield _headline(page, columns)
        yield from _differences(page, benchmark)
        yield from _reasons(page, columns)
        yield _costs(page, columns)
        yield from _subsets(page, columns)


def _headline(page: Page, columns: Sequence[ColumnName]) -> str:
    rows = []
    for name in columns:
        part = page.part(name)
        tracks = part["tracks"] if len(part["tracks"]) > 1 else {"": part}
        for track, numbers in tracks.items():
            mean, passes = numbers["mean"], numbers["pass_rate"]
            rows.append(
                [
                    escape(page.label(name)),
                    escape(track),
                    numbers["tasks"],
                    _estimate(mean, score),
                    _estimate(passes, percent),
                    percent(numbers["coverage"]),
                    numbers["failed"],
                    numbers["excluded"],
                ]
            )
    return _table(
        [
            "model",
            "track",
            "tasks",
            "score (95 % interval)",
            "pass rate (95 % interval)",
            "coverage",
            "failed",
            "excluded",
        ],
        rows,
    )


def _differences(page: Page, benchmark: str) -> Iterator[str]:
    pairs = [pair for pair in page.pairs if page.columns[pair["a"]].benchmark == benchmark]
    if not pairs:
        return
    rows = []
    for pair in pairs[:SHOWN]:
        first, second = (escape(page.label(page.columns[pair[side]])) for side in "ab")
        for part in pair["slices"]:
            passes = part["passes"]
            rows.append(
                [
                    second,
                    first,
                    escape(part["track"]),
                    _signed(part["value"]),
                    "–" if part["ci95"] is None else f"{_signed(part['ci95'][0])} to {_signed(part['ci95'][1])}",
                    "–" if part["p"] is None else f"{part['p']:.3f}" if part["p"] >= 0.001 else "< 0.001",
                    "–" if passes is None else f"+{passes['gained']} / -{passes['lost']}",
                    part["tasks"],
                ]
            )
    yield "**Differences**, task by task"
    yield _table(
        ["second", "minus first", "track", "difference", "95 % interval", "p", "passes gained / lost", "tasks"], rows
    )
    for both in _between_runs(page, pairs)[:SHOWN]:
        yield from _flips(page, both)


def _between_runs(page: Page, pairs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Pairs of one model in two runs; where the runs share no model, the first pair of two runs."""
    found = [pair for pair in pairs if page.columns[pair["a"]].run != page.columns[pair["b"]].run]
    return [pair for pair in found if page.columns[pair["a"]].model == page.columns[pair["b"]].model] or found[:1]


def _flips(page: Page, pair: Mapping[str, Any]) -> Iterator[str]:
    """Tasks that crossed the pass mark between the baseline and the second column."""
    first, second = page.columns[pair["a"]], page.columns[pair["b"]]
    mark = page.scoring(first.benchmark)["pass_at"]
    if mark is None:
        return
    labels = [escape(page.label(name)) for name in (first, second)]
    after = {result.id: result.score for result in page.results(second)}
    rows = [
        (result.key, result.subset, result.score, new)
        for result in page.results(first)
        if result.score is not None and (new := after.get(result.id)) is not None
        if (result.score >= mark) != (new >= mark)
    ]
    rows.sort(key=lambda row: -abs(row[3] - row[2]))
    if not rows:
        yield f"**Flips**, {labels[0]} to {labels[1]}: no task crossed the pass mark."
        return
    yield f"**Flips**, {labels[0]} to {labels[1]}: {len(rows)} tasks crossed the pass mark" + _shown(len(rows))
    yield _table(
        ["task", "subset", *labels],
        [[escape(key), escape(subset), score(old), score(new)] for key, subset, old, new in rows[:SHOWN]],
    )


def _reasons(page: Page, columns: Sequence[ColumnName]) -> Iterator[str]:
    counts = {name: page.part(name)["reasons"] for name in columns}
    reasons = list(dict.fromkeys(reason for found in counts.values() for reason in found))
    if not reasons:
        yield "Nothing was excluded, and nothing failed."
        return
    yield "**Excluded and failed**" + _shown(len(reasons))
    yield _table(
        ["reason", *(escape(page.label(name)) for name in columns)],
        [[escape(reason), *(counts[name].get(reason, 0) for name in columns)] for reason in reasons[:SHOWN]],
    )


def _costs(page: Page, columns: Sequence[ColumnName]) -> str:
    rows = []
    for name in columns:
        part = page.part(name)
        tokens = sum(count for kind in part["tokens"].values() for count in kind.values())
        cost = part["cost_usd"]
        rows.append(
            [escape(page.label(name)), f"{tokens:,}", usd(cost["answer"]), usd(cost["judge"]), usd(part["spent_usd"])]
        )
    return _table(["model", "tokens", "cost of answers", "cost of judge", "paid by this run"], rows)


def _subsets(page: Page, columns: Sequence[ColumnName]) -> Iterator[str]:
    parts = [page.part(name)["subsets"] for name in columns]
    names = page.subsets(columns[0].benchmark)
    if len(names) < 2:
        return
    rows = [[escape(name), *(_subset_score(part.get(name)) for part in parts)] for name in names[: 5 * SHOWN]]
    table = _table(["subset", *(escape(page.label(name)) for name in columns)], rows)
    yield f"<details><summary>Subsets</summary>\n\n{table}\n\n</details>"


def _subset_score(numbers: Mapping[str, Any] | None) -> str:
    return "" if numbers is None or numbers["mean"] is None else score(numbers["mean"]["value"])


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table without the columns that are empty in every row."""
    texts = [[str(cell) for cell in row] for row in rows]
    used = [n for n in range(len(head)) if n == 0 or any(row[n] not in {"", "-"} for row in texts)]
    numbers = ["---:" if n and all(row[n][:1] in "+-0123456789$–?±<" for row in texts) else "---" for n in used]
    lines = [[head[n] for n in used], numbers, *([row[n] for n in used] for row in texts)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _estimate(estimate: Mapping[str, Any] | None, show: Any) -> str:
    if estimate is None:
        return "-"
    if estimate["ci95"] is None:
        return str(show(estimate["value"]))
    low, high = estimate["ci95"]
    return f"{show(estimate['value'])} ({show(low)} to {show(high)})"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def _shown(count: int) -> str:
    return f" (the first {SHOWN} of {count})" if count > SHOWN else ""
