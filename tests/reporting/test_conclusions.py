from __future__ import annotations

import json
from pathlib import Path

from pytest_rubrics.rebuilding import open_run
from pytest_rubrics.reporting.conclusions import conclusions
from pytest_rubrics.reporting.report_data import Page, RunView
from tests.support.runs import BENCHMARK, Kind, write_run


def said(*folders: Path, language: str = "en") -> dict[str, list[str]]:
    """The sentences about some runs, by topic."""
    views = [RunView(open_run(f), json.loads((f / "summary.json").read_text(encoding="utf-8"))) for f in folders]
    found: dict[str, list[str]] = {}
    for row in conclusions(Page(views), BENCHMARK):
        found.setdefault(row.topic, []).append(row.text[language])  # type: ignore[index]
    return found


def test_a_model_is_ahead_only_if_it_can_be_told(tmp_path: Path) -> None:
    clear = write_run(tmp_path / "clear", tasks=60, models=("alpha", "beta", "gamma", "delta"))
    page = Page([RunView(open_run(clear), {})])
    who = said(clear)["who"]
    assert [text.split(":")[0] for text in who] == ["global", "cn"]
    for track, text in zip(("global", "cn"), who, strict=True):
        means = {name: page.part(name)["tracks"][track]["mean"]["value"] for name in page.columns}
        first = max(means, key=lambda name: means[name])
        assert f"{track}: {first.model} " in text
        level = [
            other.model
            for other in page.columns
            if other != first
            for part in page.differences(other, first)
            if part["track"] == track and part["p"] * 6 >= 0.05
        ]
        assert ("is ahead" in text) == (not level)
        assert all(model in text for model in level)
    few = said(write_run(tmp_path / "few", tasks=6, models=("alpha", "beta")))
    assert all("no difference to" in text for text in few["who"])
    assert "so few tasks (3)" in few["trust"][0]


def test_a_model_alone_has_its_mean_and_passes(tmp_path: Path) -> None:
    who = said(write_run(tmp_path / "run", tasks=30, models=("alpha",)))["who"]
    assert all("alpha has a mean of 0." in text and "and passes" in text for text in who)


def test_judges_of_two_runs_are_set_beside_each_other(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / judge, tasks=30, judge=judge, seed=n) for n, judge in enumerate(("ann", "bob"))]
    found = said(*folders)
    assert [text.split(": ")[0] for text in found["who"]] == [
        "global, judged by ann",
        "global, judged by bob",
        "cn, judged by ann",
        "cn, judged by bob",
    ]
    assert any("same order" in text for text in found["trust"])
    assert any("of the criteria alike; Krippendorff's alpha 0." in text for text in found["trust"])


def test_two_runs_of_a_model_say_what_changed(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, tasks=40, models=("alpha",), seed=n) for n, name in enumerate(("old", "new"))]
    page = Page([RunView(open_run(folder), {}) for folder in folders])
    found = said(*folders)
    assert "who" not in found
    assert len(found["change"]) == 2
    for part, text in zip(page.differences(*page.columns), found["change"], strict=True):
        assert text.startswith(f"{part['track']}: ")
        assert f"{part['value']:+.3f} (" in text
        assert ("may be chance" in text) == (part["p"] >= 0.05)
        assert (" is better in new than in old, by +" in text) == (part["p"] < 0.05 and part["value"] > 0)


def test_what_changed_is_told_of_each_model_and_who_is_ahead_too(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, tasks=20, seed=n) for n, name in enumerate(("old", "new"))]
    found = said(*folders)
    assert [("alpha" in text, "beta" in text) for text in found["change"]] == [(True, False), (False, True)] * 2
    assert len(found["who"]) == 2
    assert not any("· old" in text for text in found["who"])


def test_every_sentence_is_there_in_both_languages(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", tasks=30)
    english, chinese = said(folder), said(folder, language="zh")
    assert {topic: len(texts) for topic, texts in english.items()} == {t: len(x) for t, x in chinese.items()}
    assert "平均" in chinese["who"][0]


def test_what_was_excluded_is_named_as_a_reason_for_doubt(tmp_path: Path) -> None:
    found = said(write_run(tmp_path / "run", tasks=30, models=("alpha",), kind=Kind(unfinished=0.5)))
    assert "could bring the mean of alpha to between" in found["trust"][0]


def test_a_model_without_a_score_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", tasks=30)
    path = folder / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"model": "alpha"' in line), encoding="utf-8")
    assert "Nothing was scored of beta." in said(folder)["trust"]


def test_a_run_without_a_grade_says_so(tmp_path: Path) -> None:
    found = said(write_run(tmp_path / "run", tasks=6, kind=Kind(unfinished=1.1)))
    assert found["who"] == ["Nothing was scored, most often because of excluded: interrupted."]
    assert found["trust"] == ["0 of 12 grades were made, coverage 0.0%; with so few tasks (3) intervals are wide."]
