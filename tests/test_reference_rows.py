from __future__ import annotations

from pathlib import Path

import pytest

from pytest_rubrics.faults import FaultsError
from pytest_rubrics.reference_rows import load_reference
from tests.support.shared import shared_data

HEADER = "table,subset,model,mode,metric,value\n"


def test_the_published_results_of_one_million_are_read() -> None:
    rows = load_reference(shared_data() / "one_million_bench" / "paper_results.csv")
    assert len(rows) == 37
    (opus,) = [row for row in rows if (row.model, row.mode) == ("Claude-Opus-4.6", "vanilla")]
    assert opus.figures["global", "expert_score"] == 55.0
    assert opus.figures["global", "economic_value_k"] == 439.2
    assert sum(len(row.figures) for row in rows) == 740


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1: found nothing; expected the columns table,subset,model,mode,metric,value"),
        ("model,score\n", "1: found model,score; expected the columns"),
        (f"{HEADER}T3,cn,a,vanilla,pass_rate,much\n", "2: found T3,cn,a,vanilla,pass_rate,much; expected six columns"),
        (f"{HEADER}T3,cn,a,vanilla,pass_rate\n", "2: found T3,cn,a,vanilla,pass_rate; expected six columns"),
    ],
)
def test_other_files_are_refused(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "paper.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FaultsError, match=f"paper.csv:{fault}"):
        load_reference(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match=r"nowhere.csv: cannot be read"):
        load_reference(tmp_path / "nowhere.csv")
