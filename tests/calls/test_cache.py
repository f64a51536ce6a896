from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.calls.cache import ReplyStore, StoreError, StoreFullError
from tests.support.stores import finish, kill, line, opened, start


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "replies"


@pytest.fixture
def store(directory: Path) -> Iterator[ReplyStore]:
    store = opened(directory)
    yield store
    store.close()


def execute(directory: Path, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Change the file as somebody else would."""
    with closing(sqlite3.connect(directory / "cache.db", isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()


def value_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("??/??/*.val"))


VALUES = [
    {"content": "Schuld und Sühne, 罪与罚\n\0\r\"'\\ \u2028", "usage": {"tokens": 12}, "cost": 0.1, "cut": None},
    ["\ud83d half a pair"],
    "x" * 3_000_000,
    "法" * 40_000,
    10**30,
    "",
    False,
    {},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_comes_back_as_it_was_also_after_reopening(directory: Path, value: Any) -> None:
    store = opened(directory)
    asyncio.run(store.put({"key": value}))
    assert store.get("key") == value
    store.close()
    with closing(opened(directory)) as store:
        assert store.get("key") == value


def test_a_missing_key_gives_none(store: ReplyStore) -> None:
    assert store.get("never stored") is None


def test_any_thread_may_read(store: ReplyStore) -> None:
    asyncio.run(store.put({"key": 1}))
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(store.get("key"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 8


def test_rows_of_one_call_are_stored_together_or_not_at_all(store: ReplyStore, directory: Path) -> None:
    large, newer = "a" * 50_000, "b" * 50_000
    asyncio.run(store.put({"large": large}))
    with pytest.raises(TypeError):
        asyncio.run(store.put({"large": newer, "other": newer, "bad": object()}))  # type: ignore[dict-item]
    assert store.get("large") == large
    assert store.get("other") is None
    assert len(value_files(directory)) == 1


def test_a_row_that_cannot_be_stored_does_not_spoil_others_queued_with_it(store: ReplyStore) -> None:
    async def main() -> list[object]:
        bad = store.put({"bad": object()})  # type: ignore[dict-item]
        return await asyncio.gather(*(store.put({f"{n}": n}) for n in range(50)), bad, return_exceptions=True)

    *good, bad = asyncio.run(main())
    assert good == [None] * 50
    assert isinstance(bad, TypeError)
    assert [store.get(f"{n}") for n in range(50)] == list(range(50))


def test_an_overwritten_value_leaves_no_file_behind(store: ReplyStore, directory: Path) -> None:
    for letter in "abc":
        asyncio.run(store.put({"key": letter * 50_000}))
    assert store.get("key") == "c" * 50_000
    assert len(value_files(directory)) == 1


def test_a_new_folder_is_private_to_its_owner(directory: Path) -> None:
    before = os.umask(0)
    try:
        opened(directory / "deeper").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((directory / "deeper").stat().st_mode) == 0o700


class TestOpening:
    def test_a_file_in_the_place_of_the_folder_is_refused_with_a_fix(self, tmp_path: Path) -> None:
        place = tmp_path / "replies"
        place.write_text("I am a file", encoding="utf-8")
        with pytest.raises(StoreError, match=r"replies cannot be opened: .*--cache-dir"):
            opened(place)

    @pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
    def test_a_folder_that_cannot_be_created_is_refused_with_a_fix(self) -> None:
        with pytest.raises(StoreError, match=r"/proc/replies cannot be opened: .*--cache-dir"):
            opened(Path("/proc/replies"))

    def test_a_read_only_disk_is_refused_with_a_fix(self, small_disk: Path) -> None:
        opened(small_disk / "replies").close()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        with pytest.raises(StoreError, match=r"Read-only file system.*--cache-dir"):
            opened(small_disk / "replies")

    def test_a_path_that_diskcache_would_change_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ELSEWHERE", "x")
        with pytest.raises(StoreError, match="environment variable"):
            opened(tmp_path / "$ELSEWHERE")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_vanishes_is_made_again(self, store: ReplyStore, directory: Path) -> None:
        asyncio.run(store.put({"before": 1}))
        directory.rename(directory.with_name("gone"))
        asyncio.run(store.put({"after": 2}))
        assert store.get("after") == 2
        with closing(opened(directory)) as other:
            assert other.get("after") == 2

    def test_claims_count_again_after_the_folder_vanished(self, store: ReplyStore, directory: Path) -> None:
        async def main() -> None:
            assert await store.claim("key")
            await asyncio.to_thread(directory.rename, directory.with_name("gone"))
            await store.put({"after": 2})
            with closing(opened(directory)) as other:
                assert not await other.claim("key")

        asyncio.run(main())


class TestPickles:
    """A row that somebody else wrote must not run code (CVE-2025-69872)."""

    @pytest.fixture
    def trap(self, tmp_path: Path) -> tuple[bytes, Path]:
        sprung = tmp_path / "sprung"
        command = f"open({str(sprung)!r}, 'w')"
        return f"cbuiltins\nexec\n(V{command}\ntR.".encode(), sprung

    def test_the_trap_works(self, trap: tuple[bytes, Path]) -> None:
        pickle, sprung = trap
        subprocess.run([sys.executable, "-c", f"import pickle; pickle.loads({pickle!r})"], check=True)
        assert sprung.exists()

    @pytest.mark.parametrize("beside", [False, True], ids=["in the row", "in a file"])
    def test_a_pickled_value_is_refused_by_name(
        self, store: ReplyStore, directory: Path, trap: tuple[bytes, Path], beside: bool
    ) -> None:
        pickle, sprung = trap
        filename = "aa/bb/" + "c" * 28 + ".val"
        if beside:
            (directory / filename).parent.mkdir(parents=True)
            (directory / filename).write_bytes(pickle)
        asyncio.run(store.put({"key": "good", "claim:key": "good"}))
        execute(
            directory,
            "UPDATE Cache SET mode = 4, value = ?, filename = ?",
            (None, filename) if beside else (pickle, None),
        )
        with pytest.raises(StoreError, match=r"cache\.db, row with key 'key': refused.*pickle.*delete the row"):
            store.get("key")
        with pytest.raises(StoreError, match="row with key 'key': refused"):
            list(store.entries())
        assert asyncio.run(store.claim("key"))
        assert not sprung.exists()

    def test_a_pickled_key_is_refused_by_its_row(
        self, store: ReplyStore, directory: Path, trap: tuple[bytes, Path]
    ) -> None:
        pickle, sprung = trap
        asyncio.run(store.put({"key": "good"}))
        execute(directory, "UPDATE Cache SET raw = 0, key = ?", (pickle,))
        with pytest.raises(StoreError, match=r"row with rowid 1: refused.*pickle"):
            list(store.entries())
        assert store.get("key") is None
        assert not sprung.exists()

    def test_a_value_file_elsewhere_is_neither_read_nor_removed(
        self, store: ReplyStore, directory: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "precious").write_text('"secret"', encoding="utf-8")
        asyncio.run(store.put({"key": "x" * 50_000}))
        execute(directory, "UPDATE Cache SET filename = '../precious'")
        with pytest.raises(StoreError, match="refused"):
            store.get("key")
        asyncio.run(store.put({"key": "new"}))
        assert store.get("key") == "new"
        assert (tmp_path / "precious").exists()


class TestDamagedValues:
    @pytest.mark.parametrize("content", [b'"cut of', b"", b'"\xff\xfe"'])
    def test_a_damaged_value_file_counts_as_missing_and_warns_once(self, directory: Path, content: bytes) -> None:
        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store:
            asyncio.run(store.put({"key": "x" * 50_000}))
            (file,) = value_files(directory)
            file.write_bytes(content)
            assert store.get("key") is None
            assert store.get("key") is None
            assert list(store.entries()) == []
            asyncio.run(store.put({"key": "asked again"}))
            assert store.get("key") == "asked again"
        assert len(warnings) == 1
        assert "key" in warnings[0]

    def test_text_that_is_not_utf8_counts_as_missing(self, directory: Path) -> None:
        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store:
            asyncio.run(store.put({"key": "x"}))
            execute(directory, "UPDATE Cache SET value = CAST(? AS TEXT)", (b'"\xff"',))
            assert store.get("key") is None
        assert len(warnings) == 1

    def test_a_lost_value_file_counts_as_missing(self, directory: Path) -> None:
        warnings: list[str] = []
        with closing(opened(directory, warnings.append)) as store:
            asyncio.run(store.put({"key": "x" * 50_000}))
            value_files(directory)[0].unlink()
            assert store.get("key") is None
        assert len(warnings) == 1


def test_entries_beyond_the_size_limit_of_diskcache_stay(directory: Path) -> None:
    opened(directory).close()
    execute(directory, "UPDATE Settings SET value = 1 WHERE key = 'size_limit'")
    with closing(opened(directory)) as store:
        for n in range(30):
            asyncio.run(store.put({f"{n}": "x" * 40_000, f"small {n}": n}))
        assert store.stats()["entries"] == 60
    settings = dict(execute(directory, "SELECT key, value FROM Settings"))
    assert settings["size_limit"] == 1
    assert settings["eviction_policy"] == "none"


class TestCounter:
    def test_it_adds_up_to_its_ceiling(self, store: ReplyStore) -> None:
        async def main() -> list[bool]:
            return [await store.add("spent", amount, ceiling=10) for amount in (4, 6, 1, -3, 3)]

        assert asyncio.run(main()) == [True, True, False, True, True]
        assert store.get("spent") == 10

    def test_without_a_ceiling_it_adds_anything(self, store: ReplyStore) -> None:
        assert asyncio.run(store.add("spent", 5))
        assert asyncio.run(store.add("spent", -7))
        assert store.get("spent") == -2

    def test_no_process_passes_a_ceiling_that_all_share(self, store: ReplyStore, directory: Path) -> None:
        body = """
        async def main():
            store = opened()
            added = await asyncio.gather(*(store.add("spent", 1, ceiling=500) for _ in range(200)))
            say(sum(added))
            store.close()
        asyncio.run(main())
        """
        processes = [start(directory, body) for _ in range(4)]
        added = [int(finish(process)[0]) for process in processes]
        assert sum(added) == 500
        assert store.get("spent") == 500


class TestManyProcesses:
    def test_eight_that_create_and_fill_a_store_lose_nothing(self, directory: Path) -> None:
        body = """
        async def main():
            store, me = opened(), sys.argv[2]
            for first in range(0, 2000, 50):
                rows = range(first, first + 50)
                await asyncio.gather(*(store.put({f"{me}-{n}": {"content": f"{me} {n} " * 20}}) for n in rows))
            store.close()
        asyncio.run(main())
        """
        for process in [start(directory, body, str(n)) for n in range(8)]:
            assert finish(process) == []
        expected = {f"{me}-{n}": {"content": f"{me} {n} " * 20} for me in range(8) for n in range(2000)}
        with closing(opened(directory)) as store:
            assert dict(store.entries()) == expected

    def test_every_acknowledged_row_outlives_kill_9(self, directory: Path) -> None:
        body = """
        async def main():
            store, me = opened(), sys.argv[2]
            async def write(n):
                await store.settle(f"{me}-{n}", {f"{me}-{n}": "x" * (100 if n % 7 else 40_000)})
                say(f"{me}-{n}")
            for first in range(0, 10**6, 8):
                await asyncio.gather(*(write(first + n) for n in range(8)))
        asyncio.run(main())
        """
        acknowledged: list[str] = []
        for round_ in range(20):
            process = start(directory, body, str(round_))
            acknowledged += [line(process) for _ in range(20 + 13 * round_)]
            acknowledged += kill(process)
        with closing(opened(directory)) as store:
            lost = [key for key in acknowledged if not isinstance(store.get(key), str)]
        assert len(acknowledged) > 2000
        assert lost == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB, where the user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    with suppress(FileNotFoundError):
        if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
            yield place
            subprocess.run(["umount", "--lazy", str(place)], check=True)
            return
    pytest.skip("this user may not mount a file system")


class TestFullDisk:
    @pytest.mark.parametrize("length", [2_000, 100_000], ids=["rows", "value files"])
    def test_it_is_told_and_what_was_stored_stays_and_writing_goes_on_later(
        self, small_disk: Path, length: int
    ) -> None:
        with closing(opened(small_disk / "replies")) as store:
            stored = asyncio.run(fill(store, length))
            assert stored
            assert all(store.get(key) == key * length for key in stored)
            assert len(value_files(small_disk / "replies")) == (len(stored) if length > 32_768 else 0)
            subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
            asyncio.run(store.put({"later": 1}))
            assert store.get("later") == 1
        with closing(opened(small_disk / "replies")) as store:
            assert all(store.get(key) == key * length for key in stored)

    def test_a_claim_that_could_not_be_given_back_can_be_made_again(self, small_disk: Path) -> None:
        async def main(store: ReplyStore) -> None:
            assert await store.claim("key")
            await fill(store, 2_000)
            with pytest.raises(StoreFullError):
                await store.settle("key", {"key": "x" * 30_000})
            assert not await store.claim("key")
            await store.release("key")
            subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)  # noqa: ASYNC221
            assert await store.claim("key")

        with closing(opened(small_disk / "replies")) as store:
            asyncio.run(main(store))

    def test_a_limit_on_the_size_of_files_is_told_too(self, directory: Path) -> None:
        body = """
        import resource
        store = opened()
        asyncio.run(store.put({"before": 1}))
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        for n in range(1000):
            try:
                asyncio.run(store.put({f"{n}": "x" * 20_000}))
            except StoreFullError as error:
                say(n)
                say(error)
                break
        assert all(store.get(f"{m}") for m in range(n)) and store.get("before") == 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        asyncio.run(store.put({"after": 2}))
        say(store.get("after"))
        store.close()
        """
        stored, error, after = finish(start(directory, body))
        assert int(stored) > 0
        assert "Replies cannot be stored in" in error
        assert "--cache-dir" in error
        assert after == "2"

    def test_what_could_not_be_stored_is_spilled_to_another_disk(self, small_disk: Path) -> None:
        with closing(opened(small_disk / "replies")) as store:
            asyncio.run(fill(store, 2_000))
            path = store.spill({"key": "x" * 3_000_000})
        try:
            assert path.stat().st_dev != small_disk.stat().st_dev
        finally:
            path.unlink()


async def fill(store: ReplyStore, length: int) -> list[str]:
    """Store values until the disk is full; the keys that were stored."""
    stored: list[str] = []
    while True:
        key = chr(0x100 + len(stored))
        try:
            await store.put({key: key * length})
        except StoreFullError:
            return stored
        stored.append(key)


class TestSpilling:
    @pytest.fixture(autouse=True)
    def _shelter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))

    @pytest.fixture
    def spilled(self, store: ReplyStore) -> Iterator[Callable[[dict[str, Any]], Path]]:
        paths: list[Path] = []

        def spill(rows: dict[str, Any]) -> Path:
            paths.append(store.spill(rows))
            return paths[-1]

        yield spill
        for path in paths:
            path.unlink()

    def test_spilled_rows_can_be_imported(self, store: ReplyStore, spilled: Callable[[dict[str, Any]], Path]) -> None:
        rows = {"one": {"content": "line\nfeed\u2028 罪"}, "two": ["\ud83d"], "three": "x" * 100_000}
        path = spilled(rows)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(path.read_bytes().splitlines()) == 3
        assert store.import_spilled(path) == 3
        assert dict(store.entries()) == rows

    def test_a_row_that_was_stored_since_is_kept(
        self, store: ReplyStore, spilled: Callable[[dict[str, Any]], Path]
    ) -> None:
        asyncio.run(store.put({"key": "newer"}))
        assert store.import_spilled(spilled({"key": "older", "other": 1})) == 1
        assert store.get("key") == "newer"
        assert store.get("other") == 1

    def test_a_closed_store_can_still_spill(self, store: ReplyStore, spilled: Callable[[dict[str, Any]], Path]) -> None:
        store.close()
        assert spilled({"key": 1}).read_text(encoding="utf-8") == '{"key":"key","value":1}\n'

    @pytest.mark.parametrize("line", ["no JSON", "[]", '{"key": 1, "value": 2}', '{"key": "k"}'])
    def test_a_line_of_another_kind_is_named_and_nothing_is_stored(
        self, store: ReplyStore, tmp_path: Path, line: str
    ) -> None:
        path = tmp_path / "spilled.jsonl"
        path.write_text(f'{{"key":"good","value":1}}\n{line}\n', encoding="utf-8")
        with pytest.raises(StoreError, match=r"spilled\.jsonl:2: not "):
            store.import_spilled(path)
        assert store.get("good") is None


class TestLookingInside:
    def test_stats_count_entries_and_the_claims_of_the_living(self, store: ReplyStore, directory: Path) -> None:
        assert store.stats() | {"bytes": 0} == {"entries": 0, "bytes": 0, "oldest": None, "newest": None, "claims": 0}
        asyncio.run(store.put({"small": 1, "large": "x" * 100_000}))
        assert asyncio.run(store.claim("mine"))
        assert asyncio.run(store.claim("dead"))
        execute(directory, "UPDATE Cache SET value = replace(value, 'owner', 'former') WHERE key = 'claim:dead'")
        stats = store.stats()
        assert (stats["entries"], stats["claims"]) == (2, 1)
        assert stats["oldest"] is not None
        assert stats["newest"] is not None
        assert stats["oldest"] <= stats["newest"]
        assert stats["bytes"] > 100_000

    def test_entries_give_every_row_but_claims(self, store: ReplyStore) -> None:
        rows: dict[str, Any] = {f"{n}": [n] for n in range(250)}
        asyncio.run(store.put(rows))
        assert asyncio.run(store.claim("key"))
        assert list(store.entries()) == list(rows.items())


class TestClosing:
    def test_what_is_queued_is_written_first(self, directory: Path) -> None:
        async def main() -> None:
            store = opened(directory)
            tasks = [asyncio.create_task(store.put({f"{n}": n})) for n in range(300)]
            await asyncio.sleep(0)
            store.close()
            await asyncio.gather(*tasks)

        asyncio.run(main())
        with closing(opened(directory)) as store:
            assert store.stats()["entries"] == 300

    def test_it_closes_every_connection_and_thread_and_may_be_called_twice(self, directory: Path) -> None:
        async def main(store: ReplyStore) -> None:
            await store.put({"key": 1})
            assert await store.claim("key")
            waiter = asyncio.create_task(store.wait("key"))
            await asyncio.sleep(0.1)
            store.close()
            store.close()
            await waiter

        threads = threading.active_count()
        asyncio.run(main(opened(directory)))
        assert threading.active_count() == threads
        assert open_connections() == []
        assert list((directory / "owners").iterdir()) == []
        assert execute(directory, "SELECT COUNT(*) FROM Cache WHERE key LIKE 'claim:%'") == [(0,)]

    def test_a_closed_store_says_so(self, store: ReplyStore) -> None:
        store.close()
        with pytest.raises(StoreError, match="already closed"):
            store.get("key")
        with pytest.raises(StoreError, match="already closed"):
            asyncio.run(store.put({"key": 1}))
        with pytest.raises(StoreError, match="already closed"):
            asyncio.run(store.claim("key"))


def open_connections() -> list[sqlite3.Connection]:
    connections = [thing for thing in gc.get_objects() if isinstance(thing, sqlite3.Connection)]
    found = []
    for connection in connections:
        with suppress(sqlite3.ProgrammingError):
            connection.total_changes  # noqa: B018
            found.append(connection)
    return found


def test_a_forked_child_is_refused_and_does_its_parent_no_harm(directory: Path) -> None:
    body = """
    async def main():
        store = opened()
        assert await store.claim("key")
        child = os.fork()
        if not child:
            try:
                store.get("key")
            except StoreError as error:
                say(error)
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        await store.settle("key", {"key": "paid"})
        say(store.get("key"))
        store.close()
    asyncio.run(main())
    """
    refusal, value = finish(start(directory, body))
    assert "forked" in refusal
    assert value == "paid"
