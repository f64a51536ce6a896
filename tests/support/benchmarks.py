"""The benchmarks of this repository, read, and rows to spoil."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_rubrics.benchmarks import Benchmark, BenchmarkFolder, load_benchmark

REPOSITORY = Path(__file__).parents[2]


def shipped(name: str) -> Benchmark:
    """Return a benchmark of this repository."""
    return load_benchmark(BenchmarkFolder(name, REPOSITORY / "benchmarks" / name))


def million_row(number: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a row as One Million publishes them, with some fields changed."""
    row = {
        "id": f"00000000-0000-4000-8000-{number:012}",
        "case_id": 100 + number,
        "language": "cn",
        "system_prompt": "",
        "question": f"第{number}题：合同何时成立？\n",
        "tags": {
            "topics": ["法律", "民事", "合同纠纷"],
            "time_sensitivity": {"time_sensitivity": "Time-agnostic", "year_month": "NA", "day": "NA"},
        },
        "rubrics": [million_criterion(2), million_criterion(5, rubric_weight=-4, rubric_tag="指令遵循")],
    }
    return {**row, **changes}


def million_criterion(number: int, **changes: Any) -> dict[str, Any]:
    """Return a criterion as One Million publishes them, with some fields changed."""
    criterion = {
        "rubric_number": number,
        "rubric_detail": f" 要点{number} \n",
        "rubric_weight": 10,
        "rubric_tag": "事实信息",
    }
    return {**criterion, **changes}


def write_jsonl(path: Path, rows: Sequence[Any]) -> Path:
    """Write rows as JSON Lines and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
