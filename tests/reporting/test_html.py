"""The page in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rubrics.rebuilding import open_run
from pytest_rubrics.reporting import html
from pytest_rubrics.reporting.files import write_reports
from tests.support.browser import accessibility_faults, browser, tab
from tests.support.elements import Elements
from tests.support.runs import HOSTILE, Kind, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ("", "tasks", "compare", "settings")


def build(*folders: Path, into: Path | None = None) -> str:
    """Write the page of runs and return its address."""
    made = [(open_run(folder), json.loads((folder / "summary.json").read_text(encoding="utf-8"))) for folder in folders]
    return write_reports(made, into or folders[0])[0].as_uri()


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four models, two answers each."""
    folder = tmp_path_factory.mktemp("runs") / "ordinary"
    return build(write_run(folder, tasks=24, models=("alpha", "beta", "gamma", "delta"), repeats=2))


@pytest.fixture(scope="module")
def by_two_judges(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs: the same answers of four models, two each, judged by two judges."""
    root = tmp_path_factory.mktemp("runs")
    models = ("alpha", "beta", "gamma", "a-model-with-quite-a-long-name-2026-10-01")
    folders = [
        write_run(root / judge, tasks=12, models=models, repeats=2, judge=judge, seed=n)
        for n, judge in enumerate(("ann", "bob"))
    ]
    return build(*folders, into=root / "both")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hostile texts in every field, killed before it was done."""
    folder = tmp_path_factory.mktemp("runs") / "hostile"
    return build(write_run(folder, tasks=22, kind=Kind(texts=HOSTILE, unfinished=0.2)))


def source_of(address: str) -> str:
    return Path(address.removeprefix("file://")).read_text(encoding="utf-8")


class TestWithoutABrowser:
    def test_nothing_is_loaded_from_elsewhere(self, ordinary: str, hostile: str) -> None:
        for address in (ordinary, hostile):
            elements = Elements(source_of(address)).found
            assert not [element for element in elements if "src" in element[1]]
            assert [attributes["href"] for _, attributes in elements if "href" in attributes] == ["data:,", "#main"]
            assert ["default-src 'none'" in (a["content"] or "") for _, a in elements if "http-equiv" in a] == [True]

    def test_a_text_cannot_end_its_block(self, ordinary: str, hostile: str) -> None:
        names = [
            [name for name, _ in Elements(source_of(address)).found if name != "script"]
            for address in (ordinary, hostile)
        ]
        assert names[0] == names[1]

    def test_four_hundred_tasks_stay_small(self, tmp_path: Path) -> None:
        address = build(write_run(tmp_path / "run", tasks=400, models=("alpha",), kind=Kind(paragraphs=1)))
        source = source_of(address)
        texts = sum(map(len, re.findall(r'<script type="text/plain".*?</script>', source, re.DOTALL)))
        assert len(source) - texts < 3_000_000

    def test_above_a_size_texts_are_files_and_go_when_they_fit_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_run(tmp_path / "run")
        monkeypatch.setattr(html, "INSIDE_UP_TO", 0)
        build(folder)
        assert (folder / "report_data" / "0.js").is_file()
        monkeypatch.undo()
        build(folder)
        assert not (folder / "report_data").exists()

    def test_a_number_that_json_does_not_know_is_none(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run", tasks=1, models=("alpha",))
        path = folder / "results.jsonl"
        record = {**json.loads(path.read_text(encoding="utf-8")), "metrics": {"expert_score": float("nan")}}
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
        block = re.findall(r'id="data">(.*?)</script>', source_of(build(folder)))[0]
        assert json.loads(block)["grades"][0][5] is None

    def test_a_failure_while_writing_leaves_the_former_page(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_run(tmp_path / "run")
        before = source_of(build(folder))
        monkeypatch.setattr(html, "to_html", lambda text: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(folder)
        assert (folder / "report.html").read_text(encoding="utf-8") == before
        assert not list(folder.glob("*.part"))


class TestInABrowser:
    @pytest.mark.parametrize("page", PAGES)
    @pytest.mark.parametrize("width", [360, 800, 1400])
    def test_every_page_fits_every_width_without_errors(
        self, chrome: Browser, ordinary: str, page: str, width: int
    ) -> None:
        settings = {"viewport": {"width": width, "height": 800}}
        with tab(chrome, f"{ordinary}#/{page}", **settings) as (shown, wrong):
            assert shown.evaluate("document.documentElement.scrollWidth") == width
            assert shown.inner_text("h1")
            assert wrong == []

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing_serious(self, chrome: Browser, ordinary: str, scheme: str) -> None:
        for page in PAGES:
            with tab(chrome, f"{ordinary}#/{page}", color_scheme=scheme) as (shown, _):
                assert accessibility_faults(shown) == []
                if page == "tasks":
                    shown.click("table.tasks tbody a")
                    shown.wait_for_selector(".criteria")
                    assert accessibility_faults(shown) == []

    def test_hostile_texts_stay_texts(self, chrome: Browser, hostile: str) -> None:
        with tab(chrome, f"{hostile}#/tasks") as (shown, wrong):
            links = [link.get_attribute("href") for link in shown.query_selector_all("table.tasks tbody a")]
            assert len(links) == 22
            seen = ""
            for link in links:
                shown.evaluate("address => { location.hash = address; }", link)
                shown.wait_for_function(
                    "address => document.querySelector('h1')?.textContent && location.hash === address"
                    " && document.querySelector('.criteria')",
                    arg=link,
                )
                seen += shown.inner_text("main")
                assert shown.query_selector_all("main script, main img, main iframe, main style") == []
                assert shown.query_selector_all("main a[href^='javascript']") == []
            assert shown.evaluate("typeof window.hacked") == "undefined"
            assert "<script>window.hacked = 1</script>" in seen
            assert "U+202E" in seen
            assert wrong == []

    def test_a_run_that_was_killed_says_so(self, chrome: Browser, hostile: str) -> None:
        with tab(chrome, hostile) as (shown, _):
            assert "selected grades have no record" in shown.inner_text(".notes")

    def test_a_task_shows_missed_weight_first(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, f"{ordinary}#/tasks?state=below") as (shown, _):
            shown.click("table.tasks tbody a")
            shown.wait_for_selector(".criteria")
            lost = [float(text.split()[0]) for text in shown.locator(".criteria .lost").all_inner_texts()]
            assert lost
            assert lost == sorted(lost, reverse=True)
            first = shown.locator(".criterion").first.inner_text()
            assert "The answer names it" in first or "答案" in first
            assert shown.locator(".rich table").count() == 1  # of the answer's Markdown

    def test_filters_are_in_the_address(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, f"{ordinary}#/tasks") as (shown, _):
            shown.select_option("select >> nth=1", "cn_law")
            rows = shown.locator("table.tasks tbody tr").count()
            assert rows == 4
            address = shown.url
        with tab(chrome, address) as (shown, _):
            assert shown.locator("table.tasks tbody tr").count() == rows
            shown.fill("input[type=search]", "no such words")
            shown.wait_for_selector("text=No task fits these filters.")

    def test_a_search_can_reach_into_answers(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, f"{ordinary}#/tasks?q=conclusion+12&deep=1") as (shown, _):
            shown.wait_for_function("document.querySelectorAll('table.tasks tbody tr').length === 1")
            assert shown.inner_text("table.tasks tbody a") == "1012"

    def test_the_table_sorts_from_the_keyboard(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, f"{ordinary}#/tasks?column=0") as (shown, _):
            shown.get_by_role("button", name="alpha").focus()
            shown.keyboard.press("Enter")
            scores = [text.split()[0] for text in shown.locator("table.tasks td.mark").all_inner_texts()]
            numbers = [float(score) for score in scores if score != "–"]
            assert numbers == sorted(numbers)
            assert shown.get_attribute("th[aria-sort]", "aria-sort") == "ascending"
            shown.keyboard.press("Enter")
            assert shown.get_attribute("th[aria-sort]", "aria-sort") == "descending"

    def test_the_keyboard_reaches_the_content(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, ordinary) as (shown, _):
            shown.keyboard.press("Tab")
            assert shown.evaluate("document.activeElement.id") == "skip"
            shown.keyboard.press("Tab")
            assert shown.evaluate("document.activeElement.textContent") == "Overview"

    def test_the_language_and_theme_are_remembered(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, ordinary) as (shown, wrong):
            shown.click("#language")
            assert shown.inner_text("nav a >> nth=0") == "概览"
            assert shown.get_attribute("html", "lang") == "zh-CN"
            shown.click("#theme")
            shown.click("#theme")
            shown.reload()
            shown.wait_for_selector("footer")
            assert shown.inner_text("nav a >> nth=0") == "概览"
            assert shown.get_attribute("html", "data-theme") == "dark"
            assert wrong == []

    def test_no_word_is_missing_in_chinese(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, f"{ordinary}#/tasks", locale="zh-CN") as (shown, _):
            words = shown.evaluate("Object.keys(WORDS.en).filter((key) => !(key in WORDS.zh))")
            assert words == []
            assert shown.inner_text("h1") == "任务"

    def test_runs_side_by_side_show_flips(self, chrome: Browser, tmp_path: Path) -> None:
        folders = [write_run(tmp_path / name, models=("alpha",), tasks=30, seed=n) for n, name in enumerate("ab")]
        address = build(*folders, into=tmp_path / "both")
        with tab(chrome, f"{address}#/compare") as (shown, wrong):
            text = shown.inner_text("main")
            assert "Tasks that crossed the pass mark" in text
            assert shown.locator("main table >> nth=1").locator("tbody tr").count() > 0
            assert wrong == []

    @pytest.mark.parametrize("width", [390, 900, 1440])
    def test_four_models_by_two_judges(self, chrome: Browser, by_two_judges: str, width: int) -> None:
        settings = {"viewport": {"width": width, "height": 900}}
        with tab(chrome, by_two_judges, **settings) as (shown, wrong):
            assert shown.evaluate("document.documentElement.scrollWidth") == width
            assert shown.locator("table.models").first.locator("tbody tr").count() == 8
            # The six pairs of models under each judge, and the two judges of each model.
            assert shown.locator("table.pairs tbody tr").count() == 16
            assert shown.get_by_role("heading", name="Agreement of the judges").count() == 1
            shown.click("nav a >> nth=1")
            shown.click("table.tasks tbody a")
            shown.wait_for_selector(".criteria")
            assert shown.evaluate("document.documentElement.scrollWidth") == width
            assert shown.locator("table.grades tbody tr").count() == 8
            assert shown.locator("table.grades thead th").all_inner_texts() == ["Model", "Repeat 1", "Repeat 2"]
            badges = shown.locator(".criterion >> nth=0").locator(".justification .badge").all_inner_texts()
            assert [text.split()[1] for text in badges] == ["ann", "bob"]
            assert accessibility_faults(shown) == []
            assert wrong == []

    def test_texts_in_files_open_from_disk(
        self, chrome: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(html, "INSIDE_UP_TO", 0)
        address = build(write_run(tmp_path / "run"))
        with tab(chrome, f"{address}#/tasks") as (shown, wrong):
            shown.click("table.tasks tbody a")
            shown.wait_for_selector(".criteria")
            assert wrong == []

    def test_an_unknown_task_is_no_error(self, chrome: Browser, ordinary: str) -> None:
        with tab(chrome, f"{ordinary}#/task/x/%E0%A4%A") as (shown, wrong):
            assert "There is no such task" in shown.inner_text("main")
            assert wrong == []
