from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.benchmarks import REPOSITORY, million_row, write_jsonl
from tests.support.command import rubrics
from tests.support.hub import HubServer, huggingface_path
from tests.support.shared import shared_data

SPEC = REPOSITORY / "benchmarks" / "researchrubrics" / "benchmark.yaml"


def test_describe_prints_the_statistics_of_the_sample_in_any_folder(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "describe", "one_million_bench")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("$OneMillion-Bench: 20 tasks from sample\nSAMPLE: ")
    for word in ("prompt characters", "criteria", "negative per task", "Weights: ", "Factual Information", "topics"):
        assert word in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_describe_prints_the_published_figures(tmp_path: Path) -> None:
    found = rubrics(tmp_path, "describe", "one_million_bench", "--source", shared_data() / "one_million_bench")
    assert found.returncode == 0, found.stderr
    (all_of_them, criteria, *_) = [line.split() for line in found.stdout.splitlines() if line.startswith("all ")]
    assert all_of_them[:2] == ["all", "400"]
    assert "1470.49 (105 to 15951)" in " ".join(all_of_them)
    assert criteria[:3] == ["all", "6758", "16.89"]
    assert "SAMPLE" not in found.stdout


def test_describe_shows_every_faulty_row(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [million_row(1), million_row(2, question=""), million_row(3, rubrics=[])])
    found = rubrics(tmp_path, "describe", "one_million_bench", "--source", "rows.jsonl")
    assert found.returncode == 4
    assert found.stderr.startswith("2 faults:\n")
    assert "row 2" in found.stderr
    assert "row 3" in found.stderr


def test_describe_takes_the_benchmark_of_the_workspace_above(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "researchrubrics"
    folder.mkdir(parents=True)
    text = SPEC.read_text(encoding="utf-8").replace("title: ResearchRubrics", "title: Our own")
    (folder / "benchmark.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "deep" / "inside").mkdir(parents=True)
    found = rubrics(tmp_path / "deep" / "inside", "describe", "researchrubrics")
    assert found.stdout.startswith("Our own: 6 tasks from sample\n"), found.stderr


def test_fetch_downloads_once_and_says_where_and_with_which_checksums(tmp_path: Path) -> None:
    published = shared_data() / "one_million_bench"
    spec = (REPOSITORY / "benchmarks" / "one_million_bench" / "benchmark.yaml").read_text(encoding="utf-8")
    checksums = dict(line.split(": ") for line in spec.splitlines() if "/test.json: " in line)
    files = [name.strip() for name in checksums]
    with HubServer() as hub:
        for name in files:
            path = huggingface_path("humanlaya-data-lab/OneMillion-Bench", "5cf9d500", name)
            hub.files[path] = (published / name).read_bytes()
        (tmp_path / "benchmarks").mkdir()
        found = rubrics(tmp_path, "fetch", "one_million_bench", HF_ENDPOINT=hub.url)
        asked = len(hub.requests)
    assert found.returncode == 0, found.stderr
    assert asked == 5
    assert "400 tasks" in found.stdout
    folder = tmp_path / ".cache" / "data" / "one_million_bench" / "5cf9d500"
    assert f"in {folder}\n" in found.stdout
    for name, sha256 in checksums.items():
        assert f"{sha256}  {name.strip()}\n" in found.stdout
    assert json.loads((folder / "downloaded.json").read_text(encoding="utf-8")).keys() == set(files)
    again = rubrics(tmp_path, "describe", "one_million_bench", "--source", "full", HF_ENDPOINT="http://127.0.0.1:9")
    assert again.returncode == 0, again.stderr


def test_fetch_says_what_it_tried_where_no_hub_answers(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    found = rubrics(tmp_path, "fetch", "one_million_bench", HF_ENDPOINT=nowhere, MODELSCOPE_ENDPOINT=nowhere)
    assert found.returncode == 4
    assert "Hugging Face humanlaya-data-lab/OneMillion-Bench@5cf9d500 via 127.0.0.1:9" in found.stderr


@pytest.mark.parametrize("command", ["describe", "fetch"])
def test_a_benchmark_file_with_a_fault_is_named(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "ours"
    folder.mkdir(parents=True)
    (folder / "benchmark.yaml").write_text("titel: Ours\n", encoding="utf-8")
    found = rubrics(tmp_path, command, "ours")
    assert found.returncode == 4
    assert "benchmark.yaml:1, titel: unknown key. Did you mean title?" in found.stderr
