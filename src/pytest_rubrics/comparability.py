"""What must be the same for two scores to be comparable: judge, prompts, scoring, and the tasks themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_rubrics.redaction import redact
from pytest_rubrics.tasks import Task

# Settings of a judge that change no verdict: how it is reached, how patiently, and for how much.
_FREE = {
    "api_base",
    "api_key",
    "attempts",
    "client",
    "headers",
    "max_concurrency",
    "note",
    "price",
    "retry_for",
    "rpm",
    "timeout",
    "tpm",
    "typical_seconds",
}

Settings = Mapping[str, Mapping[str, Any]]


def settings_of(manifest: Mapping[str, Any], benchmark: str, judge: str, served: Iterable[str]) -> dict[str, Any]:
    """What scores were made with: ``judge``, ``prompts`` and ``scoring``, as plain JSON.

    Args:
        manifest: Of the run.
        benchmark: Name of the benchmark.
        judge: Name of the judge.
        served: Models that the judge's endpoint said it was.
    """
    entry = manifest["benchmarks"][benchmark]
    settings = manifest["judge"].get(judge, {})
    return {
        "judge": {**_without_free(settings), "served": sorted(served)},
        "prompts": dict(entry["prompts_sha256"]),
        "scoring": {**entry["scoring"], "judging": entry["judging"]},
    }


def judge_fingerprint(settings: Settings) -> str:
    """Names a judge: its model, the versions that were served, its parameters and its prompts.

    Address, key, timeouts and prices are no part of it.
    """
    return fingerprint([settings["judge"], settings["prompts"]])


def fingerprint(value: Any) -> str:
    """The first 16 hex digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def task_fingerprint(task: Task) -> str:
    """Names what a task asks and how it is marked: prompt, criteria and weights, as records show them."""
    criteria = [[criterion.id, criterion.text, criterion.weight] for criterion in task.criteria]
    return fingerprint(json.loads(redact(json.dumps([task.prompt, task.system_prompt, criteria], ensure_ascii=False))))


def differences(found: Settings, expected: Settings) -> list[str]:
    """Where settings differ, in words; empty where scores are comparable.

    Versions served are compared only where both sides know them: a run whose judge was never asked has none.
    """
    left, right = dict(_flat(found)), dict(_flat(expected))
    if not left.get("judge.served") or not right.get("judge.served"):
        left.pop("judge.served", None)
        right.pop("judge.served", None)
    return [
        f"{key} is {_shown(left.get(key))} and was {_shown(right.get(key))}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def _without_free(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the free ones, also in nested settings, such as those of a panel's members."""
    return {
        key: _without_free(value) if isinstance(value, Mapping) and key != "params" else value
        for key, value in settings.items()
        if key not in _FREE
    }


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
