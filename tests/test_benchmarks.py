from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_rubrics.benchmarks import BenchmarkFolder, benchmark_for, find_benchmarks, load_benchmark, marker_names
from pytest_rubrics.faults import FaultsError
from tests.support.benchmarks import REPOSITORY, shipped

MILLION = "one_million_bench"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return folder_with(tmp_path / "package" / "benchmarks" / MILLION, "benchmark.yaml", "sample.jsonl").parents[1]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    folder_with(workspace / "benchmarks" / MILLION, f"test_{MILLION}.py")
    folder_with(workspace / "benchmarks" / "own", "test_own.py", "benchmark.yaml", "sample.jsonl")
    folder_with(workspace / "elsewhere" / "deep" / "third", "test_third.py", "benchmark.yaml")
    folder_with(workspace / "tests", "test_unit.py")
    folder_with(workspace / ".venv" / "hidden", "test_hidden.py", "benchmark.yaml")
    return workspace


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def names(benchmarks: list[BenchmarkFolder]) -> list[str]:
    return [benchmark.name for benchmark in benchmarks]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".", [MILLION, "own", "third"]),
        ("benchmarks", [MILLION, "own"]),
        ("benchmarks/own", ["own"]),
        ("benchmarks/own/test_own.py", ["own"]),
        ("elsewhere", ["third"]),
        ("tests", []),
        ("tests/test_unit.py", []),
        ("missing", []),
    ],
)
def test_benchmarks_below_a_path_are_found(workspace: Path, package: Path, path: str, found: list[str]) -> None:
    assert names(find_benchmarks(workspace, [workspace / path], package)) == found


def test_a_path_given_twice_counts_once(workspace: Path, package: Path) -> None:
    paths = [workspace / "benchmarks", workspace / "benchmarks" / "own" / "test_own.py"]
    assert names(find_benchmarks(workspace, paths, package)) == [MILLION, "own"]


def test_a_folder_with_test_module_alone_takes_the_rest_from_the_package(workspace: Path, package: Path) -> None:
    benchmark, _ = find_benchmarks(workspace, [workspace / "benchmarks"], package)
    assert benchmark.file == package / "benchmarks" / MILLION / "benchmark.yaml"
    assert benchmark.find("sample.jsonl") == package / "benchmarks" / MILLION / "sample.jsonl"


def test_own_files_come_before_those_of_the_package(workspace: Path, package: Path) -> None:
    own = workspace / "benchmarks" / MILLION / "benchmark.yaml"
    own.touch()
    benchmark, _ = find_benchmarks(workspace, [workspace / "benchmarks"], package)
    assert benchmark.file == own
    assert benchmark.find("sample.jsonl") == package / "benchmarks" / MILLION / "sample.jsonl"


def test_a_file_that_is_nowhere_is_named_where_it_should_be(workspace: Path, package: Path) -> None:
    benchmark, _ = find_benchmarks(workspace, [workspace / "benchmarks"], package)
    assert benchmark.find("values.csv") == workspace / "benchmarks" / MILLION / "values.csv"


def test_a_misspelt_benchmark_is_a_fault_with_the_near_name(workspace: Path, package: Path) -> None:
    folder_with(workspace / "benchmarks" / "one_milion_bench", "test_it.py", "test_more.py")
    with pytest.raises(FaultsError) as caught:
        find_benchmarks(workspace, [workspace], package)
    (fault,) = caught.value.faults
    assert fault.file == str(workspace / "benchmarks" / "one_milion_bench")
    assert "no benchmark.yaml" in fault.message
    assert fault.fix == "Did you mean one_million_bench?"


def test_two_benchmarks_of_one_name_are_a_fault(workspace: Path, package: Path) -> None:
    folder_with(workspace / "elsewhere" / "own", "test_own.py", "benchmark.yaml")
    with pytest.raises(FaultsError, match="has the name of another benchmark"):
        find_benchmarks(workspace, [workspace], package)


def test_the_benchmark_of_a_test_module(workspace: Path, package: Path) -> None:
    module = workspace / "benchmarks" / MILLION / f"test_{MILLION}.py"
    benchmark = benchmark_for(module, workspace, package)
    assert benchmark is not None
    assert benchmark.name == MILLION
    assert benchmark_for(workspace / "tests" / "test_unit.py", workspace, package) is None


def test_the_repository_is_its_own_package() -> None:
    module = REPOSITORY / "benchmarks" / MILLION / f"test_{MILLION}.py"
    benchmark = benchmark_for(module, REPOSITORY, REPOSITORY)
    assert benchmark == BenchmarkFolder(MILLION, module.parent)


def test_a_benchmark_file_is_read_with_its_faults(tmp_path: Path) -> None:
    folder_with(tmp_path / "own")
    (tmp_path / "own" / "benchmark.yaml").write_text("title: Own\nsubsets: [a b]\n", encoding="utf-8")
    with pytest.raises(FaultsError) as caught:
        load_benchmark(BenchmarkFolder("own", tmp_path / "own"))
    assert any(fault.line == 2 and "cannot be a marker" in fault.message for fault in caught.value.faults)


def test_the_shipped_benchmarks_name_their_tags() -> None:
    assert shipped(MILLION).tags == [
        "Analytical Reasoning",
        "Factual Information",
        "Structure and Formatting",
        "Instructions Following",
        "Others",
    ]


def test_markers_are_subsets_tracks_and_domains() -> None:
    markers = marker_names(REPOSITORY / "benchmarks" / MILLION / "benchmark.yaml")
    domains = ["economics_and_finance", "healthcare_and_medicine", "industry", "law", "natural_sciences"]
    subsets = [f"{track}_{domain}" for track in ("global", "cn") for domain in domains]
    assert markers == [*subsets, "global", "cn", *domains]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[",
        b"a: b: c",
        b"subsets: 3",
        b"- a",
        b"subsets: [1, [a], 'x y', null]",
        b"\xff\xfe",
        b"? {a: b}\n: c",
        b"a: 2001-99-99",
    ],
)
def test_a_broken_file_gives_no_markers(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "benchmark.yaml"
    file.write_bytes(content)
    assert marker_names(file) == []


def test_a_missing_file_gives_no_markers(tmp_path: Path) -> None:
    assert marker_names(tmp_path / "benchmark.yaml") == []


def test_finding_benchmarks_and_markers_imports_nothing_heavy() -> None:
    script = (
        "import sys; from pathlib import Path; from pytest_rubrics.benchmarks import *; root = Path(sys.argv[1])\n"
        "find_benchmarks(root, [root / 'benchmarks'], root)\n"
        "assert marker_names(root / 'benchmarks' / 'one_million_bench' / 'benchmark.yaml')\n"
        "print(sorted({'pydantic', 'jmespath', 'httpx', 'litellm'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", script, str(REPOSITORY)], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
