"""What a run says of itself before it starts."""

from __future__ import annotations

from pytest_rubrics.plan import Plan
from pytest_rubrics.progress import duration


def header_lines(plan: Plan) -> list[str]:
    """Lines of pytest's header."""
    config = plan.config
    models = ", ".join(f"{model.name} ({model.config.track})" for model in plan.models)
    lines = [f"rubrics: model {models}; judge {plan.judge.name}; cache {config.cache_mode} in {config.cache_dir}"]
    for name, entry in plan.benchmarks.items():
        if entry.source is not None:
            sample = " (bundled sample tasks)" if entry.source == "sample" else ""
            lines.append(f"rubrics: {name}: {len(entry.data.tasks)} tasks from {entry.data.origin}{sample}")
    lines += [f"rubrics: {note}" for note in plan.notes]
    seconds = expected_seconds(plan)
    if seconds is not None:
        lines.append(f"rubrics: about {duration(seconds)} for all of them, less what is in the cache")
    return lines


def expected_seconds(plan: Plan) -> float | None:
    """How long the whole run takes by what model and judge say of their usual pace; None where they say nothing."""
    paces: list[float | None] = [getattr(model.config, "typical_seconds", None) for model in plan.models]
    judge = plan.judge.typical_seconds
    if judge is None or None in paces:
        return None
    tasks = sum(len({case.task.id for case in entry.cases.values()}) for entry in plan.benchmarks.values())
    return sum(pace + judge for pace in paces if pace is not None) * tasks * plan.config.repeats
