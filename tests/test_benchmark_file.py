from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pytest_rubrics.benchmark_file import BenchmarkFile
from tests.support.benchmarks import REPOSITORY, shipped

MILLION = REPOSITORY / "benchmarks" / "one_million_bench" / "benchmark.yaml"


def change(data: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy with the value at a dotted path replaced."""
    changed = copy.deepcopy(data)
    *parents, last = path.split(".")
    inner = changed
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    return changed


def test_one_million_is_judged_by_sheet_and_passed_at_seven_tenths() -> None:
    benchmark = shipped("one_million_bench")
    assert benchmark.spec.judging.method == "sheet"
    assert (benchmark.scoring.metric, benchmark.scoring.clip, benchmark.scoring.pass_at) == ("expert_score", True, 0.7)


def test_research_rubrics_is_judged_by_criterion_without_pass_mark() -> None:
    benchmark = shipped("researchrubrics")
    assert benchmark.spec.judging.method == "criterion"
    assert (benchmark.scoring.metric, benchmark.scoring.clip, benchmark.scoring.pass_at) == (
        "compliance_score",
        False,
        None,
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("record.id", "a.[", "is not a JMESPath expression"),
        ("record.subset", "{track}_{a.[}", "is not a JMESPath expression"),
        ("record.subset", "{year}", "subset and markers name year, which is not among the groups"),
        ("record.subset", "law", "'law', which is not listed under subsets"),
        ("record.markers", ["subset", "colour"], "name colour, which is not among the groups"),
        ("record.language", {"template": "en", "from": "language"}, "give either from or template"),
        ("record.language", {}, "give either from or template"),
        ("record.language.spellings", {"en": ["x"], "zh": ["X "]}, "'X ' is a spelling of two names"),
        ("domains", ["law"], "would be markers but are not listed under tracks or domains"),
        ("domains", ["skip"], "'skip' cannot be a marker"),
        ("subsets", ["cn law"], "'cn law' cannot be a marker"),
        ("subsets", [], "at least 1 item"),
        ("sources.sample", "../sample.jsonl", "is not a relative path"),
        ("sources.hub.files", {"/etc/passwd": None}, "is not a relative path"),
        ("sources.hub.files", {"a.json": "123"}, "should match pattern"),
        ("sources.hub", {"files": {"a.json": None}}, "name huggingface or modelscope"),
        ("judging.method", "vote", "'sheet' or 'criterion'"),
        ("scoring.pass_at", 0, "greater than 0"),
        ("colour", "red", "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_work_is_refused(path: str, value: object, message: str) -> None:
    data = yaml.safe_load(MILLION.read_text(encoding="utf-8"))
    BenchmarkFile.model_validate(data)
    with pytest.raises(ValidationError) as caught:
        BenchmarkFile.model_validate(change(data, path, value))
    assert message in str(caught.value)
