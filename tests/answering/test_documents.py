from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_rubrics.answering.documents import report_text
from pytest_rubrics.faults import FaultsError
from tests.support.documents import write_docx, write_pdf


def fault(path: Path, kept_in: Path) -> str:
    with pytest.raises(FaultsError) as caught:
        report_text(path, kept_in)
    return str(caught.value)


def test_pages_of_a_pdf_follow_each_other(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["First finding.", "Second finding."])
    assert report_text(path, tmp_path / "kept").split() == ["First", "finding.", "Second", "finding."]


def test_word_becomes_markdown_and_keeps_its_own_signs(tmp_path: Path) -> None:
    path = write_docx(tmp_path / "a.docx", "结论", "It is **so** in file_name.", [["Year", "Value"], ["2024", "1.5"]])
    text = report_text(path, tmp_path / "kept")
    assert text.startswith("# 结论\n\nIt is **so** in file_name.")
    assert "| 2024 | 1.5 |" in text


def test_a_file_is_converted_once(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Finding."])
    text = report_text(path, tmp_path / "kept")
    code = """
import sys
from pathlib import Path
from pytest_rubrics.answering.documents import report_text
print(report_text(Path(sys.argv[1]), Path(sys.argv[2])), end="")
assert "pypdf" not in sys.modules
"""
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "kept")]
    assert subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout == text


def test_a_changed_file_is_converted_again(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Old."])
    report_text(path, tmp_path / "kept")
    write_pdf(path, ["New."])
    assert report_text(path, tmp_path / "kept").strip() == "New."


def test_a_folder_that_cannot_be_written_costs_only_the_memory_of_it(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Finding."])
    (tmp_path / "kept").write_text("a file", encoding="utf-8")
    assert report_text(path, tmp_path / "kept").strip() == "Finding."


def test_a_scan_is_no_empty_answer(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["", ""])
    assert f"{path}: holds no text: it may be a scan. Give the report as .md or .txt." in fault(path, tmp_path / "k")


@pytest.mark.parametrize("name", ["a.pdf", "a.docx"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind")
    assert fault(path, tmp_path / "kept").startswith(f"{path}: cannot be read: ")


@pytest.mark.parametrize(("name", "package"), [("a.pdf", "pypdf"), ("a.docx", "mammoth")])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"x")
    monkeypatch.setitem(sys.modules, package, None)
    found = fault(path, tmp_path / "kept")
    assert f"needs the package {package}" in found
    assert "pytest-rubrics[reports]" in found
