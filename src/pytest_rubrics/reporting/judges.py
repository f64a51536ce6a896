"""What stands under a table about its judges: agreement, leniency, and probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def judge_lines(settings: Mapping[str, Any], part: Mapping[str, Any]) -> list[str]:
    """Lines about the judge of one part of a summary.

    Args:
        settings: Settings of the judge in ``manifest.json``.
        part: The part.
    """
    return [*_panel_lines(part.get("panel")), *_probability_lines(settings, part)]


def _panel_lines(panel: Mapping[str, Any] | None) -> Iterator[str]:
    if panel is None:
        return
    found = panel["agreement"]
    yield (
        f"members agree on {_percent(found['unanimous'])} of {found['criteria']} criteria; "
        f"Krippendorff's alpha {_number(found['krippendorff_alpha'])}"
    )
    alone = [f"{name} {_headline(member)}" for name, member in panel["members"].items()]
    yield f"each alone (mean{', pass rate' if _has_mark(panel) else ''}, share of hits): {'; '.join(alone)}"
    spreads = [f"{part['variance'] ** 0.5:.3f} {name}" for name, part in panel["variance"].items() if part]
    if spreads:
        yield f"standard deviation of the score between tasks, answers, and readings by judges: {', '.join(spreads)}"


def _probability_lines(settings: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[str]:
    found = part.get("probabilities")
    members = settings.get("members") or {"": settings}
    if not any(member.get("verdict") == "logprob" for member in members.values()):
        return
    if found is None:
        if part["scored"]:
            yield "NO LOG-PROBABILITIES: the judge's endpoint gave none, so the verdicts stand without P(hit)."
        return
    yield (
        f"P(hit) of {found['verdicts']} verdicts: soft mean {_number(found['soft_mean'])}; "
        f"{found['near_even']} lie between 0.2 and 0.8"
    )


def _has_mark(panel: Mapping[str, Any]) -> bool:
    return any(member["pass_rate"] is not None for member in panel["members"].values())


def _headline(member: Mapping[str, Any]) -> str:
    marks = [] if member["pass_rate"] is None else [_percent(member["pass_rate"])]
    return ", ".join([_number(member["mean"]), *marks, _percent(member["leniency"])])


def _number(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None:
        return "-"
    interval = estimate["ci95"]
    return f"{estimate['value']:.3f}" + ("" if interval is None else f" ({interval[0]:.3f} to {interval[1]:.3f})")


def _percent(estimate: Mapping[str, Any] | None) -> str:
    return "-" if estimate is None else f"{estimate['value']:.1%}"
