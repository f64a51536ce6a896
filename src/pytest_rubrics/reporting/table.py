"""The table in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tabulate
from tabulate import DataRow, Line, TableFormat
from wcwidth import wcswidth

# One blank between columns: the ten columns then fit into few characters.
COMPACT = TableFormat(
    lineabove=None,
    linebelowheader=Line("", "-", " ", ""),
    linebetweenrows=None,
    linebelow=None,
    headerrow=DataRow("", " ", ""),
    datarow=DataRow("", " ", ""),
    padding=0,
    with_header_hide=None,
)
WIDE = 100
_COUNTS = ["tasks", "scored", "failed", "excl.", "cover"]


def render_part(part: Mapping[str, Any], width: int) -> str:
    """The table of one benchmark x model x judge.

    Args:
        part: One part of a summary.
        width: Columns of the terminal; below 100 the subsets' tokens and cost are left to the totals.
    """
    has_mark = part["pass_rate"] is not None or any(row["pass_rate"] for row in part["subsets"].values())
    rows = [[name, *_cells(numbers, has_mark)] for name, numbers in part["subsets"].items()]
    totals = dict(part["tracks"]) if len(part["tracks"]) > 1 else {"total": part}
    rows += [
        [f"all {name}" if name != "total" else name, *_cells(numbers, has_mark)] for name, numbers in totals.items()
    ]
    headers = ["subset", *_COUNTS, "score", *(["pass"] if has_mark else []), "tokens", "cost"]
    if width < WIDE:
        rows, headers = [row[:-2] for row in rows], headers[:-2]
    columns = ["left", *["right"] * (len(headers) - 1)]
    # Headers are a row like others: tabulate would make each column two characters wider than its header.
    table = tabulate.tabulate([headers, *rows], tablefmt=COMPACT, colalign=columns, disable_numparse=True)
    rule = " ".join("-" * max(map(wcswidth, column)) for column in zip(headers, *rows, strict=True))
    first, _, rest = table.partition("\n")
    return f"{first}\n{rule}\n{rest}"


def notes_of(part: Mapping[str, Any]) -> list[str]:
    """Lines below the table: intervals, tokens and cost, and why grades failed or are missing."""
    lines = [f"{name}: {words}" for name, numbers in _headlines(part) for words in _headline_notes(numbers)]
    tokens = part["tokens"]
    lines.append(
        f"tokens in/out: answers {_tokens(tokens['answer'])}, judge {_tokens(tokens['judge'])}; "
        f"cost: answers {usd(part['cost_usd']['answer'])}, judge {usd(part['cost_usd']['judge'])}; "
        f"paid by this run: {usd(part['spent_usd'])}"
    )
    if part["reasons"]:
        lines.append("; ".join(f"{reason} ({count})" for reason, count in part["reasons"].items()))
    return lines


def _headlines(part: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    return list(part["tracks"].items()) if len(part["tracks"]) > 1 else [("total", part)]


def _headline_notes(numbers: Mapping[str, Any]) -> Iterator[str]:
    """Everything that belongs beside the headline of a track, or of all tasks."""
    coverage = f"coverage {percent(numbers['coverage'])}"
    yield f"mean {numbers['metric'] or 'score'} {_with_interval(numbers['mean'])}, {coverage}"
    if numbers["pass_rate"] is not None:
        yield f"pass rate {_with_interval(numbers['pass_rate'], is_share=True)}"
    if macro := numbers["macro_mean"]:
        yield f"macro mean over {macro['domains']} domains {_with_interval(macro)}"
    if bounds := numbers["exclusion_bounds"]:
        low, high = bounds["mean"]
        yield f"what was excluded could bring the mean down to {score(low)} or up to {score(high)}"
    if repeats := numbers["repeats"]:
        yield from _repeat_words(repeats)
    for currency, value in (numbers["economic_value"] or {}).items():
        yield _value_words(currency, value)


def _repeat_words(repeats: Mapping[str, Any]) -> Iterator[str]:
    if repeats["pass_at_k"]:
        most = max(repeats["pass_at_k"], key=int)
        at_k, hat_k = repeats["pass_at_k"][most], repeats["pass_hat_k"][most]
        yield f"pass@{most} {percent(at_k['value'])}, pass^{most} {percent(hat_k['value'])}"
    spreads = [f"{part['variance'] ** 0.5:.3f} between {name}s" for name, part in repeats["variance"].items() if part]
    if spreads:
        yield f"standard deviation of the score: {', '.join(spreads)}"


def _value_words(currency: str, value: Mapping[str, Any]) -> str:
    words = f"economic value {currency} {value['earned']:,.0f} of {value['possible']:,.0f}"
    if value["net_of_cost"] is not None:
        return f"{words}, less the cost {currency} {value['net_of_cost']:,.0f}"
    return f"{words}; cost {usd(value['cost_usd'])}"


def _with_interval(estimate: Mapping[str, Any] | None, *, is_share: bool = False) -> str:
    if estimate is None:
        return "-"
    show = percent if is_share else score
    if estimate["ci95"] is None:
        return f"{show(estimate['value'])} (no interval: too few tasks)"
    low, high = estimate["ci95"]
    return f"{show(estimate['value'])} (95 % interval {show(low)} to {show(high)})"


def _cells(numbers: Mapping[str, Any], has_mark: bool) -> list[str]:
    cells = [str(numbers[name]) for name in ("tasks", "scored", "failed", "excluded")]
    cells += [percent(numbers["coverage"], digits=0), score(_value(numbers["mean"]))]
    if has_mark:
        cells.append(percent(_value(numbers["pass_rate"])))
    tokens = sum(count for part in numbers["tokens"].values() for count in part.values())
    cost = numbers["cost_usd"]
    total = None if None in cost.values() else sum(cost.values())
    return [*cells, thousands(tokens), usd(total)]


def _value(estimate: Mapping[str, Any] | None) -> float | None:
    return None if estimate is None else estimate["value"]


def score(value: float | None) -> str:
    """A score in three digits."""
    return "-" if value is None else f"{value:.3f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent; never rounded up to 100 when something is missing."""
    if value is None:
        return "-"
    if digits == 0 and 0.995 <= value < 1:
        return f"{int(value * 1000) / 10:.1f}%"
    return f"{value:.{digits}%}"


def thousands(count: int) -> str:
    """A number of tokens in few characters.

    >>> [thousands(n) for n in (0, 999, 12_345, 2_500_000)]
    ['0', '999', '12k', '2.5M']
    """
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def _tokens(counts: Mapping[str, int]) -> str:
    return f"{thousands(counts['input_tokens'])}/{thousands(counts['output_tokens'])}"


def usd(amount: float | None) -> str:
    """An amount in USD; ``?`` where a price is unknown, never 0.

    >>> [usd(None), usd(0.0), usd(0.00042), usd(0.034), usd(-12.5)]
    ['?', '$0', '$0.00042', '$0.034', '-$12.50']
    """
    if amount is None:
        return "?"
    if amount == 0:
        return "$0"
    if amount < 0:
        return f"-{usd(-amount)}"
    digits = 2 if amount >= 0.1 else 1 - math.floor(math.log10(amount))
    return f"${amount:.{digits}f}"
