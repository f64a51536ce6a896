from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_rubrics.faults import FaultsError
from pytest_rubrics.values import load_values
from tests.support.benchmarks import shipped


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_the_values_of_one_million_sum_to_the_published_totals() -> None:
    path = shipped("one_million_bench").values
    assert path is not None
    values = load_values(path)
    assert len(values) == 400
    assert list(values) == sorted(values)
    totals = {currency: math.fsum(v for c, v in values.values() if c == currency) for currency in ("CNY", "USD")}
    assert totals == {"CNY": 921_844, "USD": 1_008_371}


def test_research_rubrics_has_no_values() -> None:
    assert shipped("researchrubrics").values is None


def test_a_table_from_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "\ufeffid,currency,value\r\na,EUR,1.5\r\n")
    assert load_values(path) == {"a": ("EUR", 1.5)}


@pytest.mark.parametrize(
    "line", ["a,EUR", "a,EUR,much", "a,EUR,nan", "a,EUR,-1", "a,EUR,0", ",EUR,1", "a,,1", "a,EUR,1,2", ""]
)
def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "values.csv", f"id,currency,value\nb,EUR,1\n{line}\n")
    with pytest.raises(FaultsError) as caught:
        load_values(path)
    (fault,) = caught.value.faults
    assert fault.line == 3
    assert "expected an id, a currency and a number above 0." in fault.message


def test_an_id_given_twice_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "id,currency,value\na,EUR,1\na,EUR,1\n")
    with pytest.raises(FaultsError, match=r"values.csv:3: the id a stands here a second time."):
        load_values(path)


@pytest.mark.parametrize("text", ["", "id,value\n", "a,EUR,1\n"])
def test_other_columns_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FaultsError, match="expected the columns id,currency,value"):
        load_values(write(tmp_path / "values.csv", text))


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match=r"nowhere.csv: cannot be read"):
        load_values(tmp_path / "nowhere.csv")
