"""Published data sets that some tests read; they are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


def data_folder() -> Path:
    """The folder of published data, which may be missing."""
    return Path(os.environ.get("RUBRICS_SHARED_DATA") or BESIDE)


def shared_data() -> Path:
    """Return the folder of published data: ``RUBRICS_SHARED_DATA``, or ``../shared/data`` beside the repository.

    The calling test is skipped where there is no such folder.
    """
    folder = data_folder()
    if not folder.is_dir():
        pytest.skip(
            f"no published data in {folder}; set RUBRICS_SHARED_DATA to the folder that holds one_million_bench/"
        )
    return folder
