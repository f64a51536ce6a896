from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.grades import Grade
from pytest_rubrics.latencies import FILE, Latencies, Observed
from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys, question

KEYS = keys(4)


def seen(model: str, seconds: dict[str, float], *, cached: bool = False) -> Observed:
    observed = Observed()
    for task, took in seconds.items():
        observed.note(
            Grade(
                benchmark="b", task_id=task, key=task, subset="s", model=model, track="vanilla", judge="j", repeat=1,
                state="scored", seconds={"answer": took, "judge": 5.0}, cached={"answer": cached, "judge": cached},
            )
        )  # fmt: skip
    return observed


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Provider(answer_bytes=200) as server:
        yield Workspace(tmp_path, server, KEYS)


class TestExpected:
    def test_what_a_model_took_is_what_it_is_expected_to_take(self) -> None:
        known = Latencies({"b/m": {"t1": 10.0, "t2": 30.0}, "b/other": {"t1": 500.0}})
        assert known.expected("b", "m") == {"t1": 10.0, "t2": 30.0}

    def test_tasks_that_only_others_had_are_scaled_to_the_models_own_pace(self) -> None:
        known = Latencies({"b/m": {"t1": 10.0, "t2": 30.0}, "b/other": {"t1": 1.0, "t2": 2.0, "t3": 6.0}})
        assert known.expected("b", "m")["t3"] == pytest.approx(20 * 6 / 2)

    def test_a_new_model_is_expected_to_be_as_the_others(self) -> None:
        known = Latencies({"b/x": {"t1": 1.0, "t2": 2.0, "t3": 3.0}, "b/y": {"t1": 30.0, "t2": 20.0, "t3": 10.0}})
        expected = known.expected("b", "new")
        assert expected == pytest.approx({"t1": 11 * (0.5 + 1.5) / 2, "t2": 11.0, "t3": 11 * (1.5 + 0.5) / 2})

    def test_other_benchmarks_tell_nothing(self) -> None:
        assert Latencies({"other/m": {"t1": 1.0}}).expected("b", "m") == {}
        assert Latencies().expected("b", "m") == {}


class TestFile:
    def test_what_is_saved_is_read(self, tmp_path: Path) -> None:
        seen("m", {"t1": 3.0, "t2": 4.0}).save(tmp_path)
        seen("m", {"t1": 5.0}).save(tmp_path)
        assert Latencies.read(tmp_path).tables == {"b/m": {"t1": 4.0, "t2": 4.0}}
        assert [path.name for path in tmp_path.iterdir()] == [FILE]

    def test_a_replay_tells_only_of_what_is_unknown(self, tmp_path: Path) -> None:
        seen("m", {"t1": 3.0}).save(tmp_path)
        before = (tmp_path / FILE).stat()
        seen("m", {"t1": 9.0}, cached=True).save(tmp_path)
        assert (tmp_path / FILE).stat() == before
        seen("m", {"t1": 9.0, "t2": 7.0}, cached=True).save(tmp_path)
        assert Latencies.read(tmp_path).tables == {"b/m": {"t1": 3.0, "t2": 7.0}}

    def test_ready_answers_take_no_time_and_are_not_kept(self, tmp_path: Path) -> None:
        seen("m", {"t1": 0.0}).save(tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"b/m": [1]}', '{"b/m": {"t": "long"}}', '{"b/m": null}', "\0"])
    def test_a_damaged_file_is_as_good_as_none_and_is_replaced(self, tmp_path: Path, text: str) -> None:
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        assert Latencies.read(tmp_path).tables == {}
        seen("m", {"t1": 3.0}).save(tmp_path)
        assert Latencies.read(tmp_path).tables == {"b/m": {"t1": 3.0}}

    def test_a_folder_that_is_gone_is_no_error(self, tmp_path: Path) -> None:
        seen("m", {"t1": 3.0}).save(tmp_path / "gone")

    def test_the_model_that_ran_longest_ago_is_forgotten_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_rubrics.latencies.KEPT", 4)
        for model in ("a", "b", "a", "c"):
            seen(model, {"t1": 1.0, "t2": 2.0}).save(tmp_path)
        assert list(Latencies.read(tmp_path).tables) == ["b/a", "b/c"]


def test_a_run_begins_with_what_took_longest_in_an_earlier_one(workspace: Workspace) -> None:
    workspace.server.faults.add(Fault(faults.slow(1), kind="answer", match=question(KEYS[2])))
    first = workspace.pytest()
    table = json.loads((workspace.cache / FILE).read_text(encoding="utf-8"))
    assert table == {"one_million_bench/local": {r["task_id"]: r["seconds"]["answer"] for r in first.records}}
    workspace.server.faults.clear()
    before = workspace.server.count()
    again = workspace.pytest("--cache-mode", "refresh", "--concurrency", "1", run="again")
    assert again.records[0]["key"] == KEYS[2]
    assert question(KEYS[2]) in str(workspace.server.requests[before].body)
    workspace.pytest("-x", "--cache-mode", "refresh", "--concurrency", "1", run="in order")
    assert question(KEYS[0]) in str(workspace.server.requests[before + 2 * len(KEYS)].body)
