from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.data_files import read_data_file, rows_of
from pytest_rubrics.faults import Fault, FaultsError

ROWS = [{"prompt": "甲\u2028乙", "rubrics": [{"text": "a"}]}, {"prompt": "丙", "rubrics": []}]


def is_row(value: dict[str, Any]) -> bool:
    return "prompt" in value


def read(path: Path, content: bytes | str) -> tuple[list[tuple[int, Any]], list[Fault]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    faults: list[Fault] = []
    return list(rows_of(read_data_file(path), is_row, faults)), faults


def as_jsonl(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(ROWS), id="array"),
        pytest.param(json.dumps(ROWS, indent=2), id="indented array"),
        pytest.param(as_jsonl(ROWS), id="lines"),
        pytest.param(as_jsonl(ROWS).rstrip("\n"), id="lines without an end"),
        pytest.param(json.dumps({"name": "x", "authors": ["y"], "data": ROWS}), id="wrapped"),
        pytest.param(json.dumps({"data": ROWS}, indent=2), id="wrapped and indented"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "bom"])
def test_every_layout_gives_the_same_rows(tmp_path: Path, text: str, newline: str, mark: str) -> None:
    rows, faults = read(tmp_path / "data", mark + text.replace("\n", newline))
    assert rows == [(1, ROWS[0]), (2, ROWS[1])]
    assert faults == []


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_alone_is_a_row(tmp_path: Path, indent: int | None) -> None:
    rows, faults = read(tmp_path / "data", json.dumps(ROWS[0], indent=indent))
    assert (rows, faults) == ([(1, ROWS[0])], [])


def test_the_order_of_keys_is_kept(tmp_path: Path) -> None:
    rows, _ = read(tmp_path / "data", '[{"prompt": 1, "b": 1, "a": 2}]')
    assert list(rows[0][1]) == ["prompt", "b", "a"]


def test_rows_of_json_lines_are_numbered_by_line(tmp_path: Path) -> None:
    rows, _ = read(tmp_path / "data", "\n" + as_jsonl(ROWS).replace("\n", "\n\n"))
    assert [number for number, _ in rows] == [2, 4]


def test_broken_lines_are_all_named_and_the_others_read(tmp_path: Path) -> None:
    rows, faults = read(
        tmp_path / "data", as_jsonl([ROWS[0]]) + "{'prompt': 1}\n" + as_jsonl([ROWS[1]]) + '{"prompt": "cut'
    )
    assert [number for number, _ in rows] == [1, 3]
    assert [fault.row for fault in faults] == [2, 4]
    assert "property name enclosed in double quotes at column 2" in faults[0].message
    assert "it ends in the middle" in faults[1].message
    assert "it ends in the middle" not in faults[0].message


def test_a_broken_first_line_does_not_hide_the_others(tmp_path: Path) -> None:
    rows, faults = read(tmp_path / "data", '{"prompt": \n' + as_jsonl(ROWS))
    assert [number for number, _ in rows] == [2, 3]
    assert [fault.row for fault in faults] == [1]


@pytest.mark.parametrize("length", [1, 30, 50, -1])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_document_cut_off_is_one_fault_with_its_position(tmp_path: Path, length: int, wrapped: bool) -> None:
    whole = json.dumps({"data": ROWS} if wrapped else ROWS, indent=1)
    rows, faults = read(tmp_path / "data", whole[:length])
    assert rows == []
    (fault,) = faults
    assert fault.line is not None
    assert f"of {len(whole[:length])})" in fault.message
    assert "it ends in the middle" in fault.message


@pytest.mark.parametrize("text", ["", " \n", "\ufeff"])
def test_an_empty_file_is_a_fault(tmp_path: Path, text: str) -> None:
    rows, (fault,) = read(tmp_path / "data", text)
    assert rows == []
    assert "is empty" in fault.message


@pytest.mark.parametrize("text", ["[]", "{}", "12", '"text"', '{"a": [{}], "b": [{}]}', '{"a": [1]}'])
def test_json_without_rows_is_a_fault(tmp_path: Path, text: str) -> None:
    rows, (fault,) = read(tmp_path / "data", text)
    assert rows == []
    assert "expected a JSON array of rows" in fault.message


@pytest.mark.parametrize("text", ["[" * 200_000, "[" + "1" * 5_000 + "]"], ids=["nested", "long number"])
def test_json_that_python_cannot_hold_is_a_fault(tmp_path: Path, text: str) -> None:
    rows, faults = read(tmp_path / "data", text)
    assert rows == []
    assert len(faults) == 1


def test_bytes_that_are_not_utf8_are_named_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match=r"data: is not UTF-8: byte 0xb7 at position 1 of 3"):
        read(tmp_path / "data", b"[\xb7\xa8")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match=r"nowhere: cannot be read: No such file"):
        read_data_file(tmp_path / "nowhere")


def test_the_checksum_is_that_of_the_bytes(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf[]\r\n"
    (tmp_path / "data").write_bytes(content)
    assert read_data_file(tmp_path / "data").sha256 == hashlib.sha256(content).hexdigest()
