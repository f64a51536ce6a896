"""Statistics of a data set, for ``rubrics describe``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pytest_rubrics.tasks import Task

Description = dict[str, Any]

_MOST_COLUMNS = 6
_MOST_ROWS = 20


def describe(tasks: Sequence[Task], known_tags: Collection[str] = ()) -> Description:
    """Return the statistics of tasks as plain data, fit for JSON.

    Args:
        tasks: The tasks.
        known_tags: Tags that the benchmark names; others found are listed under ``unknown_tags``.

    Returns:
        ``all``, and ``subsets`` with each subset by name; both with the keys of `describe_part`; and ``unknown_tags``.
    """
    whole = describe_part(tasks)
    subsets: dict[str, list[Task]] = {}
    for task in tasks:
        subsets.setdefault(task.subset, []).append(task)
    unknown = [tag for tag in whole["tags"] if known_tags and tag not in known_tags]
    return {
        "all": whole,
        "subsets": {subset: describe_part(part) for subset, part in subsets.items()},
        "unknown_tags": {tag: sum(whole["tags"][tag].values()) for tag in unknown},
    }


def describe_part(tasks: Sequence[Task]) -> Description:
    """Return the statistics of some tasks.

    Lengths are in characters (code points), blanks at the ends included, as published statistics count them.
    ``positive_weight`` and ``negative_weight`` are sums over a task; ``topics`` has one table for each level.
    """
    criteria = [criterion for task in tasks for criterion in task.criteria]
    tags = sorted({criterion.tag for criterion in criteria if criterion.tag})
    positive = Counter(criterion.tag for criterion in criteria if criterion.weight > 0)
    negative = Counter(criterion.tag for criterion in criteria if criterion.weight < 0)
    groups: dict[str, list[str]] = {}
    for task in tasks:
        for name, value in task.groups.items():
            groups.setdefault(name, []).append(value)
    clusters = Counter(task.cluster for task in tasks)
    return {
        "tasks": len(tasks),
        "languages": _count(task.language for task in tasks),
        "clusters": len(clusters),
        "tasks_in_shared_clusters": sum(count for count in clusters.values() if count > 1),
        "prompt_characters": _range([len(task.prompt) for task in tasks]),
        "criteria": len(criteria),
        "criteria_per_task": _range([len(task.criteria) for task in tasks]),
        "negative_per_task": _range([sum(criterion.weight < 0 for criterion in task.criteria) for task in tasks]),
        "positive_weight": _range([sum(c.weight for c in task.criteria if c.weight > 0) for task in tasks]),
        "negative_weight": _range([sum(c.weight for c in task.criteria if c.weight < 0) for task in tasks]),
        "weights": {f"{weight:g}": count for weight, count in sorted(Counter(c.weight for c in criteria).items())},
        "tags": {tag: {"positive": positive[tag], "negative": negative[tag]} for tag in tags},
        "topics": _topic_levels(tasks),
        "groups": {name: _count(values) for name, values in groups.items()},
    }


def render(description: Description) -> str:
    """Return a description as tables in plain text."""
    whole = description["all"]
    tables = [_prompts_table(description), _criteria_table(description), _weights_line(whole)]
    if whole["tags"]:
        tables.append(_tags_table(whole))
    if description["unknown_tags"]:
        unknown = ", ".join(f"{tag} ({count})" for tag, count in description["unknown_tags"].items())
        tables.append(f"Tags that the benchmark does not name, kept as they are: {unknown}")
    tables += [_group_table(description, name) for name in whole["groups"] if not _follows_subset(description, name)]
    tables += [_counts_table(f"topics, level {level}", topics) for level, topics in enumerate(whole["topics"], 1)]
    return "\n\n".join(tables) + "\n"


def _range(numbers: Sequence[float]) -> dict[str, float]:
    if not numbers:
        return {}
    return {"mean": sum(numbers) / len(numbers), "min": min(numbers), "max": max(numbers)}


def _count(values: Iterable[str]) -> dict[str, int]:
    """Return how often each value occurs, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _topic_levels(tasks: Sequence[Task]) -> list[dict[str, int]]:
    depth = max((len(task.topics) for task in tasks), default=0)
    return [_count(task.topics[level] for task in tasks if len(task.topics) > level) for level in range(depth)]


def _rows(description: Description) -> list[tuple[str, Description]]:
    """Return the subsets and, where there are several, all of them together."""
    subsets = list(description["subsets"].items())
    return [*subsets, ("all", description["all"])] if len(subsets) != 1 else subsets


def _prompts_table(description: Description) -> str:
    rows = [
        [name, part["tasks"], " ".join(part["languages"]), part["clusters"], _shown_range(part["prompt_characters"])]
        for name, part in _rows(description)
    ]
    return _table(rows, ["subset", "tasks", "languages", "clusters", "prompt characters"])


def _criteria_table(description: Description) -> str:
    ranges = ["criteria_per_task", "negative_per_task", "positive_weight", "negative_weight"]
    rows = [[name, part["criteria"], *(_shown_range(part[key]) for key in ranges)] for name, part in _rows(description)]
    return _table(rows, ["subset", "criteria", "per task", "negative per task", "weights > 0", "weights < 0"])


def _shown_range(numbers: dict[str, float]) -> str:
    return f"{numbers['mean']:.2f} ({numbers['min']:g} to {numbers['max']:g})" if numbers else "-"


def _weights_line(part: Description) -> str:
    return "Weights: " + ", ".join(f"{weight}: {count}" for weight, count in part["weights"].items())


def _tags_table(part: Description) -> str:
    rows = [
        [tag, counts["positive"] + counts["negative"], counts["positive"], counts["negative"]]
        for tag, counts in part["tags"].items()
    ]
    return _table(rows, ["tag", "criteria", "positive", "negative"])


def _follows_subset(description: Description, name: str) -> bool:
    """Whether a group says no more than the subset, as the domain does."""
    parts = description["subsets"].values()
    return len(parts) > 1 and all(list(part["groups"].get(name, {}).values()) == [part["tasks"]] for part in parts)


def _group_table(description: Description, name: str) -> str:
    counts = description["all"]["groups"][name]
    if len(counts) > _MOST_ROWS:
        return f"{name}: {len(counts)} values, {min(counts)} to {max(counts)}, in {sum(counts.values())} tasks"
    if len(counts) > _MOST_COLUMNS or len(description["subsets"]) == 1:
        return _counts_table(name, counts)
    rows = [
        [subset, *(part["groups"].get(name, {}).get(value, 0) for value in counts)]
        for subset, part in _rows(description)
    ]
    return _table(rows, [name, *counts])


def _counts_table(name: str, counts: dict[str, int]) -> str:
    shown = list(counts.items())[:_MOST_ROWS]
    more = len(counts) - len(shown)
    return _table(shown, [name, "tasks"]) + (f"\nand {more} more" if more else "")


def _table(rows: Sequence[Sequence[object]], headers: Sequence[str]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers, disable_numparse=True, colalign=["left"] + ["right"] * (len(headers) - 1))
