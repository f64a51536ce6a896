from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.benchmark_file import Hub
from pytest_rubrics.benchmarks import Benchmark, BenchmarkFolder
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.hubs import RECORD, fetch, locations
from pytest_rubrics.sources import Source
from tests.support.benchmarks import million_row, shipped
from tests.support.hub import HubServer, huggingface_path, modelscope_path

FILES = {
    "law/test.json": json.dumps([million_row(1)]).encode(),
    "industry/test.json": json.dumps([million_row(2)]).encode(),
}
HF, MS = "owner/Data-Set", "other/Data-Set"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", f"{server.url}/")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def hub_of(*, pinned: bool = True, files: dict[str, bytes] = FILES) -> Hub:
    sums = {name: hashlib.sha256(content).hexdigest() if pinned else None for name, content in files.items()}
    return Hub.model_validate(
        {
            "huggingface": {"repo": HF, "revision": "5cf9d500"},
            "modelscope": {"repo": MS, "revision": "master"},
            "files": sums,
        }
    )


def at_huggingface(server: HubServer, revision: str = "5cf9d500", files: dict[str, bytes] = FILES) -> list[str]:
    paths = [huggingface_path(HF, revision, name) for name in files]
    server.files |= dict(zip(paths, files.values(), strict=True))
    return paths


def at_modelscope(server: HubServer, files: dict[str, bytes] = FILES) -> list[str]:
    paths = [modelscope_path(MS, "master", name) for name in files]
    server.files |= dict(zip(paths, files.values(), strict=True))
    return paths


def contents(files: dict[str, Path]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files.items()}


def failure(hub: Hub, folder: Path) -> str:
    with pytest.raises(FaultsError) as caught:
        fetch(hub, folder)
    (fault,) = caught.value.faults
    assert fault.file == "--source full"
    return str(fault)


def test_files_are_downloaded_once(server: HubServer, tmp_path: Path) -> None:
    paths = at_huggingface(server)
    for _ in range(2):
        files, origin = fetch(hub_of(), tmp_path / "data")
        assert contents(files) == FILES
        assert origin == f"full (Hugging Face {HF}@5cf9d500)"
    assert server.paths() == paths


def test_the_main_branch_is_asked_when_a_short_revision_is_unknown(server: HubServer, tmp_path: Path) -> None:
    at_huggingface(server, "main")
    files, origin = fetch(hub_of(), tmp_path)
    assert contents(files) == FILES
    assert origin == f"full (Hugging Face {HF}@main)"
    assert len(server.requests) == 3  # the unknown revision once


@pytest.mark.parametrize("status", [401, 404, 500])
def test_modelscope_is_asked_when_hugging_face_fails(server: HubServer, tmp_path: Path, status: int) -> None:
    for path in at_huggingface(server):
        server.statuses[path] = status
    at_modelscope(server)
    files, origin = fetch(hub_of(), tmp_path)
    assert contents(files) == FILES
    assert origin == f"full (ModelScope {MS}@master)"


def test_only_what_is_missing_comes_from_the_second_hub(server: HubServer, tmp_path: Path) -> None:
    first, second = at_huggingface(server)
    server.statuses[second] = 503
    at_modelscope(server)
    fetch(hub_of(), tmp_path)
    assert server.paths() == [first, second, modelscope_path(MS, "master", "industry/test.json")]


def test_a_file_cut_off_is_not_kept(server: HubServer, tmp_path: Path) -> None:
    server.cut_off |= {*at_huggingface(server), *at_modelscope(server)}
    text = failure(hub_of(), tmp_path)
    assert text.count("law/test.json: RemoteProtocolError: peer closed connection") == 2
    assert [path.name for path in (tmp_path / "law").iterdir()] == []


def test_a_wrong_checksum_is_not_kept(server: HubServer, tmp_path: Path) -> None:
    other = dict.fromkeys(FILES, b"other")
    at_huggingface(server, files=other)
    at_modelscope(server, files=other)
    text = failure(hub_of(), tmp_path)
    expected = hashlib.sha256(FILES["law/test.json"]).hexdigest()
    assert f"has SHA-256 {hashlib.sha256(b'other').hexdigest()}, expected {expected}" in text
    assert [path.name for path in (tmp_path / "law").iterdir()] == []


def test_when_nothing_works_the_error_says_what_was_tried_and_what_to_do(server: HubServer, tmp_path: Path) -> None:
    text = failure(hub_of(), tmp_path)
    address = server.url.removeprefix("http://")
    for tried in [f"Hugging Face {HF}@5cf9d500", f"Hugging Face {HF}@main", f"ModelScope {MS}@master"]:
        assert f"\n  {tried} via {address}: law/test.json: HTTP 404" in text
    assert "law/test.json, industry/test.json could not be downloaded" in text
    assert "HF_ENDPOINT" in text
    assert "--source PATH" in text


def test_a_dead_endpoint_is_an_error_without_credentials(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret-word@127.0.0.1:1")
    monkeypatch.setenv("HF_TOKEN", "hf_secret-word")
    text = failure(hub_of(), tmp_path)
    assert "via 127.0.0.1:1: law/test.json: ConnectError: " in text
    assert "secret-word" not in text


@pytest.mark.parametrize("endpoint", ["not an address", "ftp://127.0.0.1", "http://[broken", "http://127.0.0.1:port"])
def test_a_nonsense_endpoint_is_an_error_of_that_hub(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    at_modelscope(server)
    files, _ = fetch(hub_of(), tmp_path)
    assert contents(files) == FILES


def test_the_token_goes_to_hugging_face_only(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    at_modelscope(server)
    fetch(hub_of(), tmp_path)
    assert {path.startswith("/api/v1"): token for path, token in server.requests} == {False: "Bearer hf_1", True: None}


def test_a_redirect_to_another_server_is_followed_without_the_token(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    with HubServer() as store:
        for path, content in zip(at_huggingface(server), FILES.values(), strict=True):
            store.files[path] = content
            server.redirects[path] = store.url + path
        files, _ = fetch(hub_of(), tmp_path)
        assert contents(files) == FILES
        assert {token for _, token in store.requests} == {None}


def test_a_damaged_file_is_downloaded_again(server: HubServer, tmp_path: Path) -> None:
    at_huggingface(server)
    files, _ = fetch(hub_of(), tmp_path)
    files["law/test.json"].write_bytes(b"damaged")
    assert contents(fetch(hub_of(), tmp_path)[0]) == FILES
    assert len(server.requests) == 3


def test_pinned_files_put_there_by_hand_are_taken(server: HubServer, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
    files, origin = fetch(hub_of(), tmp_path)
    assert (contents(files), origin) == (FILES, "full")
    assert server.requests == []


def test_a_file_without_checksum_is_recorded_and_kept(server: HubServer, tmp_path: Path) -> None:
    at_huggingface(server)
    for _ in range(2):
        assert contents(fetch(hub_of(pinned=False), tmp_path)[0]) == FILES
    assert len(server.requests) == 2
    assert json.loads((tmp_path / RECORD).read_text(encoding="utf-8"))["law/test.json"] == {
        "sha256": hashlib.sha256(FILES["law/test.json"]).hexdigest(),
        "from": f"Hugging Face {HF}@5cf9d500",
    }


def test_a_later_download_that_differs_from_the_first_is_refused(server: HubServer, tmp_path: Path) -> None:
    at_huggingface(server)
    files, _ = fetch(hub_of(pinned=False), tmp_path)
    files["law/test.json"].unlink()
    at_huggingface(server, files={"law/test.json": b"[]"})
    text = failure(hub_of(pinned=False), tmp_path)
    assert f"but the first download had {hashlib.sha256(FILES['law/test.json']).hexdigest()}" in text
    assert f"to accept it, remove {tmp_path}" in text
    assert not files["law/test.json"].exists()


def test_a_page_instead_of_the_file_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.pages |= set(at_huggingface(server))
    assert "an HTML page came instead of the file" in failure(hub_of(pinned=False), tmp_path)


def test_a_broken_record_is_named(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text("{", encoding="utf-8")
    with pytest.raises(FaultsError, match=rf"{RECORD}: cannot be read"):
        fetch(hub_of(), tmp_path)


def test_a_folder_that_cannot_be_made_is_named(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FaultsError, match="data: cannot be written"):
        fetch(hub_of(), tmp_path / "file" / "data")


def test_processes_that_start_together_download_once(server: HubServer, tmp_path: Path) -> None:
    paths = at_huggingface(server)
    script = (
        "import sys; from pathlib import Path; from pytest_rubrics.benchmark_file import Hub\n"
        "from pytest_rubrics.hubs import fetch\n"
        "hub = Hub.model_validate_json(sys.argv[1]); sys.stdin.readline()\n"
        "print(fetch(hub, Path(sys.argv[2]))[1])"
    )
    command = [sys.executable, "-c", script, hub_of().model_dump_json(), str(tmp_path / "data")]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
        for _ in range(2)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=60)[0] for child in children]
    assert outputs == [f"full (Hugging Face {HF}@5cf9d500)\n"] * 2
    assert server.paths() == paths


def test_the_public_hubs_are_asked_by_default() -> None:
    urls = [location.url("law/test.json") for hub in locations(hub_of(), {}) for location in hub]
    assert urls == [
        "https://huggingface.co/datasets/owner/Data-Set/resolve/5cf9d500/law/test.json",
        "https://huggingface.co/datasets/owner/Data-Set/resolve/main/law/test.json",
        "https://www.modelscope.cn/api/v1/datasets/other/Data-Set/repo?Revision=master&FilePath=law%2Ftest.json",
    ]


def test_full_loads_what_was_downloaded(server: HubServer, tmp_path: Path) -> None:
    at_huggingface(server)
    spec = shipped("one_million_bench").spec
    sources = spec.sources.model_copy(update={"hub": hub_of()})
    spec = spec.model_copy(update={"sources": sources, "values": None})
    benchmark = Benchmark("own", BenchmarkFolder("own", tmp_path), spec)
    loaded = Source("full", tmp_path / "data").load(benchmark)
    assert [task.key for task in loaded.tasks] == ["101", "102"]
    assert loaded.checksum == hub_of().files
    assert (tmp_path / "data" / "own" / "5cf9d500" / "law" / "test.json").is_file()
