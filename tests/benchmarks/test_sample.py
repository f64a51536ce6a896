"""The bundled sample of one_million_bench keeps the published row format and its own promises."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.shared import shared_data

Row = dict[str, Any]

SAMPLE = Path(__file__).resolve().parents[2] / "benchmarks" / "one_million_bench" / "sample.jsonl"
ROWS: list[Row] = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]

FINANCE, HEALTH, INDUSTRY, LAW, SCIENCE = "finance", "health", "industry", "law", "science"
DOMAINS = {
    "Economics and Finance": FINANCE,
    "Economics & Finance": FINANCE,
    "Healthcare and Medicine": HEALTH,
    "Industry": INDUSTRY,
    "Law": LAW,
    "Natural Sciences": SCIENCE,
    "经济金融": FINANCE,
    "医疗健康": HEALTH,
    "工业": INDUSTRY,
    "法律": LAW,
    "自然科学": SCIENCE,
}
TRANSLATED = {HEALTH, INDUSTRY, SCIENCE}
KINDS = {
    "Factual Information": "fact",
    "事实信息": "fact",
    "Analytical Reasoning": "reasoning",
    "Viewpoint Analysis": "reasoning",
    "观点分析": "reasoning",
    "Structure and Formatting": "form",
    "行文结构和格式": "form",
    "Instructions Following": "instruction",
    "Instruction Following": "instruction",
    "指令遵循": "instruction",
}
# Characters; a model with a context of 8,192 tokens answers and judges these tasks.
QUESTION_LENGTH = {"global": (700, 1500), "cn": (220, 420)}
CRITERION_LENGTH = {"global": (60, 170), "cn": (18, 50)}

each_row = pytest.mark.parametrize("row", ROWS, ids=[f"{row['language']}-{row['case_id']}" for row in ROWS])


def domain(row: Row) -> str:
    return DOMAINS[row["tags"]["topics"][0]]


def weights(row: Row) -> list[int]:
    return [criterion["rubric_weight"] for criterion in row["rubrics"]]


def is_chinese(text: str) -> bool:
    """Chinese tasks quote Latin abbreviations and settings, so a third of Chinese characters is enough."""
    return len(re.findall(r"[\u4e00-\u9fff]", text)) > len(text) / 3


def test_two_tasks_per_subset_in_order_of_language_and_domain() -> None:
    order = [(language, name) for language in ("global", "cn") for name in (FINANCE, HEALTH, INDUSTRY, LAW, SCIENCE)]
    assert [(row["language"], domain(row)) for row in ROWS] == [subset for subset in order for _ in range(2)]


def test_ids_are_different_uuids_of_version_4() -> None:
    assert all(UUID(row["id"]).version == 4 and str(UUID(row["id"])) == row["id"] for row in ROWS)
    assert len({row["id"] for row in ROWS}) == 20


def test_file_is_written_as_plain_utf_8_lines() -> None:
    text = SAMPLE.read_bytes().decode("utf-8")
    assert text == "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


@each_row
def test_row_has_the_published_fields_and_types(row: Row) -> None:
    assert list(row) == ["id", "case_id", "language", "system_prompt", "question", "tags", "rubrics"]
    assert type(row["case_id"]) is int
    assert 1000 <= row["case_id"] <= 99999
    assert row["system_prompt"] == ""
    assert list(row["tags"]) == ["topics", "time_sensitivity"]
    assert len(row["tags"]["topics"]) == 3
    assert all(isinstance(topic, str) and topic for topic in row["tags"]["topics"])
    for criterion in row["rubrics"]:
        assert list(criterion) == ["rubric_number", "rubric_detail", "rubric_weight", "rubric_tag"]
        assert type(criterion["rubric_number"]) is int
        assert type(criterion["rubric_weight"]) is int
        assert criterion["rubric_tag"] in KINDS


@each_row
def test_texts_are_in_the_language_of_the_task(row: Row) -> None:
    expected = row["language"] == "cn"
    texts = [row["question"], *(criterion["rubric_detail"] for criterion in row["rubrics"])]
    # A short criterion may consist mostly of a formula, hence the language of the whole.
    assert is_chinese("".join(texts)) is expected
    for text in [*row["tags"]["topics"], *(criterion["rubric_tag"] for criterion in row["rubrics"])]:
        assert is_chinese(text) is expected


@each_row
def test_lengths_fit_a_small_context(row: Row) -> None:
    shortest, longest = QUESTION_LENGTH[row["language"]]
    assert row["question"] == row["question"].strip()
    assert shortest <= len(row["question"]) <= longest
    shortest, longest = CRITERION_LENGTH[row["language"]]
    for criterion in row["rubrics"]:
        assert criterion["rubric_detail"] == criterion["rubric_detail"].strip()
        assert shortest <= len(criterion["rubric_detail"]) <= longest, criterion


@each_row
def test_weights_reward_and_penalise(row: Row) -> None:
    values = weights(row)
    assert 11 <= len(values) <= 15
    assert all(-20 <= value <= 12 and value != 0 for value in values)
    assert sum(value > 0 for value in values) >= 8
    assert sum(value < 0 for value in values) >= 2
    assert 50 <= sum(value for value in values if value > 0) <= 110


def test_extreme_weights_occur_and_most_are_within_ten() -> None:
    values = [value for row in ROWS for value in weights(row)]
    assert (min(values), max(values)) == (-20, 12)
    assert sum(abs(value) <= 10 for value in values) > 0.9 * len(values)


@each_row
def test_rubric_numbers_and_texts_are_unique_in_a_row(row: Row) -> None:
    for field in ("rubric_number", "rubric_detail"):
        assert len({criterion[field] for criterion in row["rubrics"]}) == len(row["rubrics"])


def test_exactly_one_row_has_rubric_numbers_that_start_late_and_have_a_gap() -> None:
    numbers = [[criterion["rubric_number"] for criterion in row["rubrics"]] for row in ROWS]
    (odd,) = [row for row in numbers if row != list(range(1, len(row) + 1))]
    assert odd[0] == 2
    assert odd != list(range(2, len(odd) + 2))


def test_each_kind_of_tag_occurs_in_each_language() -> None:
    tags = Counter((row["language"], criterion["rubric_tag"]) for row in ROWS for criterion in row["rubrics"])
    for language in ("global", "cn"):
        assert {KINDS[tag] for name, tag in tags if name == language} == set(KINDS.values())
    assert tags["global", "Instruction Following"] == 1
    assert tags["global", "Viewpoint Analysis"] == 1


def test_one_finance_task_uses_the_other_spelling_of_its_domain() -> None:
    assert sum(row["tags"]["topics"][0] == "Economics & Finance" for row in ROWS) == 1


def test_case_ids_pair_the_translated_domains_only() -> None:
    cases: dict[int, list[Row]] = defaultdict(list)
    for row in ROWS:
        cases[row["case_id"]].append(row)
    assert len(cases) == 14
    for rows in cases.values():
        translated = domain(rows[0]) in TRANSLATED
        assert [row["language"] for row in rows] == (["global", "cn"] if translated else [rows[0]["language"]])


def test_pairs_have_equal_domains_numbers_weights_kinds_and_dates() -> None:
    pairs: dict[int, list[Any]] = defaultdict(list)
    for row in ROWS:
        if domain(row) in TRANSLATED:
            criteria = [(c["rubric_number"], c["rubric_weight"], KINDS[c["rubric_tag"]]) for c in row["rubrics"]]
            pairs[row["case_id"]].append((domain(row), criteria, row["tags"]["time_sensitivity"]))
    assert len(pairs) == 6
    assert all(english == chinese for english, chinese in pairs.values())


def test_one_case_has_braces_in_question_and_criterion() -> None:
    def braced(text: str) -> bool:
        return "{" in text and "}" in text

    cases = [
        row["case_id"]
        for row in ROWS
        if braced(row["question"]) and any(braced(criterion["rubric_detail"]) for criterion in row["rubrics"])
    ]
    # A pair: the same case in both languages.
    assert len(cases) == 2
    assert len(set(cases)) == 1


def test_all_values_of_time_sensitivity_occur_with_well_formed_dates() -> None:
    times = [row["tags"]["time_sensitivity"] for row in ROWS]
    assert {time["time_sensitivity"] for time in times} == {
        "Time-agnostic",
        "Weakly time-sensitive",
        "Strongly time-sensitive",
    }
    for time in times:
        assert list(time) == ["time_sensitivity", "year_month", "day"]
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])|NA", time["year_month"])
        assert re.fullmatch(r"[1-9]|[12]\d|3[01]|NA", time["day"])
        assert time["day"] == "NA" or time["year_month"] != "NA"
    assert any(time["day"] != "NA" for time in times)


def test_nothing_is_taken_from_the_published_data() -> None:
    files = sorted((shared_data() / "one_million_bench").glob("*/test.json"))
    published = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
    assert len(published) == 400
    for field in ("id", "case_id", "question"):
        assert not {row[field] for row in ROWS} & {row[field] for row in published}
    details = {criterion["rubric_detail"] for row in published for criterion in row["rubrics"]}
    assert not {criterion["rubric_detail"] for row in ROWS for criterion in row["rubrics"]} & details
