"""Read what is left of a damaged cache.db, page by page, without SQLite.

SQLite gives up on a table when one page on the way to its rows is damaged. Here every page is looked at on its own: a
table leaf that is intact gives its rows, whatever happened to the header, the interior pages or the indexes. Pages that
stand only in the write-ahead log (WAL) are laid over the file first. The layout is SQLite's published file format,
https://www.sqlite.org/fileformat2.html.

A leaf that was freed and not used again still shows its rows, so an overwritten row can come up beside the newer one:
callers keep the row with the latest ``store_time``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE_SIZE = 4096
_TABLE_LEAF = 13
_COLUMNS = 12  # of diskcache's table: rowid, then those below and some that are never used here
_WAL_HEADER, _FRAME_HEADER = 32, 24

Column = int | float | str | bytes | None


class Row(NamedTuple):
    """One row of diskcache's table ``Cache``, as stored; nothing is decoded."""

    key: Column
    raw: Column
    store_time: Column
    size: Column
    mode: Column
    filename: Column
    value: Column


def rows(database: Path) -> Iterator[Row]:
    """Give every row that can still be read.

    Args:
        database: The SQLite file. Its WAL is the file with ``-wal`` appended; either may be missing.

    Raises:
        OSError: The file system cannot read the files.
    """
    with ExitStack() as stack:
        # The WAL comes first: another process may move its pages into the file while closing, never back.
        wal = stack.enter_context(_open(database.with_name(database.name + "-wal")))
        pages = _Pages(stack.enter_context(_open(database)), wal)
        for number in range(1, pages.count + 1):
            yield from _leaf(pages, number)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return io.BytesIO()


class _Pages:
    """The pages of a database, each in its latest committed version."""

    def __init__(self, file: BinaryIO, wal: BinaryIO) -> None:
        self._file, self._wal = file, wal
        wal_size, self._frames = _committed_frames(wal)
        size, reserved = _layout(file.read(100))
        self._size = size or wal_size or _DEFAULT_PAGE_SIZE
        self.usable = self._size - reserved
        length = file.seek(0, io.SEEK_END)
        self.count = max(-(-length // self._size), *self._frames, 0)

    def read(self, number: int) -> bytes:
        """Give one page; it is shorter than the others where the file was cut."""
        if (offset := self._frames.get(number)) is not None:
            self._wal.seek(offset)
            return self._wal.read(self._size)
        self._file.seek((number - 1) * self._size)
        return self._file.read(self._size)


def _layout(header: bytes) -> tuple[int, int]:
    """Page size and reserved bytes per page; 0 and 0 where the header is destroyed."""
    if not header.startswith(_MAGIC) or len(header) < 100:
        return 0, 0
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    return (size, header[20]) if size >= 512 and size & (size - 1) == 0 else (0, 0)


def _committed_frames(wal: BinaryIO) -> tuple[int, dict[int, int]]:
    """Page size of a WAL, and where the last committed version of each of its pages starts.

    SQLite ends at the first frame whose checksum is wrong. Checksums run on from frame to frame, so with the stored one
    of the frame before, each frame is judged alone and those after a damaged one are still found.
    """
    header = wal.read(_WAL_HEADER)
    if len(header) < _WAL_HEADER:
        return 0, {}
    magic, _, size, _, *salts = struct.unpack(">6I", header[:24])
    if magic & ~1 != 0x377F0682 or not 512 <= size <= 65536:
        return 0, {}
    words = struct.Struct(f"{'>' if magic & 1 else '<'}{2 + size // 4}I")
    before = struct.unpack(">2I", header[24:])
    pending: dict[int, int] = {}
    committed: dict[int, int] = {}
    while len(frame := wal.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
        number, pages_after_commit, *frame_salts, sum1, sum2 = struct.unpack(">6I", frame[:_FRAME_HEADER])
        if frame_salts != salts:  # left over from before the WAL was started anew, or damaged
            continue
        if _checksum(words.unpack(frame[:8] + frame[_FRAME_HEADER:]), before) == (sum1, sum2):
            pending[number] = wal.tell() - size
            if pages_after_commit:
                committed.update(pending)
                pending.clear()
        before = (sum1, sum2)
    return size, committed


def _checksum(words: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, int]:
    one, two = before
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two


def _leaf(pages: _Pages, number: int) -> Iterator[Row]:
    page = pages.read(number)
    start = 100 if number == 1 else 0
    if len(page) < start + 8 or page[start] != _TABLE_LEAF:
        return
    (cells,) = struct.unpack_from(">H", page, start + 3)
    for cell in range(cells):
        try:
            (offset,) = struct.unpack_from(">H", page, start + 8 + 2 * cell)
            columns = _record(_payload(pages, page, offset))
        except (IndexError, ValueError, struct.error):
            continue  # this cell is damaged; its neighbours need not be
        if len(columns) == _COLUMNS:
            _, key, raw, store_time, _, _, _, _, size, mode, filename, value = columns
            yield Row(key, raw, store_time, size, mode, filename, value)


def _payload(pages: _Pages, page: bytes, offset: int) -> bytes:
    """The record of a cell: its part on the leaf, and the rest from the chain of overflow pages."""
    length, offset = _varint(page, offset)
    _, offset = _varint(page, offset)  # the rowid
    if length > pages.count * pages.usable:
        raise ValueError("the length is damaged")
    local = _local_length(length, pages.usable)
    parts = [_take(page, offset, local)]
    missing = length - local
    following = struct.unpack_from(">I", page, offset + local)[0] if missing else 0
    while missing:
        if not 0 < following <= pages.count:
            raise ValueError("the chain of overflow pages is broken")
        overflow = pages.read(following)
        (following,) = struct.unpack_from(">I", overflow)
        part = _take(overflow, 4, min(missing, pages.usable - 4))
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _local_length(length: int, usable: int) -> int:
    """How many bytes of a record stand on the leaf itself."""
    most = usable - 35
    if length <= most:
        return length
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    return local if local <= most else least


def _record(payload: bytes) -> list[Column]:
    end, offset = _varint(payload, 0)
    kinds = []
    while offset < end:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    if offset != end:
        raise ValueError("the header of the record is damaged")
    columns = []
    for kind in kinds:
        column, offset = _column(payload, offset, kind)
        columns.append(column)
    return columns


_INTEGER_LENGTHS = (0, 1, 2, 3, 4, 6, 8)


def _column(payload: bytes, offset: int, kind: int) -> tuple[Column, int]:
    if kind == 0:
        return None, offset
    if kind <= 6:
        length = _INTEGER_LENGTHS[kind]
        return int.from_bytes(_take(payload, offset, length), "big", signed=True), offset + length
    if kind == 7:
        return struct.unpack_from(">d", payload, offset)[0], offset + 8
    if kind <= 9:
        return kind - 8, offset
    if kind <= 11:
        raise ValueError("reserved type")
    length, is_text = divmod(kind - 12, 2)
    content = _take(payload, offset, length)
    return content.decode("utf-8") if is_text else content, offset + length


def _take(content: bytes, offset: int, length: int) -> bytes:
    taken = content[offset : offset + length]
    if len(taken) != length:
        raise ValueError("cut off")
    return taken


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    """Read a big-endian integer of up to nine bytes; gives it and the offset behind it."""
    value = 0
    for index in range(8):
        byte = content[offset + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + index + 1
    return value << 8 | content[offset + 8], offset + 9
