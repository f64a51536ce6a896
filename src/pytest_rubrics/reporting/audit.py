"""The tables of an audit in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tabulate

from pytest_rubrics.reporting.table import COMPACT, thousands, usd

_HEADERS = ["probe", "tasks", "hit rate", "raised", "flipped", "score", "", "tokens", "cost"]


def audit_lines(audit: Mapping[str, Any]) -> Iterator[str]:
    """The table of the probes, why they did not pass, and the comparison with labels."""
    rows = [
        [
            row["probe"],
            row["tasks"],
            _share(row["hit_rate"]),
            _share(row["raised"]),
            _share(row["flipped"]),
            _change(row["score_change"]),
            row["mark"] or "-",
            thousands(row["tokens"]),
            usd(row["cost_usd"]),
        ]
        for row in audit["probes"]
    ]
    columns = ["left", *["right"] * 5, "left", "right", "right"]
    yield from tabulate.tabulate(rows, _HEADERS, tablefmt=COMPACT, colalign=columns, disable_numparse=True).splitlines()
    yield ""
    for row in audit["probes"]:
        if row["mark"] not in {"PASS", ""}:
            reasons = f" ({', '.join(row['reasons'])})" if row["reasons"] else ""
            yield f"{row['mark']} {row['probe']}: {row['why']}{reasons}. Expected: {row['expects']}."
    yield from audit["notes"]
    if audit["labels"] is not None:
        yield from _label_lines(audit["labels"])
    fingerprint = audit["fingerprint"]["fingerprint"]
    yield f"{audit['calls']} calls made, {usd(audit['spent_usd'])} spent; fingerprint {fingerprint}"
    yield f"judge {audit['judge']} on {audit['benchmark']}: {audit['mark'] or 'nothing was compared'}"


def _label_lines(found: Mapping[str, Any]) -> Iterator[str]:
    names = ["accuracy", "cohen_kappa", "true_positive_rate", "true_negative_rate"]
    rows = [
        [name, part["n"], *(_share(part[figure], percent=figure != "cohen_kappa") for figure in names)]
        for name, part in {"all": found, **found["tags"]}.items()
    ]
    headers = ["against labels", "n", "accuracy", "kappa", "true positives", "true negatives"]
    columns = ["left", *["right"] * 5]
    yield from tabulate.tabulate(rows, headers, tablefmt=COMPACT, colalign=columns, disable_numparse=True).splitlines()
    if found["calibration"]:
        calibration = found["calibration"]
        yield (
            f"P(hit) of {calibration['verdicts']} labelled verdicts: Brier score "
            f"{_share(calibration['brier'], percent=False)}, calibration error "
            f"{calibration['expected_calibration_error']:.3f}, AUC {_share(calibration['auc'], percent=False)}"
        )
    yield ""


def _share(found: Mapping[str, Any] | None, *, percent: bool = True) -> str:
    if found is None:
        return "-"

    def shown(value: float) -> str:
        return f"{100 * value:.0f}" if percent else f"{value:.2f}"

    interval = found["ci95"]
    text = f"{shown(found['value'])}{'%' if percent else ''}"
    return text if interval is None else f"{text} ({shown(interval[0])} to {shown(interval[1])})"


def _change(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    interval = found["ci95"]
    text = f"{found['value']:+.3f}"
    return text if interval is None else f"{text} ({interval[0]:+.2f} to {interval[1]:+.2f})"
