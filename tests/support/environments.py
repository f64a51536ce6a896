"""The environment of the processes that tests start."""

from __future__ import annotations

import os

# What would make a run behave, or write, otherwise than on another machine. pytest and terminals look at the first.
_NAMES = {"CI", "BUILD_NUMBER", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS"}
_PREFIXES = ("PYTEST", "RUBRICS_", "OPENAI_", "LITELLM_", "HF_", "MODELSCOPE_", "GITHUB_", "GITLAB_")


def neutral_environment(**variables: str) -> dict[str, str]:
    """This process's environment without what changes runs, and with some variables more."""
    kept = {name: value for name, value in os.environ.items() if name not in _NAMES and not name.startswith(_PREFIXES)}
    return {**kept, **variables}
