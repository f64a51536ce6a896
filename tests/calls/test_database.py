"""Damage to the file under the store, as the store meets it."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.calls import salvage
from pytest_rubrics.calls.database import Database
from pytest_rubrics.calls.salvage import Row
from tests.support.sqlite_pages import PAGE, destroy, keys_by_page, overwrite, pages_of
from tests.support.stores import finish, kill, line, opened, start

ROWS: dict[str, Any] = {
    **{f"{n}": {"content": f"{n} " * 100} for n in range(500)},
    **{f"large {n}": f"{n}" * 50_000 for n in range(5)},
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The folder of a store that holds ``ROWS`` and was closed."""
    directory = tmp_path / "replies"
    with closing(opened(directory)) as store:
        asyncio.run(store.put(ROWS))
    return directory


@pytest.fixture
def database(directory: Path) -> Path:
    return directory / "cache.db"


def mended(directory: Path) -> tuple[dict[str, Any], int]:
    """Open, read everything, write: the rows found, and the number saved as the one warning tells it."""
    warnings: list[str] = []
    with closing(opened(directory, warnings.append)) as store:
        found = dict(store.entries())
        asyncio.run(store.put({"after": "written"}))
        assert store.get("after") == "written"
    (warning,) = warnings
    match = re.search(r"was damaged \(.+\)\. (\d+) rows were saved .* kept as (.+)\.$", warning)
    assert match
    assert str(directory / "cache.db") in warning
    assert [Path(match[2])] == set_aside(directory)
    with closing(opened(directory)) as store:
        assert dict(store.entries()) == found | {"after": "written"}
    return found, int(match[1])


def set_aside(directory: Path) -> list[Path]:
    return [path for path in directory.glob("cache.db.damaged-*") if not path.name.endswith(("-wal", "-shm"))]


def zero_header(database: Path) -> None:
    overwrite(database, 0, bytes(100))


def garble_magic(database: Path) -> None:
    overwrite(database, 0, b"garbage!")


def destroy_first_page(database: Path) -> None:
    destroy(database, 1)


def destroy_root_of_the_table(database: Path) -> None:
    destroy(database, pages_of(database, "Cache", "internal")[0])


def destroy_the_settings(database: Path) -> None:
    destroy(database, pages_of(database, "Settings", "leaf")[0])


def destroy_the_index(database: Path) -> None:
    for page in pages_of(database, "Cache_key_raw", "internal") + pages_of(database, "Cache_key_raw", "leaf"):
        destroy(database, page)


@pytest.mark.parametrize(
    "damage",
    [
        zero_header,
        garble_magic,
        destroy_first_page,
        destroy_root_of_the_table,
        destroy_the_settings,
        destroy_the_index,
    ],
)
def test_damage_beside_the_rows_loses_none(directory: Path, database: Path, damage: Callable[[Path], None]) -> None:
    damage(database)
    warnings: list[str] = []
    with closing(opened(directory, warnings.append)) as store:
        # One key, so that the index is read too; the settings are only read when something is written.
        assert store.get("7") == ROWS["7"]
        asyncio.run(store.put({"after": "written"}))
        assert dict(store.entries()) == ROWS | {"after": "written"}
    (warning,) = warnings
    assert f" {len(ROWS)} rows were saved" in warning
    assert len(set_aside(directory)) == 1


def test_damage_in_the_middle_loses_the_rows_of_that_page_only(directory: Path, database: Path) -> None:
    places = keys_by_page(database)
    page = pages_of(database, "Cache", "leaf")[7]
    kept = {key: ROWS[key] for key, pages in places.items() if page not in pages}
    assert 0 < len(ROWS) - len(kept) < 30
    destroy(database, page)
    assert mended(directory) == (kept, len(kept))


def test_a_cut_file_keeps_the_rows_before_the_cut(directory: Path, database: Path) -> None:
    places = keys_by_page(database)
    last = database.stat().st_size // PAGE // 2
    kept = {key: ROWS[key] for key, pages in places.items() if max(pages) <= last}
    assert 100 < len(kept) < 400
    os.truncate(database, last * PAGE)
    assert mended(directory) == (kept, len(kept))


def test_a_zeroed_file_is_not_taken_for_an_empty_cache(directory: Path, database: Path) -> None:
    database.write_bytes(bytes(database.stat().st_size))
    assert mended(directory) == ({}, 0)


def test_an_emptied_file_is_not_taken_for_an_empty_cache(directory: Path, database: Path) -> None:
    database.write_bytes(b"")
    assert mended(directory) == ({}, 0)


def test_a_database_of_something_else_is_set_aside(directory: Path, database: Path) -> None:
    database.unlink()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE Songs (title)")
    assert mended(directory) == ({}, 0)


def test_a_file_that_was_removed_is_made_anew_without_a_word(directory: Path, database: Path) -> None:
    database.unlink()
    with closing(opened(directory)) as store:
        assert dict(store.entries()) == {}


class TestKilledProcess:
    """Its last rows stand only in the WAL."""

    @staticmethod
    def _killed(directory: Path, count: int) -> dict[str, object]:
        body = """
        async def main():
            store = opened()
            for n in range(int(sys.argv[2])):
                await store.put({f"{n}": f"{n} " * 100})
            assert await store.claim("claimed")
            say("done")
            sys.stdin.readline()
        asyncio.run(main())
        """
        process = start(directory, body, f"{count}")
        assert line(process) == "done"
        kill(process)
        assert (directory / "cache.db-wal").stat().st_size > 0
        return {f"{n}": f"{n} " * 100 for n in range(count)}

    @pytest.mark.parametrize("count", [5, 500], ids=["before a checkpoint", "after one"])
    @pytest.mark.parametrize("damage", [zero_header, garble_magic, destroy_first_page])
    def test_a_destroyed_header_loses_none(self, tmp_path: Path, count: int, damage: Callable[[Path], None]) -> None:
        rows = self._killed(tmp_path, count)
        damage(tmp_path / "cache.db")
        warnings: list[str] = []  # none where the first page stands in the WAL: SQLite then mends the file itself
        with closing(opened(tmp_path, warnings.append)) as store:
            assert dict(store.entries()) == rows
        assert len(warnings) == len(set_aside(tmp_path)) <= 1

    @pytest.mark.parametrize("content", [b"", None], ids=["emptied", "removed"])
    def test_rows_that_stand_only_in_the_wal_are_saved(self, tmp_path: Path, content: bytes | None) -> None:
        rows = self._killed(tmp_path, 5)
        (tmp_path / "cache.db").unlink()
        if content is not None:
            (tmp_path / "cache.db").write_bytes(content)
        warnings: list[str] = []
        with closing(opened(tmp_path, warnings.append)) as store:
            assert dict(store.entries()) == rows
        assert len(warnings) == 1
        assert " 5 rows were saved" in warnings[0]
        assert len(list(tmp_path.glob("cache.db.damaged-*-wal"))) == 1


def test_what_a_process_killed_while_mending_left_is_no_hindrance(directory: Path, database: Path) -> None:
    (directory / "new").mkdir()
    (directory / "new" / "cache.db").write_bytes(b"half a file")
    destroy(database, 1)
    assert mended(directory) == (ROWS, len(ROWS))
    assert not (directory / "new").exists()


def test_value_files_survive(directory: Path, database: Path) -> None:
    files = {path: path.read_bytes() for path in directory.glob("??/??/*.val")}
    assert len(files) == 5
    destroy(database, 1)
    found, _ = mended(directory)
    assert {path: path.read_bytes() for path in directory.glob("??/??/*.val")} == files
    assert {key for key in found if key.startswith("large")} == {f"large {n}" for n in range(5)}


def test_a_row_without_its_value_file_is_not_counted_as_saved(directory: Path, database: Path) -> None:
    next(directory.glob("??/??/*.val")).unlink()
    destroy(database, 1)
    found, saved = mended(directory)
    assert len(found) == saved == len(ROWS) - 1


def test_a_pickle_is_not_saved(directory: Path, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE Cache SET mode = 4 WHERE key = '7'")
    destroy(database, 1)
    found, saved = mended(directory)
    assert len(found) == saved == len(ROWS) - 1
    assert "7" not in found


class TestSeveralProcesses:
    READ = """
    async def main():
        store = opened()
        say("open")
        sys.stdin.readline()
        found = sum(store.get(f"{n}") is not None for n in range(500))
        await store.put({f"from {sys.argv[2]}": found})
        say(found)
        sys.stdin.readline()
        store.close()
    asyncio.run(main())
    """

    def test_those_that_open_a_damaged_file_at_once_mend_it_once(self, directory: Path, database: Path) -> None:
        destroy(database, 1)
        body = "store = opened(); say(len(list(store.entries()))); store.close()"
        said = [finish(process) for process in [start(directory, body) for _ in range(6)]]
        assert [lines[-1] for lines in said] == [f"{len(ROWS)}"] * 6
        assert sum(line.startswith("warned") for lines in said for line in lines) == 1
        assert len(set_aside(directory)) == 1

    def test_those_that_read_a_damaged_page_at_once_mend_it_once(self, directory: Path, database: Path) -> None:
        page = pages_of(database, "Cache", "leaf")[7]
        kept = sum(page not in pages for key, pages in keys_by_page(database).items() if not key.startswith("large"))
        destroy(database, page)
        processes = [start(directory, self.READ, str(n)) for n in range(4)]
        for process in processes:
            assert line(process) == "open"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [finish(process) for process in processes]
        assert [lines[-1] for lines in said] == [f"{kept}"] * 4
        assert sum(line.startswith("warned") for lines in said for line in lines) == 1
        assert len(set_aside(directory)) == 1
        with closing(opened(directory)) as store:
            assert [store.get(f"from {n}") for n in range(4)] == [kept] * 4

    def test_one_that_has_the_old_file_open_writes_into_the_new_one(self, directory: Path, database: Path) -> None:
        key = destroy_a_leaf(database)
        body = """
        async def main():
            store = opened()
            await store.put({"before": 1})
            assert await store.claim("mine")
            say("open")
            sys.stdin.readline()
            await store.settle("mine", {"mine": "paid"})
            say(store.get("mine"), store.get("before"), store.get("by the other"))
            store.close()
        asyncio.run(main())
        """
        process = start(directory, body)
        assert line(process) == "open"
        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store:
            assert store.get(key) is None
            assert len(warnings) == 1
            assert not asyncio.run(store.claim("mine"))
            asyncio.run(store.put({"by the other": 2}))
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            # The end of this process closes the old file, which must not touch the WAL of the new one.
            assert finish(process) == ["paid 1 2"]
            assert store.get("mine") == "paid"
            assert asyncio.run(store.claim("mine"))
            asyncio.run(store.put({"still": "here"}))
        with closing(opened(directory)) as store:
            assert [store.get(key) for key in ("before", "mine", "by the other", "still")] == [1, "paid", 2, "here"]
        (aside,) = set_aside(directory)
        assert query(aside, "SELECT value FROM Cache WHERE key = 'before'") == [("1",)]
        assert query(aside, "SELECT value FROM Cache WHERE key = 'mine'") == []

    def test_no_row_is_lost_between_two_files(self, directory: Path, database: Path) -> None:
        write = """
        async def main():
            store, me = opened(), sys.argv[2]
            say("open")
            sys.stdin.readline()
            for first in range(0, 600, 6):
                await asyncio.gather(*(store.put({f"{me}-{n}": n}) for n in range(first, first + 6)))
                assert all(store.get(f"{me}-{n}") == n for n in range(first + 6))
            store.close()
        asyncio.run(main())
        """
        replace = """
        from pytest_rubrics.calls.database import Database
        database = Database(directory, warn=lambda sentence: None)
        for _ in range(12):
            time.sleep(0.05)
            database.mend(database.identity(), RuntimeError("on purpose"))
        """
        writers = [start(directory, write, f"{n}") for n in range(3)]
        assert [line(writer) for writer in writers] == ["open"] * 3
        replacer = start(directory, replace)
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for process in [*writers, replacer]:
            assert finish(process) == []
        assert len(set_aside(directory)) == 12
        with closing(opened(directory)) as store:
            assert dict(store.entries()) == ROWS | {f"{me}-{n}": n for me in range(3) for n in range(600)}

    def test_claims_of_the_living_outlive_the_file(self, directory: Path, database: Path) -> None:
        key = destroy_a_leaf(database)
        keys = [f"claimed {n}" for n in range(20)]

        async def main() -> list[bool]:
            assert all([await store.claim(key) for key in keys])
            assert store.get(key) is None  # this mends the file
            return [await other.claim(key) for key in keys]

        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store, closing(opened(directory)) as other:
            assert asyncio.run(main()) == [False] * 20
        assert len(warnings) == 1

    def test_claims_that_were_lost_with_their_page_are_made_again(self, directory: Path, database: Path) -> None:
        key = destroy_a_leaf(database)
        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store, closing(opened(directory)) as other:
            assert asyncio.run(store.claim("mine"))
            query(database, "DELETE FROM Cache WHERE key = 'claim:mine'")
            assert store.get(key) is None  # this mends the file
            asyncio.run(store.put({"next": 1}))
            assert not asyncio.run(other.claim("mine"))
        assert len(warnings) == 1

    def test_claims_given_back_do_not_come_up_again(self, directory: Path, database: Path) -> None:
        key = destroy_a_leaf(database)
        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store, closing(opened(directory)) as other:
            assert asyncio.run(store.claim("given back"))
            ((claim,),) = query(database, "SELECT value FROM Cache WHERE key = 'claim:given back'")
            asyncio.run(store.release("given back"))
            # As a page that was freed may show it.
            query(
                database,
                "INSERT INTO Cache(key, raw, store_time, mode, value) VALUES ('claim:given back', 1, 0.5, 1, ?)",
                claim,
            )
            assert not asyncio.run(other.claim("given back"))
            assert store.get(key) is None  # this mends the file
            asyncio.run(store.put({"next": 1}))
            assert asyncio.run(other.claim("given back"))
        assert len(warnings) == 1


def test_a_file_that_somebody_else_has_mended_is_left_alone(directory: Path) -> None:
    warnings: list[str] = []
    database = Database(directory, warnings.append)
    seen = database.identity()
    database.mend(seen, RuntimeError("on purpose"))
    database.mend(seen, RuntimeError("seen at the same moment"))
    assert len(warnings) == len(set_aside(directory)) == 1


@pytest.mark.parametrize("times", [(1, 3, 2), (3, 2, 1)], ids=str)
def test_of_two_versions_of_a_row_the_newer_is_saved(
    directory: Path, database: Path, monkeypatch: pytest.MonkeyPatch, times: tuple[int, ...]
) -> None:
    # Freed pages show older versions, but not where SQLite was built to wipe them.
    found = [Row("key", 1, float(time), 0, 1, None, f'"version {time}"') for time in times]
    monkeypatch.setattr(salvage, "rows", lambda _: found)
    destroy(database, 1)
    assert mended(directory) == ({"key": "version 3"}, 1)


def destroy_a_leaf(database: Path) -> str:
    """Destroy a page that is only read when one of its rows is; gives the key of one."""
    page = pages_of(database, "Cache", "leaf")[7]
    key = next(key for key, pages in keys_by_page(database).items() if page in pages)
    destroy(database, page)
    return key


def query(database: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()
