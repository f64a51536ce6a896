"""What a page says in sentences before its tables: who is ahead, where, on what, and how far to believe it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from pytest_rubrics.reporting.report_data import ColumnName, Page
from pytest_rubrics.reporting.table import percent, score
from pytest_rubrics.wording import p_words

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
ALPHA = 0.05
_NAMED = 3  # models that a sentence names one by one

_WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "of": "{name}: {rest}",
        "judged": "judged by {judge}",
        "and": ", ",
        "more": "{n} more",
        "alone": "{first} has a mean of {mean}{passes}",
        "passes": " and passes {rate}",
        "ahead": "{first} is ahead, with a mean of {mean}; {second} is next, {difference} behind ({p})",
        "level": "{first} has the highest mean, {mean}, but no difference to {level} can be told",
        "better": "{model} is better in {after} than in {before}, by {difference}",
        "worse": "{model} is worse in {after} than in {before}, by {difference}",
        "unchanged": "{model} differs in {after} from {before} by {difference}, which may be chance",
        "subsets": "{first} is best in {best} and weakest in {worst}",
        "at": "{name} ({value})",
        "overlap": ", but their intervals overlap",
        "tag": "{first} loses most on {worst}, where it gets {share} of the weight",
        "gap": "; it gains most over {second} on {tag}, {points} points",
        "coverage": "{made} of {all} grades were made, coverage {coverage}",
        "bounds": "; what is excluded could bring the mean of {first} to between {low} and {high}",
        "few": "; with so few tasks ({tasks}) intervals are wide",
        "agree": "On the same answers the judges mark {share} of the criteria alike; Krippendorff's alpha {alpha}",
        "range": "{low} to {high}",
        "order": "All judges put the models in the same order",
        "disorder": "The judges do not put the models in the same order",
        "none": "Nothing was scored, most often because of {reason}",
        "nothing": "Nothing was scored",
        "unscored": "Nothing was scored of {names}",
        "interval": "{value} ({low} to {high})",
        "corrected": "{p}, corrected for {n} pairs",
    },
    "zh": {
        "of": "{name}：{rest}",
        "judged": "评审 {judge}",
        "and": "、",
        "more": "另外 {n} 个",
        "alone": "{first} 平均 {mean}{passes}",
        "passes": "，通过率 {rate}",
        "ahead": "{first} 领先，平均 {mean}；第二名 {second} 低 {difference}（{p}）",
        "level": "{first} 平均最高，为 {mean}，但与 {level} 的差异不能确定",
        "better": "{model} 在 {after} 中好于 {before}，差 {difference}",
        "worse": "{model} 在 {after} 中差于 {before}，差 {difference}",
        "unchanged": "{model} 在 {after} 与 {before} 之间相差 {difference}，可能出于偶然",
        "subsets": "{first} 在 {best} 最好，在 {worst} 最弱",
        "at": "{name}（{value}）",
        "overlap": "，但二者区间重叠",
        "tag": "{first} 在“{worst}”失分最多，只得到 {share} 的权重",
        "gap": "；相比 {second}，优势最大的是“{tag}”，{points} 个百分点",
        "coverage": "{all} 个评分中完成 {made} 个，覆盖率 {coverage}",
        "bounds": "；被排除的部分可使 {first} 的平均在 {low} 到 {high} 之间",
        "few": "；只有 {tasks} 个任务，区间较宽",
        "agree": "对同样的回答，各评审在 {share} 的评分点上判定相同；Krippendorff α 为 {alpha}",
        "range": "{low} 至 {high}",
        "order": "各评审给出的模型排序相同",
        "disorder": "各评审给出的模型排序不同",
        "none": "没有任何得分，最常见的原因是 {reason}",
        "nothing": "没有任何得分",
        "unscored": "{names} 没有任何得分",
        "interval": "{value}（{low} 至 {high}）",
        "corrected": "{p}，已按 {n} 对校正",
    },
}


class Conclusion(NamedTuple):
    """One sentence.

    Attributes:
        topic: The question it answers: ``change``, ``who``, ``where``, ``what`` or ``trust``.
        text: The sentence in each language.
    """

    topic: str
    text: dict[Language, str]


class _Standing(NamedTuple):
    """The models that one judge compares in one track, the highest mean first."""

    track: str
    judge: str
    columns: Sequence[ColumnName]

    @property
    def latest(self) -> list[ColumnName]:
        """Those of the last run of each model."""
        last = {name.model: name for name in sorted(self.columns)}
        return [name for name in self.columns if last[name.model] == name]


def conclusions(page: Page, benchmark: str) -> list[Conclusion]:
    """The sentences about one benchmark."""
    columns = [name for name in page.columns if name.benchmark == benchmark]
    found = {language: list(_Writer(page, columns, _WORDS[language]).sentences()) for language in LANGUAGES}
    return [
        Conclusion(topic, {language: _sentence(found[language][n][1], language) for language in LANGUAGES})
        for n, (topic, _) in enumerate(found["en"])
    ]


def _sentence(text: str, language: Language) -> str:
    return text + ("." if language == "en" else "。")


class _Writer:
    """Writes the sentences in one language."""

    def __init__(self, page: Page, columns: Sequence[ColumnName], words: Mapping[str, str]) -> None:
        self._page = page
        self._columns = columns
        self._words = words
        self._judges = list(dict.fromkeys(name.judge for name in columns))
        self._standings = list(self._all_standings())

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Topic and text of each."""
        if not self._standings:
            yield "who", self._nothing()
        for standing in self._standings:
            yield from (("change", self._under(standing, text, judged=True)) for text in self._changes(standing))
        for standing in self._standings:
            if len(standing.columns) == 1 or len({name.model for name in standing.columns}) > 1:
                yield "who", self._under(standing, self._who(standing), judged=True)
        for standing in self._standings:
            if standing.judge == self._judges[0]:
                for topic, text in (("where", self._where(standing)), ("what", self._what(standing))):
                    if text:
                        yield topic, self._under(standing, text)
        yield from (("trust", text) for text in self._trust())

    def _nothing(self) -> str:
        counts: Counter[str] = Counter()
        for name in self._columns:
            counts.update(self._page.part(name)["reasons"])
        return self._say("none", reason=counts.most_common(1)[0][0]) if counts else self._words["nothing"]

    def _say(self, word: str, **values: object) -> str:
        return self._words[word].format(**values)

    def _all_standings(self) -> Iterator[_Standing]:
        tracks = list(dict.fromkeys(track for name in self._columns for track in self._tracks(name)))
        for track in tracks:
            for judge in self._judges:
                graded = [c for c in self._columns if c.judge == judge and self._mean(c, track) is not None]
                graded.sort(key=lambda name: -self._mean(name, track)["value"])
                if graded:
                    yield _Standing(track, judge, graded)

    def _tracks(self, name: ColumnName) -> Mapping[str, Any]:
        part = self._page.part(name)
        return part["tracks"] if len(part["tracks"]) > 1 else {"": part}

    def _mean(self, name: ColumnName, track: str) -> Any:
        return self._tracks(name).get(track, {}).get("mean")

    def _under(self, standing: _Standing, text: str, *, judged: bool = False) -> str:
        names = [standing.track] if standing.track else []
        if judged and len(self._judges) > 1:
            names.append(self._say("judged", judge=standing.judge))
        return self._say("of", name=self._words["and"].join(names), rest=text) if names else text

    def _name(self, name: ColumnName) -> str:
        """What tells a column from others of its judge, who stands before the sentence."""
        return " · ".join([name.model, *(q for q in self._page.qualifiers(name) if q != name.judge)])

    def _estimate(self, found: Mapping[str, Any], show: Any = score) -> str:
        if found["ci95"] is None:
            return str(show(found["value"]))
        low, high = found["ci95"]
        return self._say("interval", value=show(found["value"]), low=show(low), high=show(high))

    def _changes(self, standing: _Standing) -> Iterator[str]:
        """Each model in each run, and in the one before; the comparison was planned, so it is not corrected."""
        by_model: dict[str, list[ColumnName]] = defaultdict(list)
        for name in sorted(standing.columns):
            by_model[name.model].append(name)
        for model, columns in by_model.items():
            for before, after in pairwise(columns):
                found = self._lead(after, before, standing.track)
                if found is None or found["value"] is None:
                    continue
                told = found["p"] is not None and found["p"] < ALPHA
                word = "unchanged" if not told else "better" if found["value"] > 0 else "worse"
                difference = self._estimate(found, "{:+.3f}".format)
                if found["p"] is not None:
                    difference += f", {p_words(found['p'])}"
                runs = {"before": self._page.views[before.run].name, "after": self._page.views[after.run].name}
                yield self._say(word, model=model, difference=difference, **runs)

    def _who(self, standing: _Standing) -> str:
        first, *others = standing.latest
        mean = self._estimate(self._mean(first, standing.track))
        if not others:
            rate = self._tracks(first)[standing.track]["pass_rate"]
            passes = self._say("passes", rate=self._estimate(rate, percent)) if rate else ""
            return self._say("alone", first=self._name(first), mean=mean, passes=passes)
        count = len(standing.latest) * (len(standing.latest) - 1) // 2
        found = {other: self._lead(first, other, standing.track) for other in others}
        level = [
            name for name, lead in found.items() if lead is None or lead["p"] is None or lead["p"] * count >= ALPHA
        ]
        if level:
            return self._say("level", first=self._name(first), mean=mean, level=self._list(level))
        lead = found[others[0]] or {}
        p = p_words(min(1.0, lead["p"] * count))
        corrected = self._say("corrected", p=p, n=count) if count > 1 else p
        second = {"second": self._name(others[0]), "difference": self._estimate(lead), "p": corrected}
        return self._say("ahead", first=self._name(first), mean=mean, **second)

    def _lead(self, first: ColumnName, other: ColumnName, track: str) -> dict[str, Any] | None:
        slices = self._page.differences(other, first)
        return next((part for part in slices if not track or part["track"] == track), None)

    def _list(self, names: Sequence[ColumnName]) -> str:
        shown = [self._name(name) for name in names[:_NAMED]]
        if len(names) > _NAMED:
            shown.append(self._say("more", n=len(names) - _NAMED))
        return self._words["and"].join(shown)

    def _where(self, standing: _Standing) -> str | None:
        first = standing.latest[0]
        tracks = {result.subset: result.facts.track for result in self._page.results(first)}
        found = [
            (name, part["mean"])
            for name, part in self._page.part(first)["subsets"].items()
            if part["mean"] and standing.track in {"", tracks.get(name)}
        ]
        if len(found) < 2:
            return None
        found.sort(key=lambda row: row[1]["value"])
        (worst, low), (best, high) = found[0], found[-1]
        text = self._say(
            "subsets",
            first=self._name(first),
            best=self._say("at", name=best, value=score(high["value"])),
            worst=self._say("at", name=worst, value=score(low["value"])),
        )
        apart = low["ci95"] and high["ci95"] and low["ci95"][1] < high["ci95"][0]
        return text if apart else text + self._words["overlap"]

    def _what(self, standing: _Standing) -> str | None:
        first, *others = standing.latest
        tags = self._tags(first, standing.track)
        if len(tags) < 2:
            return None
        worst = min(tags, key=lambda tag: tags[tag])
        text = self._say("tag", first=self._name(first), worst=worst, share=percent(tags[worst], digits=0))
        theirs = self._tags(others[0], standing.track) if others else {}
        gaps = {tag: value - theirs[tag] for tag, value in tags.items() if tag in theirs}
        if not gaps or max(gaps.values()) <= 0:
            return text
        tag = max(gaps, key=lambda name: gaps[name])
        points = f"{100 * gaps[tag]:.0f}"
        return text + self._say("gap", second=self._name(others[0]), tag=tag, points=points)

    def _tags(self, name: ColumnName, track: str) -> dict[str, float]:
        tags = self._tracks(name)[track].get("tags") or {}
        return {tag: found["score"]["value"] for tag, found in tags.items() if found["score"]}

    def _trust(self) -> Iterator[str]:
        parts = [self._page.part(name) for name in self._columns]
        made = sum(part["scored"] + part["failed"] for part in parts)
        total = made + sum(part["excluded"] for part in parts)
        if total:
            text = self._say("coverage", made=made, all=total, coverage=percent(made / total))
            yield text + self._open() + self._few()
        unscored = [name for name in self._columns if self._page.part(name)["mean"] is None]
        if unscored and self._standings:
            yield self._say("unscored", names=self._words["and"].join(self._page.label(name) for name in unscored))
        rankings = self._rankings()
        if rankings:
            yield self._words["order" if all(len(set(found)) == 1 for found in rankings) else "disorder"]
        yield from self._agreement()

    def _agreement(self) -> Iterator[str]:
        """How far judges agree, of panels and of runs with judges of their own."""
        benchmark = self._columns[0].benchmark
        panels = [panel for name in self._columns if (panel := self._page.part(name)["panel"])]
        panels += [panel for (name, _), panel in self._page.joint_panels.items() if name == benchmark]
        found = [panel["agreement"] for panel in panels if panel["agreement"]["unanimous"]]
        if found:
            shares = [each["unanimous"]["value"] for each in found]
            alphas = [each["krippendorff_alpha"]["value"] for each in found if each["krippendorff_alpha"]]
            share = self._range([percent(end, digits=0) for end in (min(shares), max(shares))])
            alpha = self._range([f"{end:.2f}" for end in (min(alphas), max(alphas))]) if alphas else "–"
            yield self._say("agree", share=share, alpha=alpha)

    def _range(self, ends: Sequence[str]) -> str:
        return ends[0] if ends[0] == ends[1] else self._say("range", low=ends[0], high=ends[1])

    def _open(self) -> str:
        if not self._standings:
            return ""
        standing = self._standings[0]
        first = standing.latest[0]
        bounds = self._tracks(first)[standing.track]["exclusion_bounds"]
        if not bounds:
            return ""
        low, high = bounds["mean"]
        return self._say("bounds", first=self._name(first), low=score(low), high=score(high))

    def _few(self) -> str:
        tasks = [part["tasks"] for name in self._columns for part in self._tracks(name).values()]
        return self._say("few", tasks=min(tasks)) if tasks and min(tasks) < 20 else ""

    def _rankings(self) -> list[list[tuple[str, ...]]]:
        """For each track, the order of the models under each judge; empty where there is nothing to compare."""
        by_track: dict[str, list[tuple[str, ...]]] = {}
        for standing in self._standings:
            by_track.setdefault(standing.track, []).append(tuple(name.model for name in standing.latest))
        several = [found for found in by_track.values() if len(found) > 1 and len(found[0]) > 1]
        return several if len(several) == len(by_track) else []
