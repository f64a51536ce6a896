"""What a pytest user selects is what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.provider import Provider
from tests.support.shared import shared_data
from tests.support.workspaces import MODULE, Workspace, keys

Collected = Callable[..., list[str]]


@pytest.fixture
def sample(pytester: pytest.Pytester) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(pytester.path, server)


@pytest.fixture
def collected(pytester: pytest.Pytester) -> Collected:
    """Ids in brackets that pytest collects."""

    def collect(*arguments: str) -> list[str]:
        lines = pytester.runpytest_inprocess("--collect-only", "-q", *arguments).outlines
        return [line[line.index("[") + 1 : -1] for line in lines if "::test_task[" in line]

    return collect


def test_the_sample_has_two_tasks_for_each_of_ten_subsets(sample: Workspace, collected: Collected) -> None:
    ids = collected()
    assert len(ids) == 20
    assert all(id_.isascii() and id_.startswith("local-") for id_ in ids)
    assert ids == collected()  # the order is fixed


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["-k", "cn_law"], 2),
        (["-m", "cn_law"], 2),
        (["-m", "law and cn"], 2),
        (["-m", "law"], 4),
        (["-m", "global"], 10),
        (["-k", "法律"], 2),
        (["-k", "医疗健康 or 工业"], 4),
        (["-k", "cn_law", "--limit", "1"], 1),
        (["--limit", "1"], 10),
        (["--limit", "1", "--repeats", "3"], 30),
    ],
)
def test_keywords_markers_and_limits_select(
    sample: Workspace, collected: Collected, arguments: list[str], count: int
) -> None:
    assert len(collected(*arguments)) == count


def test_one_task_is_selected_by_its_key_and_bracket(sample: Workspace, collected: Collected) -> None:
    first = collected("-k", "cn_law")[0]
    assert collected("-k", f"{first.removeprefix('local-')}]") == [first]


def test_collecting_calls_nothing_and_leaves_no_run_folder(sample: Workspace, collected: Collected) -> None:
    for option in ("--collect-only", "--setup-plan"):
        assert sample.pytest(option).code == 0
    assert sample.server.count() == 0
    assert not (sample.root / "run").exists()
    assert not sample.cache.exists()


def test_only_what_is_selected_is_called(sample: Workspace, collected: Collected) -> None:
    outcome = sample.pytest("-m", "cn_law")
    assert sample.server.count("answer") == sample.server.count("judge") == 2
    assert {record["subset"] for record in outcome.records} == {"cn_law"}


def test_last_failed_runs_what_failed_from_the_cache(tmp_path: Path) -> None:
    with Provider(truth=lambda body: {"1": "<t000>" in str(body), "3": True, "7": False}) as server:
        workspace = Workspace(tmp_path, server, keys(4))
        assert workspace.pytest().code == 1
        before = server.count()
        again = workspace.pytest("--lf", run="again")
        assert {record["key"] for record in again.records} == {"t001", "t002", "t003"}
        assert server.count() == before


def test_a_node_id_selects_one_task(sample: Workspace, collected: Collected) -> None:
    first = collected("-k", "global_industry")[0]
    outcome = sample.pytest(f"{MODULE}::test_task[{first}]")
    assert len(outcome.records) == 1


def test_two_models_and_repeats_have_ids_of_their_own(sample: Workspace, collected: Collected) -> None:
    sample.model("other")
    ids = collected("--model", "local", "--model", "other", "--repeats", "2", "-k", "cn_law", "--limit", "1")
    stems = {id_.removesuffix("-r2") for id_ in ids}
    assert len(ids) == 4
    assert {stem.split("-")[0] for stem in stems} == {"local", "other"}
    assert sum(id_.endswith("-r2") for id_ in ids) == 2


def test_shards_split_the_tasks_and_a_limit_comes_first(sample: Workspace, collected: Collected) -> None:
    parts = [collected("--limit", "1", "--shard", f"{number}/3") for number in (1, 2, 3)]
    assert sorted(id_ for part in parts for id_ in part) == sorted(collected("--limit", "1"))


def test_an_unknown_marker_selects_nothing(sample: Workspace, collected: Collected) -> None:
    outcome = sample.pytest("-m", "cn_lwa")
    assert outcome.code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert sample.server.count() == 0


def test_subsets_are_markers_that_strict_markers_knows(sample: Workspace, collected: Collected) -> None:
    assert sample.pytest("--strict-markers", "--collect-only", "-q").code == 0
    assert "cn_law" in sample.pytest("--markers").text


def test_the_published_data_give_forty_tasks_a_subset(sample: Workspace, collected: Collected) -> None:
    source = [f"--source={shared_data() / 'one_million_bench'}"]
    assert len(collected(*source)) == 400
    assert len(collected(*source, "-k", "法律")) == 40
    assert len(collected(*source, "-m", "law and cn")) == 40
    assert collected(*source, "-k", "global_economics_and_finance-1663]") == ["local-global_economics_and_finance-1663"]
