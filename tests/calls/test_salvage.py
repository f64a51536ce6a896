from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_rubrics.calls import salvage
from pytest_rubrics.calls.database import Cache
from tests.support.sqlite_pages import PAGE, destroy, keys_by_page, overwrite


def read(database: Path) -> dict[str, object]:
    """The latest value of each key that was saved; what is no JSON is left out."""
    found: dict[str, tuple[float, object]] = {}
    for row in salvage.rows(database):
        try:
            value = json.loads(row.value)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            continue
        assert isinstance(row.key, str)
        assert isinstance(row.store_time, float)
        if row.key not in found or found[row.key][0] <= row.store_time:
            found[row.key] = (row.store_time, value)
    return {key: value for key, (_, value) in found.items()}


@pytest.mark.parametrize("seed", range(40))
def test_every_row_on_untouched_pages_is_found_and_none_is_wrong(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows: dict[str, object] = {}
    with closing(Cache(tmp_path)) as cache, cache.transact():
        for n in range(chance.randrange(1, 600)):
            key = f"key {chance.randrange(400)}"
            if n % 5 == 0:
                cache.delete(key)
                rows.pop(key, None)
            else:
                rows[key] = f"{key} {n} " * chance.choice([1, 5, 50, 500, 2_000])
                cache.set(key, rows[key])
    database = tmp_path / "cache.db"
    pages = keys_by_page(database)
    assert pages.keys() == rows.keys()
    count = database.stat().st_size // PAGE
    destroyed = set(chance.sample(range(1, count + 1), min(count, chance.choice([0, 1, 3, 20]))))
    for page in destroyed:
        destroy(database, page, chance.choice([bytes(PAGE), b"\xff" * PAGE, chance.randbytes(PAGE)]))
    found = read(database)
    intact = {key: value for key, value in rows.items() if not pages[key] & destroyed}
    assert {key: found.get(key) for key in intact} == intact
    assert len(destroyed) > 0 or found == rows
    # A lost row may come up in an older version that was never overwritten; it is then a whole one of its own key.
    assert all(str(value).startswith(f"{key} ") for key, value in found.items())


class TestWriteAheadLog:
    """The file as a killed process leaves it: the latest rows stand only in the WAL."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> Path:
        live = tmp_path / "live"
        with closing(Cache(live)) as cache:
            cache.set("in the file", "old")
            cache.set("in both", "old")
            with closing(sqlite3.connect(live / "cache.db")) as connection:
                assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
            cache.set("in both", "new")
            for n in range(20):
                cache.set(f"{n}", f"{n} " * 500)
            with cache.transact():
                for n in range(20, 40):
                    cache.set(f"{n}", f"{n} " * 500)
            for suffix in ("", "-wal"):
                source = live / f"cache.db{suffix}"
                (tmp_path / source.name).write_bytes(source.read_bytes())
        return tmp_path / "cache.db"

    @pytest.fixture
    def rows(self) -> dict[str, object]:
        return {"in the file": "old", "in both": "new", **{f"{n}": f"{n} " * 500 for n in range(40)}}

    def test_it_is_laid_over_the_file(self, database: Path, rows: dict[str, object]) -> None:
        assert read(database) == rows

    @pytest.mark.parametrize("damage", ["missing", "empty", "zeroed"])
    def test_it_is_read_without_a_file(self, database: Path, rows: dict[str, object], damage: str) -> None:
        size = database.stat().st_size
        database.unlink()
        if damage != "missing":
            database.write_bytes(bytes(size if damage == "zeroed" else 0))
        assert read(database) == rows

    def test_a_transaction_without_its_end_is_left_out(self, database: Path, rows: dict[str, object]) -> None:
        wal = database.with_name("cache.db-wal")
        frame = PAGE + 24
        content = wal.read_bytes()
        assert (len(content) - 32) % frame == 0
        wal.write_bytes(content[:-frame])
        assert read(database) == {key: rows[key] for key in [*map(str, range(20)), "in the file", "in both"]}

    def test_frames_behind_a_damaged_one_are_read(self, database: Path, rows: dict[str, object]) -> None:
        wal = database.with_name("cache.db-wal")
        frame = PAGE + 24
        content = wal.read_bytes()
        numbers = [int.from_bytes(content[at : at + 4], "big") for at in range(32, len(content), frame)]
        superseded = next(index for index, number in enumerate(numbers) if number in numbers[index + 1 :])
        overwrite(wal, 32 + superseded * frame + 24, bytes(PAGE))
        assert read(database) == rows

    def test_frames_from_before_it_was_started_anew_are_left_out(self, database: Path) -> None:
        wal = database.with_name("cache.db-wal")
        content = bytearray(wal.read_bytes())
        for at in range(32, len(content), PAGE + 24):
            content[at + 8] ^= 1  # the salt
        wal.write_bytes(content)
        assert read(database) == {"in the file": "old", "in both": "old"}

    def test_a_wal_that_is_no_wal_is_ignored(self, database: Path) -> None:
        database.with_name("cache.db-wal").write_bytes(b"x" * 10_000)
        assert read(database) == {"in the file": "old", "in both": "old"}


@pytest.mark.parametrize("size", [512, 1024, 65536])
def test_other_page_sizes_are_read(tmp_path: Path, size: int) -> None:
    with closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
        connection.execute(f"PRAGMA page_size = {size}")
        connection.execute("VACUUM")
    rows = {f"{n}": f"{n} " * n * 20 for n in range(100)}
    with closing(Cache(tmp_path)) as cache:
        for key, value in rows.items():
            cache.set(key, value)
    with closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (size,)
    assert read(tmp_path / "cache.db") == rows


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert list(salvage.rows(tmp_path / "cache.db")) == []
