"""What names a judge: whoever changes one of these has another judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_rubrics.comparability import judge_fingerprint, settings_of


def fingerprint(
    settings: Mapping[str, Any], prompts_sha256: Mapping[str, str], served: Iterable[str]
) -> dict[str, Any]:
    """A judge's fingerprint, the same that a gate demands as ``judge_fingerprint``, and what it is made of.

    Args:
        settings: The judge's settings, as in ``manifest.json``: model, parameters, form of the reply and the like.
        prompts_sha256: Checksum of each of its prompts, likewise.
        served: Versions of the model that its endpoint said it was.
    """
    entry = {"prompts_sha256": dict(prompts_sha256), "scoring": {}, "judging": {}}
    made_of = settings_of({"benchmarks": {"": entry}, "judge": {"": settings}}, "", "", served)
    return {"fingerprint": judge_fingerprint(made_of), "judge": made_of["judge"], "prompts": made_of["prompts"]}
