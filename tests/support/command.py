"""The command ``rubrics`` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_FOREIGN = ("PYTEST", "RUBRICS_", "OPENAI_", "LITELLM_", "HF_", "MODELSCOPE_")


def rubrics(folder: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with environment variables."""
    return subprocess.run(
        [sys.executable, "-m", "pytest_rubrics", *map(str, arguments)],
        cwd=folder,
        env={**_environment(), **variables},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**own, "NO_PROXY": "127.0.0.1", "PYTHONUTF8": "1"}
