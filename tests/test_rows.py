from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.benchmark_file import BenchmarkFile
from pytest_rubrics.data_files import DataFile, read_data_file
from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.rows import RowReader, read_tasks
from pytest_rubrics.tasks import Task
from tests.support.benchmarks import million_criterion, million_row, shipped, write_jsonl
from tests.support.shared import shared_data


def tasks_of(tmp_path: Path, *rows: Any, benchmark: str = "one_million_bench") -> list[Task]:
    file = read_data_file(write_jsonl(tmp_path / "rows.jsonl", rows))
    return read_tasks(benchmark, shipped(benchmark).spec, [file])


def faults_of(tmp_path: Path, *rows: Any) -> list[Fault]:
    with pytest.raises(FaultsError) as caught:
        tasks_of(tmp_path, *rows)
    return list(caught.value.faults)


def research_row(**changes: Any) -> dict[str, Any]:
    row = {
        "prompt": "Compare two grids.",
        "sample_id": "0123456789abcdef01234567",
        "domain": "AI & ML",
        "conceptual_breadth": "Simple",
        "logical_nesting": "Shallow",
        "exploration": "Low",
        "rubrics": [{"criterion": "Names both.", "weight": 2.5, "axis": "Explicit Criteria"}] * 2,
    }
    return {**row, **changes}


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, million_row(7))
    assert (task.benchmark, task.id, task.key) == ("one_million_bench", "00000000-0000-4000-8000-000000000007", "107")
    assert (task.subset, task.language, task.cluster) == ("cn_law", "zh", "107")
    assert task.markers == ("cn_law", "cn", "law")
    assert task.topics == ("法律", "民事", "合同纠纷")
    assert task.groups == {"track": "cn", "domain": "law", "time_sensitivity": "Time-agnostic"}
    assert task.system_prompt is None


def test_the_prompt_is_kept_and_criteria_are_stripped(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, million_row(7, question=" {0} 合同\n", system_prompt=" 你好 "))
    assert task.prompt == " {0} 合同\n"
    assert task.system_prompt == " 你好 "
    assert [criterion.text for criterion in task.criteria] == ["要点2", "要点5"]


def test_rubric_numbers_are_opaque_ids(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, million_row())
    assert [(criterion.id, criterion.weight) for criterion in task.criteria] == [("2", 10), ("5", -4)]


@pytest.mark.parametrize(
    ("spelling", "language", "track"),
    [
        ("global", "en", "global"),
        ("en", "en", "global"),
        ("English", "en", "global"),
        ("cn", "zh", "cn"),
        ("zh", "zh", "cn"),
        (" Chinese ", "zh", "cn"),
    ],
)
def test_languages_are_known_in_every_spelling(tmp_path: Path, spelling: str, language: str, track: str) -> None:
    (task,) = tasks_of(tmp_path, million_row(language=spelling))
    assert (task.language, task.groups["track"]) == (language, track)


@pytest.mark.parametrize(
    ("topic", "domain"),
    [
        ("Economics and Finance", "economics_and_finance"),
        ("Economics & Finance", "economics_and_finance"),
        ("经济金融", "economics_and_finance"),
        ("Healthcare and Medicine", "healthcare_and_medicine"),
        ("医疗健康", "healthcare_and_medicine"),
        ("Industry", "industry"),
        ("工业", "industry"),
        ("Law", "law"),
        ("法律", "law"),
        ("Natural Sciences", "natural_sciences"),
        ("自然科学", "natural_sciences"),
    ],
)
def test_domains_are_known_in_both_languages(tmp_path: Path, topic: str, domain: str) -> None:
    (task,) = tasks_of(tmp_path, million_row(tags={"topics": [topic]}))
    assert task.subset == f"cn_{domain}"
    assert task.topics == (topic,)


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        ("观点分析", "Analytical Reasoning"),
        ("Viewpoint Analysis", "Analytical Reasoning"),
        ("事实信息 ", "Factual Information"),
        ("行文结构和格式", "Structure and Formatting"),
        ("Instruction Following", "Instructions Following"),
        ("其他", "Others"),
        (" Novelty ", "Novelty"),
        (" ", None),
        (None, None),
    ],
)
def test_tags_get_one_name_and_unknown_ones_are_kept(tmp_path: Path, raw: str | None, tag: str | None) -> None:
    (task,) = tasks_of(tmp_path, million_row(rubrics=[million_criterion(1, rubric_tag=raw)]))
    assert task.criteria[0].tag == tag


def test_a_known_month_is_a_group_and_na_is_none(tmp_path: Path) -> None:
    tags = {
        "topics": ["法律"],
        "time_sensitivity": {"time_sensitivity": "Weakly time-sensitive", "year_month": "2025-03"},
    }
    dated, undated = tasks_of(tmp_path, million_row(1, tags=tags), million_row(2))
    assert dated.groups["year_month"] == "2025-03"
    assert "year_month" not in undated.groups


def test_numeric_ids_become_text(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, million_row(id=12))
    assert task.id == "12"


def test_keys_are_ascii(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, million_row(case_id="合同 7/a.b_c-d"))
    assert task.key == "---7-a.b_c-d"


def test_subsets_come_in_declared_order_and_keep_the_order_of_the_data(tmp_path: Path) -> None:
    law = {"topics": ["Law"]}
    rows = [
        million_row(4),
        million_row(3, language="global", tags=law),
        million_row(2),
        million_row(1, language="en", tags=law),
    ]
    assert [(task.subset, task.key) for task in tasks_of(tmp_path, *rows)] == [
        ("global_law", "103"),
        ("global_law", "101"),
        ("cn_law", "104"),
        ("cn_law", "102"),
    ]


def test_research_rows_get_their_positions_as_ids(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, research_row(), benchmark="researchrubrics")
    assert (task.id, task.key, task.cluster) == ("0123456789abcdef01234567",) * 3
    assert (task.subset, task.language, task.markers, task.topics) == ("default", "en", ("default",), ("AI & ML",))
    assert task.groups == {
        "domain": "AI & ML",
        "conceptual_breadth": "Simple",
        "logical_nesting": "Shallow",
        "exploration": "Low",
    }
    assert [(criterion.id, criterion.weight) for criterion in task.criteria] == [("1", 2.5), ("2", 2.5)]


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


CRITERION = million_criterion(2)
BAD_ROWS = [
    pytest.param(7, None, "found 7; expected an object.", id="number as row"),
    pytest.param(["x"], None, 'found ["x"]; expected an object.', id="list as row"),
    pytest.param(without(million_row(), "id"), "id", "found nothing; expected a text or a whole number.", id="no id"),
    pytest.param(million_row(id="  "), "id", 'found "  "; expected a text', id="blank id"),
    pytest.param(million_row(id=1.5), "id", "found 1.5; expected a text or a whole number.", id="fraction as id"),
    pytest.param(million_row(case_id=True), "case_id", "found true; expected a text", id="bool as key"),
    pytest.param(million_row(question=None), "question", "found nothing; expected a text.", id="no prompt"),
    pytest.param(million_row(question=" \n"), "question", "expected a text that is not blank.", id="blank prompt"),
    pytest.param(million_row(question=["x"]), "question", 'found ["x"]; expected a text.', id="list as prompt"),
    pytest.param(million_row(question="\ud800"), "question", "without half surrogate pairs", id="half a pair"),
    pytest.param(million_row(system_prompt=3), "system_prompt", "found 3; expected a text.", id="number as system"),
    pytest.param(million_row(tags={}), "tags.topics[0]", "found nothing; expected a known", id="no topics"),
    pytest.param(million_row(tags={"topics": ["Lwa"]}), "tags.topics[0]", "Did you mean law?", id="unknown domain"),
    pytest.param(million_row(tags={"topics": ["Law", 3]}), "tags.topics", "found 3; expected a text.", id="topic"),
    pytest.param(million_row(rubrics=[]), "rubrics", "found []; expected a list of criteria.", id="empty rubric"),
    pytest.param(million_row(rubrics=None), "rubrics", "found nothing; expected a list of criteria.", id="no rubric"),
    pytest.param(million_row(rubrics={"a": 1}), "rubrics", "expected a list of criteria.", id="object as rubric"),
    pytest.param(
        million_row(rubrics=[CRITERION, million_criterion(2)]),
        "rubrics[1].rubric_number",
        'found "2"; expected an id of its own; rubrics[0] has it too.',
        id="criterion id twice",
    ),
    pytest.param(
        million_row(rubrics=[CRITERION, million_criterion(3, rubric_detail="\n")]),
        "rubrics[1].rubric_detail",
        "expected a text that is not blank.",
        id="blank criterion",
    ),
    pytest.param(
        million_row(rubrics=[CRITERION, without(million_criterion(3), "rubric_number")]),
        "rubrics[1].rubric_number",
        "found nothing; expected a text or a whole number.",
        id="no criterion id",
    ),
    pytest.param(
        million_row(rubrics=[million_criterion(3, rubric_weight=-2)]),
        "rubrics",
        "found [-2]; expected at least one positive weight.",
        id="no positive weight",
    ),
    pytest.param(
        million_row(rubrics=[million_criterion(3, rubric_tag=5)]),
        "rubrics[0].rubric_tag",
        "found 5;",
        id="number as tag",
    ),
]


@pytest.mark.parametrize(("row", "field", "message"), BAD_ROWS)
def test_a_bad_row_is_one_fault_with_its_place(tmp_path: Path, row: Any, field: str | None, message: str) -> None:
    (fault,) = faults_of(tmp_path, million_row(99), row)
    assert fault.file == str(tmp_path / "rows.jsonl")
    assert (fault.row, fault.key) == (2, field)
    assert message in str(fault)


@pytest.mark.parametrize("weight", ["5", "", None, True, False, 0, 0.0, math.nan, math.inf, -math.inf, [1], 10**400])
def test_only_numbers_other_than_zero_are_weights(tmp_path: Path, weight: object) -> None:
    row = million_row(rubrics=[CRITERION, million_criterion(3, rubric_weight=weight)])
    (fault,) = faults_of(tmp_path, row)
    assert fault.key == "rubrics[1].rubric_weight"
    assert "expected a number other than 0." in fault.message


def test_an_unknown_language_is_a_fault_of_its_field(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, million_row(language="fr"))
    assert fault.key == "language"
    assert 'found "fr"; expected a known value: ' in fault.message


def test_ids_must_differ_over_all_files(tmp_path: Path) -> None:
    first = read_data_file(write_jsonl(tmp_path / "a.jsonl", [million_row(1)]))
    second = read_data_file(write_jsonl(tmp_path / "b.jsonl", [million_row(2), million_row(1, case_id=5)]))
    with pytest.raises(FaultsError) as caught:
        read_tasks("one_million_bench", shipped("one_million_bench").spec, [first, second])
    (fault,) = caught.value.faults
    assert (fault.file, fault.row, fault.key) == (second.path, 2, "id")
    assert f"{first.path}, row 1 has it too" in fault.message


def test_keys_must_differ_inside_a_subset_only(tmp_path: Path) -> None:
    english = million_row(3, case_id="a b", language="en", tags={"topics": ["Law"]})
    (fault,) = faults_of(tmp_path, million_row(1, case_id="a b"), million_row(2, case_id="a/b"), english)
    assert (fault.row, fault.key) == (2, "case_id")
    assert 'found "a-b"; expected a key of its own inside cn_law' in fault.message


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    broken = million_row(
        2, question="", rubrics=[million_criterion(1, rubric_detail=None), million_criterion(2, rubric_weight="5")]
    )
    faults = faults_of(tmp_path, million_row(1, tags={}), broken, million_row(3), million_row(3))
    assert [(fault.row, fault.key) for fault in faults] == [
        (1, "tags.topics[0]"),
        (2, "question"),
        (2, "rubrics[0].rubric_detail"),
        (2, "rubrics[1].rubric_weight"),
        (4, "id"),
    ]


def test_a_long_list_of_faults_is_cut(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, *(million_row(number, question="") for number in range(1, 81)))
    assert len(faults) == 51
    assert str(faults[-1]) == f"{tmp_path / 'rows.jsonl'}: and 30 more faults in the data."


def test_a_long_value_is_shown_shortened(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, million_row(id=["x" * 500]))
    assert "xxx...; expected" in fault.message
    assert len(fault.message) < 160


def test_a_subset_that_is_not_declared_is_a_fault_of_the_fields_it_is_made_of(tmp_path: Path) -> None:
    spec = shipped("one_million_bench").spec.model_copy(update={"subsets": ["cn_law"]})
    file = read_data_file(
        write_jsonl(tmp_path / "rows.jsonl", [million_row(), million_row(2, tags={"topics": ["工业"]})])
    )
    with pytest.raises(FaultsError) as caught:
        read_tasks("one_million_bench", spec, [file])
    (fault,) = caught.value.faults
    assert (fault.row, fault.key) == (2, "language, tags.topics[0]")
    assert 'found "cn_industry"; expected a subset: cn_law.' in fault.message


def test_rows_of_the_own_benchmark_are_recognised_even_with_a_fault() -> None:
    million = RowReader("one_million_bench", shipped("one_million_bench").spec)
    research = RowReader("researchrubrics", shipped("researchrubrics").spec)
    assert million.resembles(million_row(question=None))
    assert research.resembles(research_row(rubrics=[]))
    assert not million.resembles(research_row())
    assert not research.resembles(million_row())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(million_row())), json_values)
def test_whatever_a_field_holds_gives_a_task_or_faults(field: str, value: Any) -> None:
    reader = RowReader("one_million_bench", shipped("one_million_bench").spec)
    task = reader.read("rows", 1, million_row(**{field: value}))
    assert (task is None) == bool(reader.faults)
    assert all(str(fault).encode() for fault in reader.faults)


@given(st.sampled_from(list(million_criterion(1))), json_values)
def test_whatever_a_criterion_holds_gives_a_task_or_faults(field: str, value: Any) -> None:
    reader = RowReader("one_million_bench", shipped("one_million_bench").spec)
    row = million_row(rubrics=[million_criterion(1), million_criterion(2, **{field: value})])
    task = reader.read("rows", 1, row)
    assert (task is None) == bool(reader.faults)


def mapping(record: dict[str, Any], subsets: list[str]) -> BenchmarkFile:
    return BenchmarkFile.model_validate(
        {
            "title": "Other",
            "record": record,
            "subsets": subsets,
            "judging": {"method": "criterion"},
            "scoring": {"metric": "score"},
        }
    )


def other(path: str, rows: int) -> list[DataFile]:
    text = (shared_data() / "others" / path).read_text(encoding="utf-8")
    return [DataFile(path, "\n".join(text.split("\n")[:rows]), "")]


def test_a_mapping_reads_dimensions_with_criteria_below_them() -> None:
    dimensions = ["comprehensiveness", "insight", "instruction_following", "readability"]
    tagged = ", ".join(f"criterions.{name}[].merge(@, `{json.dumps({'tag': name})}`)" for name in dimensions)
    spec = mapping(
        {
            "id": "id",
            "prompt": "prompt",
            "language": {"template": "zh"},
            "subset": "default",
            "criteria": {
                "each": f"[{tagged}][]",
                "text": {"template": "{criterion}: {explanation}"},
                "weight": "weight",
                "tag": "tag",
            },
        },
        ["default"],
    )
    tasks = read_tasks("deep_research", spec, other("deep_research_bench/criteria.jsonl", 20))
    assert len(tasks) == 20
    assert {criterion.tag for task in tasks for criterion in task.criteria} == set(dimensions)
    assert tasks[0].criteria[0].text.startswith("阶层划分标准的明确性与覆盖度: 评估报告是否")


def test_a_mapping_reads_criteria_without_weights() -> None:
    domains = {
        "academic": ["Academic & Engineering"],
        "finance": ["Finance & Business"],
        "politics": ["Politics & Law"],
        "literature": ["Literature & Arts", "Literature & Art"],
        "education": ["Education"],
        "advertising": ["Advertising & Marketing"],
    }
    spec = mapping(
        {
            "id": "index",
            "prompt": "query",
            "language": "lang",
            "groups": {"domain": {"from": "domain1", "spellings": domains}},
            "subset": "{domain}",
            "topics": "[domain1, domain2]",
            "criteria": {
                "each": "checklist",
                "id": "name",
                "text": {"template": '{criteria_description} Top marks: {"9-10"}'},
                "weight": "`1`",
            },
        },
        list(domains),
    )
    tasks = read_tasks("writing", spec, other("writingbench/benchmark_200.jsonl", 200))
    assert len(tasks) == 200
    assert {task.language for task in tasks} == {"en", "zh"}
    assert {len(task.criteria) for task in tasks} == {5}
    assert {criterion.weight for task in tasks for criterion in task.criteria} == {1}
    assert all(" Top marks: " in criterion.text for task in tasks for criterion in task.criteria)
