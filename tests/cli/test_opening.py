from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pytest_rubrics.cli.opening import make_server
from tests.support.command import rubrics
from tests.support.runs import write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    folder = write_run(tmp_path / "run")
    assert rubrics(tmp_path, "report", "run").returncode == 0
    (folder / "report_data").mkdir()
    (folder / "report_data" / "0.js").write_text("1", encoding="utf-8")
    return folder


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with make_server(folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["/", "/report.html"])
def test_the_report_is_served(address: str, path: str) -> None:
    assert "<title>Rubrics report</title>" in httpx.get(address + path).text


@pytest.mark.parametrize("age", [-10, 10], ids=["older than the records", "newer"])
def test_the_report_of_a_run_that_went_on_is_made_anew(folder: Path, age: int) -> None:
    report = folder / "report.html"
    report.write_text("as it was", encoding="utf-8")
    recorded = (folder / "results.jsonl").stat().st_mtime
    os.utime(report, (recorded + age, recorded + age))
    command = [sys.executable, "-m", "pytest_rubrics", "open", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            page = httpx.get(process.stdout.readline().split()[0]).text
        finally:
            process.terminate()
    assert ("<title>Rubrics report</title>" in page) == (age < 0)
    assert ("as it was" in page) == (age > 0)


def test_its_data_files_are_served(address: str) -> None:
    assert httpx.get(f"{address}/report_data/0.js").text == "1"


@pytest.mark.parametrize(
    "path",
    ["/results.jsonl", "/report_data/", "/../secret.txt", "/%2e%2e/secret.txt", "/report_data/..%2f..%2fsecret.txt"],
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    assert httpx.get(address + path).status_code == 404


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, address: str) -> None:
    (folder / "report_data" / "1.js").symlink_to(folder.parent / "secret.txt")
    assert httpx.get(f"{address}/report_data/1.js").status_code == 404
