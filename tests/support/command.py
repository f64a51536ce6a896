"""The command ``rubrics`` as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.environments import neutral_environment

_OWN = {"NO_PROXY": "127.0.0.1", "PYTHONUTF8": "1"}


def rubrics(folder: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with environment variables."""
    return subprocess.run(
        [sys.executable, "-m", "pytest_rubrics", *map(str, arguments)],
        cwd=folder,
        env=neutral_environment(**{**_OWN, **variables}),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
