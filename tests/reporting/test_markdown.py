from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_rubrics.rebuilding import open_run
from pytest_rubrics.reporting.files import write_reports
from pytest_rubrics.reporting.markdown import MOST_BYTES, escape
from tests.support.elements import Elements
from tests.support.runs import HOSTILE, write_run

comrak = pytest.importorskip("comrak")


def report(*folders: Path) -> str:
    made = [(open_run(folder), json.loads((folder / "summary.json").read_text(encoding="utf-8"))) for folder in folders]
    return write_reports(made, folders[0])[1].read_text(encoding="utf-8")


def rendered(text: str) -> Elements:
    """A text as GitHub renders it, raw HTML too."""
    extensions, rendering = comrak.ExtensionOptions(), comrak.RenderOptions()
    rendering.unsafe_ = True
    extensions.table = extensions.autolink = extensions.strikethrough = True
    source = text.encode("utf-8", "replace").decode("utf-8")
    return Elements(comrak.render_markdown(source, extension_options=extensions, render_options=rendering))


def test_the_figures_stand_in_tables(tmp_path: Path) -> None:
    text = report(write_run(tmp_path / "run", tasks=40))
    for words in ("| alpha | global |", "**Excluded and failed**", "**Differences**", "cost of judge"):
        assert words in text


def test_a_gate_comes_first(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["gate"] = {"name": "release", "verdict": "FAIL", "exit_code": 1, "reason": "0.41 is below 0.6"}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert report(folder).splitlines()[:3] == ["## FAIL · run", "", "Gate **release**: 0.41 is below 0.6"]


def test_two_runs_show_what_crossed_the_mark(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, tasks=40, seed=n) for n, name in enumerate("ab")]
    text = report(*folders)
    for model in ("alpha", "beta"):
        assert re.search(rf"\*\*Flips\*\*, {model} · a to {model} · b: \d+ tasks crossed the pass mark", text)


def test_it_begins_with_what_was_found(tmp_path: Path) -> None:
    lines = report(write_run(tmp_path / "run", tasks=40)).splitlines()
    head = lines.index("### one\\_million\\_bench")
    assert lines[head + 2].startswith("- global: alpha ")


def test_it_always_fits_a_comment(tmp_path: Path) -> None:
    models = [f"model-{'x' * 60}-{n}" for n in range(150)]
    text = report(write_run(tmp_path / "run", tasks=6, models=models))
    assert len(text.encode("utf-8")) < MOST_BYTES
    assert "The rest did not fit" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_becomes_markup(text: str) -> None:
    elements = rendered(f"| a | b |\n|---|---|\n| {escape(text)} | x |")
    assert [tag for tag, _ in elements.found] == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]


@pytest.mark.parametrize("text", ["@octocat", "www.example.org", "https://example.org", "*a* _b_ `c` ~~d~~ [e](f)"])
def test_no_mention_no_link_no_emphasis(text: str) -> None:
    assert [tag for tag, _ in rendered(escape(text)).found] == ["p"]
    assert "@octocat" not in escape(text)


def test_it_is_appended_to_the_step_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = tmp_path / "step.md"
    step.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    text = report(write_run(tmp_path / "run"))
    assert step.read_text(encoding="utf-8") == f"before\n{text}\n"
