from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.describing import Description, describe, render
from pytest_rubrics.sources import Source
from pytest_rubrics.tasks import Criterion, Task
from tests.support.benchmarks import shipped
from tests.support.shared import shared_data

DOMAINS = ["economics_and_finance", "law", "healthcare_and_medicine", "natural_sciences", "industry"]
COLUMNS = [  # as the published table has them
    f"{track}_{domain}" for domain in DOMAINS for track in ("global", "cn")
]


@pytest.fixture(scope="module")
def million() -> Description:
    benchmark = shipped("one_million_bench")
    source = Source(str(shared_data() / "one_million_bench"), Path("unused"))
    return describe(source.load(benchmark).tasks, benchmark.tags)


def test_the_totals_of_one_million_are_the_published_ones(million: Description) -> None:
    whole = million["all"]
    assert whole["tasks"] == 400
    assert whole["languages"] == {"en": 200, "zh": 200}
    assert (whole["clusters"], whole["tasks_in_shared_clusters"]) == (280, 240)
    assert whole["criteria"] == 6758
    assert whole["criteria_per_task"] == {"mean": 16.895, "min": 11, "max": 37}
    assert whole["prompt_characters"] == {"mean": pytest.approx(1470.49, abs=0.005), "min": 105, "max": 15951}
    assert whole["positive_weight"] == {"mean": pytest.approx(78.25, abs=0.005), "min": 47, "max": 146}
    assert whole["negative_weight"] == {"mean": pytest.approx(-27.46, abs=0.005), "min": -85, "max": -2}
    assert whole["negative_per_task"] == {"mean": pytest.approx(4.15, abs=0.005), "min": 1, "max": 8}
    assert million["unknown_tags"] == {}


def test_the_weights_of_one_million_are_the_published_ones(million: Description) -> None:
    published = (
        "-20:74 -18:2 -15:27 -14:3 -12:3 -10:298 -9:9 -8:112 -7:54 -6:106 -5:523 -4:115 -3:273 -2:59 -1:1 "
        "1:23 2:169 3:513 4:448 5:1197 6:760 7:530 8:566 9:113 10:776 12:4"
    )
    counts = dict(pair.split(":") for pair in published.split())
    assert list(million["all"]["weights"].items()) == [(weight, int(count)) for weight, count in counts.items()]


@pytest.mark.parametrize(
    ("subset", "criteria", "fewest", "most", "negative", "positive_weight", "negative_weight", "characters"),
    [
        ("global_economics_and_finance", 757, 15, 30, 4.22, (86.55, 54, 141), -26.20, 1811.0),
        ("cn_economics_and_finance", 750, 13, 37, 4.20, (87.08, 50, 131), -27.73, 555.0),
        ("global_law", 638, 11, 22, 4.20, (79.00, 49, 146), -24.35, 3277.8),
        ("cn_law", 653, 12, 27, 3.85, (78.22, 50, 139), -26.18, 709.5),
        ("global_healthcare_and_medicine", 674, 11, 29, 4.22, (74.55, 50, 114), -27.32, 2030.0),
        ("cn_healthcare_and_medicine", 675, 11, 29, 4.25, (74.50, 50, 114), -27.45, 584.4),
        ("global_natural_sciences", 672, 12, 26, 4.30, (80.65, 47, 124), -30.80, 1634.7),
        ("cn_natural_sciences", 671, 12, 26, 4.28, (80.65, 47, 124), -30.75, 555.8),
        ("global_industry", 634, 12, 31, 3.98, (70.65, 47, 109), -26.90, 2581.2),
        ("cn_industry", 634, 12, 31, 3.98, (70.65, 47, 109), -26.90, 965.6),
    ],
)
def test_the_subsets_of_one_million_are_the_published_ones(
    million: Description,
    subset: str,
    criteria: int,
    fewest: int,
    most: int,
    negative: float,
    positive_weight: tuple[float, int, int],
    negative_weight: float,
    characters: float,
) -> None:
    part = million["subsets"][subset]
    mean, lowest, highest = positive_weight
    assert (part["tasks"], part["criteria"]) == (40, criteria)
    assert (part["criteria_per_task"]["min"], part["criteria_per_task"]["max"]) == (fewest, most)
    assert part["negative_per_task"]["mean"] == pytest.approx(negative, abs=0.0051)
    assert part["positive_weight"] == {"mean": pytest.approx(mean, abs=0.0051), "min": lowest, "max": highest}
    assert part["negative_weight"]["mean"] == pytest.approx(negative_weight, abs=0.0051)
    assert part["prompt_characters"]["mean"] == pytest.approx(characters, abs=0.051)


@pytest.mark.parametrize(
    ("subset", "characters"), [("cn_law", (709.55, 208, 2041)), ("global_law", (3277.78, 404, 15951))]
)
def test_the_prompts_of_law_are_as_long_as_published(
    million: Description, subset: str, characters: tuple[float, int, int]
) -> None:
    mean, shortest, longest = characters
    expected = {"mean": pytest.approx(mean, abs=0.0051), "min": shortest, "max": longest}
    assert million["subsets"][subset]["prompt_characters"] == expected


@pytest.mark.parametrize(
    ("tag", "positive", "negative", "by_subset"),
    [
        ("Analytical Reasoning", 2599, 473, [278, 278, 319, 405, 275, 270, 307, 265, 343, 332]),
        ("Factual Information", 1960, 289, [319, 256, 177, 115, 275, 275, 233, 262, 169, 168]),
        ("Structure and Formatting", 216, 697, [101, 111, 107, 71, 95, 98, 102, 101, 63, 64]),
        ("Instructions Following", 314, 178, [57, 99, 33, 60, 28, 31, 26, 39, 54, 65]),
        ("Others", 10, 22, [2, 6, 2, 2, 1, 1, 4, 4, 5, 5]),
    ],
)
def test_the_tags_of_one_million_are_the_published_ones(
    million: Description, tag: str, positive: int, negative: int, by_subset: list[int]
) -> None:
    assert million["all"]["tags"][tag] == {"positive": positive, "negative": negative}
    assert [sum(million["subsets"][subset]["tags"][tag].values()) for subset in COLUMNS] == by_subset


def test_the_time_sensitivity_of_one_million_is_the_published_one(million: Description) -> None:
    labels = ["Time-agnostic", "Weakly time-sensitive", "Strongly time-sensitive"]
    published = {
        "economics_and_finance": [(6, 11), (27, 27), (7, 2)],
        "law": [(14, 16), (16, 21), (10, 3)],
        "healthcare_and_medicine": [(28, 27), (11, 13), (1, 0)],
        "natural_sciences": [(40, 40), (0, 0), (0, 0)],
        "industry": [(34, 33), (5, 5), (1, 2)],
    }

    def counts(part: dict[str, Any]) -> list[int]:
        return [part["groups"]["time_sensitivity"].get(label, 0) for label in labels]

    for domain, pairs in published.items():
        pair = [counts(million["subsets"][f"{track}_{domain}"]) for track in ("global", "cn")]
        assert list(zip(*pair, strict=True)) == pairs
    assert counts(million["all"]) == [249, 125, 26]


def test_dates_of_one_million_that_are_not_available_are_absent(million: Description) -> None:
    months = million["all"]["groups"]["year_month"]
    assert sum(months.values()) == 400 - 326
    assert min(months) == "1989-09"
    assert max(months) == "2026-06"


def test_the_topics_of_one_million_are_the_published_ones(million: Description) -> None:
    first, second, third = million["all"]["topics"]
    assert (len(first), len(second), len(third)) == (11, 68, 161)
    assert (first["Economics and Finance"], first["Economics & Finance"], first["法律"]) == (39, 1, 40)
    assert million["subsets"]["cn_law"]["topics"][1] == {
        "民事": 11,
        "刑事": 9,
        "公司法/商法": 5,
        "其他": 3,
        "劳动法": 3,
        "监管与合规": 3,
        "知识产权": 3,
        "金融/资本市场": 3,
    }


def test_one_million_as_text_shows_the_main_numbers(million: Description) -> None:
    text = render(million)
    for shown in ["1470.49 (105 to 15951)", "709.55 (208 to 2041)", "3277.78 (404 to 15951)", "6758  16.89 (11 to 37)"]:
        assert shown in text
    assert "year_month: 36 values, 1989-09 to 2026-06, in 74 tasks" in text
    assert "domain " not in text  # the subset says it already


def task(number: int, **changes: Any) -> Task:
    criteria = (Criterion("1", "a", 2.5, "Clear"), Criterion("2", "b", -1, "Odd"), Criterion("3", "c", 4, None))
    values: dict[str, Any] = {"subset": "default", "topics": ("x",), "groups": {"depth": f"d{number % 2}"}, **changes}
    return Task("own", str(number), str(number), language="en", prompt="é" * number, criteria=criteria, **values)


def test_a_description_is_plain_data() -> None:
    described = describe([task(1), task(2, topics=())])
    assert json.loads(json.dumps(described)) == described
    assert described["all"]["prompt_characters"] == {"mean": 1.5, "min": 1, "max": 2}
    assert described["all"]["weights"] == {"-1": 2, "2.5": 2, "4": 2}
    assert described["all"]["tags"] == {"Clear": {"positive": 2, "negative": 0}, "Odd": {"positive": 0, "negative": 2}}


def test_tags_that_the_benchmark_does_not_name_are_listed() -> None:
    described = describe([task(1), task(2)], ["Clear"])
    assert described["unknown_tags"] == {"Odd": 2}
    assert "kept as they are: Odd (2)" in render(described)


def test_groups_of_one_subset_are_counted() -> None:
    text = render(describe([task(1), task(2), task(3)]))
    assert [" ".join(line.split()) for line in text.splitlines() if line.startswith("d")] == [
        "default 3 en 1 2.00 (1 to 3)",
        "default 9 3.00 (3 to 3) 1.00 (1 to 1) 6.50 (6.5 to 6.5) -1.00 (-1 to -1)",
        "depth tasks",
        "d1 2",
        "d0 1",
    ]


def test_no_tasks_can_be_described() -> None:
    assert "all" in render(describe([]))
