from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from pytest_rubrics.benchmarks import Benchmark, BenchmarkFolder
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.sources import Source, published_files, serves
from pytest_rubrics.values import load_values
from tests.support.benchmarks import million_row, shipped, write_jsonl
from tests.support.shared import shared_data


@pytest.fixture
def million() -> Benchmark:
    return shipped("one_million_bench")


@pytest.fixture
def research() -> Benchmark:
    return shipped("researchrubrics")


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder in the layout of One Million, with two of its five folders."""
    for number, folder in enumerate(["law", "industry"]):
        rows = [million_row(10 * number + 1), million_row(10 * number + 2)]
        path = tmp_path / "published" / folder / "test.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows), encoding="utf-8")
    return tmp_path / "published"


def source(path: Path | str) -> Source:
    return Source(str(path), Path("unused"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_published_folder_is_loaded_with_checksums(million: Benchmark, published: Path) -> None:
    loaded = source(published).load(million)
    assert [task.key for task in loaded.tasks] == ["111", "112", "101", "102"]  # files by name
    assert loaded.checksum == {
        "industry/test.json": sha256(published / "industry" / "test.json"),
        "law/test.json": sha256(published / "law" / "test.json"),
    }
    assert loaded.origin == str(published)


@pytest.mark.parametrize("path", ["law", "law/test.json"])
def test_one_file_of_the_layout_keeps_its_name(million: Benchmark, published: Path, path: str) -> None:
    loaded = source(published / path).load(million)
    assert [task.key for task in loaded.tasks] == ["101", "102"]
    assert list(loaded.checksum) == ["law/test.json"]


def test_a_relative_file_has_the_same_name(
    million: Benchmark, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(published / "law")
    assert list(source("test.json").load(million).checksum) == ["law/test.json"]


def test_a_folder_with_one_flat_file_is_loaded(million: Benchmark, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "flat" / "mine.jsonl", [million_row()])
    (tmp_path / "flat" / "dataset_infos.json").write_text("{}", encoding="utf-8")
    loaded = source(tmp_path / "flat").load(million)
    assert list(loaded.checksum) == ["mine.jsonl"]
    assert len(loaded.tasks) == 1


def test_several_flat_files_are_not_guessed_at(million: Benchmark, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "flat" / "a.jsonl", [million_row(1)])
    write_jsonl(tmp_path / "flat" / "b.jsonl", [million_row(2)])
    with pytest.raises(FaultsError, match=r"holds no data of one_million_bench: expected \*/test.json, or a single"):
        source(tmp_path / "flat").load(million)


def test_a_missing_path_is_named(million: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match=r"--source .*nowhere: does not exist"):
        source(tmp_path / "nowhere").load(million)


def test_faults_of_all_files_come_together(million: Benchmark, published: Path) -> None:
    (published / "industry" / "test.json").write_bytes(b"\xff")
    law = published / "law" / "test.json"
    law.write_bytes(law.read_bytes()[:-40])
    (published / "zoo").mkdir()
    (published / "zoo" / "test.json").write_text(json.dumps([million_row(50, question="")]), encoding="utf-8")
    with pytest.raises(FaultsError) as caught:
        source(published).load(million)
    assert [Path(fault.file).parent.name for fault in caught.value.faults] == ["industry", "law", "zoo"]


def test_the_sample_is_found_beside_the_benchmark_file(million: Benchmark, tmp_path: Path) -> None:
    sample = write_jsonl(tmp_path / "own" / "sample.jsonl", [million_row()])
    spec = million.spec.model_copy(update={"values": None})
    own = Benchmark("own", BenchmarkFolder("own", tmp_path / "own"), spec)
    loaded = source("sample").load(own)
    assert loaded.checksum == {"sample.jsonl": sha256(sample)}
    assert loaded.origin == "sample"
    assert loaded.tasks[0].benchmark == "own"


def test_tasks_have_the_economic_value_that_the_table_names(million: Benchmark, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "own" / "sample.jsonl", [million_row(1), million_row(2)])
    known = million_row(2)["id"]
    (tmp_path / "own" / "values.csv").write_text(f"id,currency,value\n{known},CNY,1500\n", encoding="utf-8")
    own = Benchmark("own", BenchmarkFolder("own", tmp_path / "own"), million.spec)
    assert [task.value for task in source("sample").load(own).tasks] == [None, ("CNY", 1500.0)]


def test_a_missing_table_of_values_is_named(million: Benchmark, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "own" / "sample.jsonl", [million_row()])
    own = Benchmark("own", BenchmarkFolder("own", tmp_path / "own"), million.spec)
    with pytest.raises(FaultsError, match=r"values.csv: cannot be read: .*No such file"):
        source("sample").load(own)


def test_a_missing_sample_is_named(million: Benchmark, tmp_path: Path) -> None:
    own = Benchmark("own", BenchmarkFolder("own", tmp_path), million.spec)
    with pytest.raises(FaultsError, match=r"sample.jsonl: cannot be read: No such file"):
        source("sample").load(own)


def test_full_without_a_hub_is_a_fault(million: Benchmark, tmp_path: Path) -> None:
    spec = million.spec.model_copy(update={"sources": million.spec.sources.model_copy(update={"hub": None})})
    own = Benchmark("own", BenchmarkFolder("own", tmp_path), spec)
    with pytest.raises(FaultsError, match="'own' names no hub"):
        Source("full", tmp_path).load(own)


def test_a_path_serves_the_benchmark_whose_rows_it_holds(
    million: Benchmark, research: Benchmark, published: Path
) -> None:
    for path in [published, published / "law", published / "law" / "test.json"]:
        assert serves(million, path)
        assert not serves(research, path)


def test_the_same_layout_with_other_rows_is_not_served(million: Benchmark, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data" / "law" / "test.json", [{"prompt": "a", "rubrics": [{"criterion": "b"}]}])
    assert published_files(million, tmp_path / "data")
    assert not serves(million, tmp_path / "data")


def test_a_row_with_a_fault_is_still_served(million: Benchmark, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "mine.jsonl", [million_row(question=None)])
    assert serves(million, path)


def test_the_first_readable_row_decides(million: Benchmark, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "mine.jsonl", [million_row()])
    path.write_text("{broken\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert serves(million, path)


@pytest.mark.parametrize("content", [b"", b"[{", b"\xff"])
def test_unreadable_files_count_by_their_published_name(million: Benchmark, tmp_path: Path, content: bytes) -> None:
    for path in [tmp_path / "law" / "test.json", tmp_path / "mine.jsonl"]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert serves(million, tmp_path)
    assert not serves(million, tmp_path / "mine.jsonl")


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_a_path_without_files_serves_nothing(million: Benchmark, tmp_path: Path, path: str) -> None:
    assert not serves(million, tmp_path / path)


def test_the_published_data_serve_their_own_benchmark(million: Benchmark, research: Benchmark) -> None:
    data = shared_data()
    assert serves(million, data / "one_million_bench")
    assert serves(research, data / "researchrubrics")
    assert not serves(million, data / "researchrubrics")
    assert not serves(research, data / "one_million_bench")


def test_the_published_data_have_the_pinned_checksums(million: Benchmark) -> None:
    loaded = source(shared_data() / "one_million_bench").load(million)
    assert million.spec.sources.hub is not None
    assert loaded.checksum == million.spec.sources.hub.files


def test_flat_json_lines_of_the_published_data_give_the_same_tasks(million: Benchmark, tmp_path: Path) -> None:
    data = shared_data() / "one_million_bench"
    files = sorted(data.glob("*/test.json"))
    rows = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
    flat = write_jsonl(tmp_path / "flat" / "all.jsonl", rows)
    assert source(flat.parent).load(million).tasks == source(data).load(million).tasks


def test_every_published_task_has_its_subset_and_value(million: Benchmark) -> None:
    tasks = source(shared_data() / "one_million_bench").load(million).tasks
    assert million.values is not None
    assert {task.id for task in tasks} == load_values(million.values).keys()
    assert [task.subset for task in tasks] == [subset for subset in million.spec.subsets for _ in range(40)]


def test_a_copy_elsewhere_has_the_same_checksums(million: Benchmark, published: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(published, tmp_path / "copy")
    assert source(copy).load(million).checksum == source(published).load(million).checksum


def test_the_research_fixture_is_loaded(research: Benchmark) -> None:
    tasks = source(shared_data() / "researchrubrics").load(research).tasks
    criteria = [criterion for task in tasks for criterion in task.criteria]
    assert (len(tasks), len(criteria)) == (3, 71)
    assert sum(criterion.weight < 0 for criterion in criteria) == 9
    assert {criterion.tag for criterion in criteria} == set(research.tags)


@pytest.mark.parametrize("name", ["one_million_bench", "researchrubrics"])
def test_the_bundled_samples_are_sound_and_their_own(name: str) -> None:
    benchmark = shipped(name)
    tasks = source("sample").load(benchmark).tasks
    assert tasks
    assert serves(benchmark, benchmark.sample)
    assert {criterion.tag for task in tasks for criterion in task.criteria} <= set(benchmark.tags)
    assert all(any(criterion.weight < 0 for criterion in task.criteria) for task in tasks)
