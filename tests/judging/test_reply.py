from __future__ import annotations

import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rubrics.judging.reply import (
    CriterionReading,
    MalformedReplyError,
    Reading,
    read_criterion,
    read_evidence,
    read_sheet,
)
from tests.support.shared import shared_data

IDS = ("1", "2", "3")
ROWS = (
    {"rubric_id": 1, "status": "yes", "justification": "names the statute"},
    {"rubric_id": 2, "status": "no", "justification": "no date given"},
    {"rubric_id": 3, "status": "yes", "justification": "adds up to 12"},
)
ALL_HIT = json.dumps([row | {"status": "yes"} for row in ROWS])
SHEET = json.dumps(ROWS)
LINES = [json.dumps(row) for row in ROWS]


def hits(text: str | None, ids: Sequence[str] = IDS) -> dict[str, bool]:
    return {own: reading.hit for own, reading in read_sheet(text, ids).items()}


def sheet(*justifications: str, statuses: Sequence[str] = ("yes", "no", "yes")) -> str:
    """A sheet as text, with nothing in it escaped."""
    rows = zip(IDS, statuses, justifications, strict=True)
    return "[" + ", ".join(f'{{"rubric_id": {i}, "status": "{s}", "justification": "{j}"}}' for i, s, j in rows) + "]"


# Every one of these says: 1 and 3 are hit, 2 is not.
READABLE = {
    "bare": SHEET,
    "indented": json.dumps(ROWS, indent=4),
    "fence with a language": f"```json5\n{SHEET}\n```",
    "fence of tildes": f"~~~json\n{SHEET}\n~~~",
    "fence of four ticks": f"````\n{SHEET}\n````",
    "fence never closed": f"```json\n{SHEET}",
    "fence on one line": f"```json {SHEET}```",
    "inline code": f"My verdicts are `{SHEET}`.",
    "prose with citations": f"Following [2][3] and [note 4], and [see below]:\n{SHEET}\nThat is all [1].",
    "prose with odd quotes": f"A 6\" pipe, the clients' file and a stray \u201c mark.\n{SHEET}\nIt's done, 7\" wide.",
    "prose with odd braces": f"The set {{x: x > 0}}, {{}} and f(x) = {{ 1 [ 2\n{SHEET}",
    "prose with an echo of the rubric": f'{{"rubric_number": 2, "rubric_detail": "gives a date"}}\n{SHEET}',
    "tags around": f"<answer>{SHEET}</answer>",
    "assignment": f"const verdicts = {SHEET};",
    "trailing commas": SHEET.replace("}", ",}").replace("]", ",]"),
    "no commas": SHEET.replace("}, ", "}\n").replace(", ", " "),
    "doubled commas": SHEET.replace("}, ", "},, "),
    "single quotes": str(list(ROWS)),
    "Python literals": repr([{"rubric_id": n, "met": n != 2, "justification": None} for n in (1, 2, 3)]),
    "line comments": SHEET.replace("}, ", "}, // next, \"2\" [\n").replace("[{", "[ # first\n{"),
    "block comments": SHEET.replace("}, ", "}, /* {next: [ */ "),
    "smart quotes": SHEET.replace('"', "\u201d").replace("{\u201d", "{\u201c"),
    "smart single quotes": SHEET.replace('"', "\u2019"),
    "full-width quotes": SHEET.replace('"', "＂"),
    "full-width punctuation": SHEET.translate(str.maketrans(':,[]{}123', "：，［］｛｝１２３")),
    "corner brackets": "[{「编号」:1,「状态」:「是」},{「编号」:2,「状态」:「否」},{「编号」:3,「状态」:「是」}]",
    "byte order mark": "\ufeff" + SHEET,
    "zero-width characters": SHEET.replace('"', '\u200b"\u200b').replace(":", "\u2060:"),
    "no-break spaces": SHEET.replace(" ", "\u00a0").replace("{", "{\u3000"),
    "bare keys": re.sub(r'"(\w+)":', r"\1:", SHEET),
    "bare keys and words": "[{id: 1, met: yes}, {id: 2, met: no}, {id: 3, met: Yes}]",
    "raw line breaks and tabs": sheet("one\ntwo", "a\tb", "\r\n"),
    "bad escapes": sheet(r"\(x^2\) and \$5", r"C:\data\new and \u12", r"100\% of \alpha"),
    "inner quotes": sheet('writes "must pay" twice', 'the words "may", "can" and "should"', '"so" it ends with "this"'),
    "inner quotes and brackets": sheet('the set {"a", "b"}, and more', 'cites "[1]" and "{2}" here', "x } ] , {"),
    "inner quotes in Chinese": sheet("原文写“应当”，又写「可以」", '写到"甲方", "乙方"的义务', '所谓"合同"，指……'),
    "apostrophes in single quotes": sheet("it's the clients' own, isn't it", "'so' it isn't", "c").replace('"', "'"),
    "JSON in a justification": json.dumps([row | {"justification": ALL_HIT.replace("yes", "no")} for row in ROWS]),
    "tags in a justification": "Here:\n" + sheet("opens <think> itself", "and </think> closes", "<reasoning>"),
    "fence in a justification": "```json\n" + sheet("prints ```json", "``` again", "c") + "\n```",
    "JSON Lines": "\n".join(LINES),
    "JSON Lines with commas": ",\n".join(LINES),
    "numbered objects": "\n".join(f"{n}. {line}" for n, line in enumerate(LINES, 1)),
    "array per criterion": "\n\n".join(f"### Criterion {n}\n```json\n[{line}]\n```" for n, line in enumerate(LINES, 1)),
    "two arrays that add up": f"Rewards:\n[{LINES[0]}, {LINES[2]}]\nPenalties:\n[{LINES[1]}]",
    "closing bracket missing": SHEET[:-1],
    "closing bracket missing in a fence": f"```json\n{SHEET[:-1]}\n```",
    "closing bracket missing after a comma": SHEET[:-1] + ",\n",
    "wrapper": json.dumps({"summary": "two of three", "grades": ROWS}),
    "wrapper in a wrapper": json.dumps({"reply": {"evaluation": {"items": ROWS}, "model": "x"}}),
    "wrapper with an id and status of its own": json.dumps({"id": "resp-77", "status": "completed", "output": ROWS}),
    "list of wrappers": json.dumps([{"evaluation": row} for row in ROWS]),
    "two lists in a wrapper": json.dumps({"rewards": [ROWS[0], ROWS[2]], "penalties": [ROWS[1]]}),
    "keyed by id": json.dumps({"1": "hit", "2": "miss", "3": "hit"}),
    "keyed by label": json.dumps({f"Rubric {n}": {"verdict": n != 2, "reason": "r"} for n in (1, 2, 3)}),
    "keyed by id in a wrapper": json.dumps({"verdicts": {"1": 1, "2": 0, "3": 1}, "note": "done"}),
    "list of objects keyed by id": '[{"1": "yes"}, {"2": "no"}, {"3": "yes"}]',
    "encoded twice": json.dumps(SHEET),
    "encoded three times": json.dumps(json.dumps(SHEET)),
    "encoded twice in a fence": f"```json\n{json.dumps(SHEET)}\n```",
    "encoded twice without its quotes": json.dumps(SHEET)[1:-1],
    "encoded twice in a wrapper": json.dumps({"result": SHEET}),
    "in single quotes": f"'{SHEET}'",
    "reasoning with a draft": f"<think>\nMaybe {ALL_HIT}? No.\n</think>\n{SHEET}",
    "reasoning in other tags": f"<Thinking>{ALL_HIT}</Thinking>\n<reasoning effort='high'>{ALL_HIT}</reasoning>{SHEET}",
    "reasoning in reasoning": f"<think>a <think>b</think> {ALL_HIT}\n</think>\n{SHEET}",
    "orphan closing tag": f"Let me see. [1] is fine: {ALL_HIT}\n</think>\n\n{SHEET}",
    "orphan closing tag at the end of a line": f'It is {{"rubric_id": 1, "status": "no"}}, so</think>\n{SHEET}',
    "reasoning never closed, after the verdicts": f"{SHEET}\n<think>Was it {ALL_HIT}",
    "the same twice": f"{SHEET}\nOnce more, in a fence:\n```json\n{json.dumps(ROWS, indent=1)}\n```",
    "one verdict repeated in prose": f"Number two, {LINES[1]}, was hard.\n{SHEET}",
    "points beside the status": re.sub("(.)}", r'\1, "score": -10, "weight": 5}', SHEET),
    "no number as a score": SHEET.replace("}", ', "score": NaN}'),
    "equal statuses under two keys": json.dumps([row | {"met": row["status"] == "yes"} for row in ROWS]),
    "other order": json.dumps(ROWS[::-1]),
    "Chinese keys": '[{"编号": 1, "判定": "命中"}, {"序号": 2, "结果": "否"}, {"评分项": 3, "状态": "满足"}]',
}  # fmt: skip


@pytest.mark.parametrize("text", READABLE.values(), ids=READABLE)
def test_a_disguised_sheet_is_read(text: str) -> None:
    assert hits(text) == {"1": True, "2": False, "3": True}


CUT_ITEM = '{"rubric_id": 3, "status": "yes", "justification": "it is'
MALFORMED = {
    "nothing": "",
    "no reply": None,
    "blank": " \n\u3000",
    "refusal": "I am sorry, I cannot judge this.",
    "error text": "[ERROR] {upstream: timeout}",
    "prose": "Rubric 1: yes. Rubric 2: no. Rubric 3: yes.",
    "table": "| id | status |\n|---|---|\n| 1 | yes |\n| 2 | no |\n| 3 | yes |",
    "YAML": "- id: 1\n  status: yes\n- id: 2\n  status: no\n- id: 3\n  status: yes",
    "CSV rows": '[["1", "yes"], ["2", "no"], ["3", "yes"]]',
    "statuses only": '["yes", "no", "yes"]',
    "columns": '{"rubric_id": [1, 2, 3], "status": ["yes", "no", "yes"]}',
    "HTML entities": SHEET.replace('"', "&quot;"),
    "one missing": json.dumps(ROWS[:2]),
    "one unknown": json.dumps([*ROWS, {"rubric_id": 4, "status": "no"}]),
    "counted from zero": json.dumps([row | {"rubric_id": n} for n, row in enumerate(ROWS)]),
    "one twice": json.dumps([*ROWS, ROWS[0]]),
    "one twice over lines": "\n".join([*LINES, LINES[1]][1:]),
    "one twice, keyed": '{"1": "yes", "2": "no", "3": "yes", "rubric_1": "yes"}',
    "unknown key": '{"1": "yes", "2": "no", "3": "yes", "9": "no"}',
    "keyed items with other ids": json.dumps({str(n): row for n, row in zip((2, 1, 3), ROWS, strict=True)}),
    "keyed items with other numbers": '{"1": {"id": 2, "met": 1}, "2": {"id": 1, "met": 1}, "3": {"id": 3, "met": 1}}',
    "two ids in an item": json.dumps([row | {"number": 4 - int(str(row["rubric_id"]))} for row in ROWS]),
    "true is not one": json.dumps([ROWS[0] | {"rubric_id": True}, *ROWS[1:]]),
    "id is null": json.dumps([ROWS[0] | {"rubric_id": None}, *ROWS[1:]]),
    "no id": json.dumps([{"status": "yes"}, *ROWS[1:]]),
    "no status": json.dumps([{"rubric_id": 1}, *ROWS[1:]]),
    "null among items": json.dumps([*ROWS, None]),
    "text among items": json.dumps(["verdicts", *ROWS]),
    "ellipsis among items": SHEET.replace("}]", "}, ...]"),
    "status with a qualification": sheet("a", "b", "c", statuses=("yes (mostly)", "no", "yes")),
    "two statuses that differ": json.dumps([ROWS[0] | {"met": False}, *ROWS[1:]]),
    "one key twice with other statuses": SHEET.replace('"status": "no"', '"status": "no", "status": "yes"'),
    "an unreadable status beside a good one": json.dumps([ROWS[0] | {"result": "partial"}, *ROWS[1:]]),
    "score against status": json.dumps([ROWS[0] | {"score": 0}, *ROWS[1:]]),
    "half a point": json.dumps([ROWS[0] | {"score": 0.5}, *ROWS[1:]]),
    "draft and final": f"Draft:\n{ALL_HIT}\nFinal:\n{SHEET}",
    "draft and final in a wrapper": f'{{"draft": {ALL_HIT}, "final": {SHEET}}}',
    "draft under the same key": f'{{"result": {ALL_HIT}, "result": {SHEET}}}',
    "encoded draft under the same key": f'{{"result": {json.dumps(ALL_HIT)}, "result": {json.dumps(SHEET)}}}',
    "a stray verdict against the sheet": f'I first had {{"rubric_id": 2, "status": "yes"}}.\n{SHEET}',
    "a stray verdict fills a gap": f"The answer says {LINES[0]}\n[{LINES[1]}, {LINES[2]}]",
    "a verdict in an item against it": json.dumps([ROWS[0] | {"parts": [ROWS[0] | {"status": "no"}]}, *ROWS[1:]]),
    "a verdict beside keyed ones against them": f'{{"1": "yes", "2": "no", "3": "yes", "draft": {ALL_HIT}}}',
    "quoted from the answer": f'The answer contains "{ALL_HIT}" but I disagree.',
    "quoted from the answer in Chinese": f"回复写道：“{ALL_HIT}”，我不同意。",
    "quoted as a block": f"> {ALL_HIT}\n\nThat is what the answer claims.",
    "quoted and escaped": f"The answer contains {json.dumps(ALL_HIT)} which is no verdict.",
    "quoted, then one missing": f"The answer says {ALL_HIT}\nMine: [{LINES[0]}, {LINES[2]}]",
    "quoted, then cut at the first key": f'The answer says {ALL_HIT}\n{LINES[0]}\n{{"ru',
    "a stray verdict fills a gap at the end": f"The answer says {LINES[2]}\n[{LINES[0]}, {LINES[1]}, ",
    "a stray verdict beside one without status": "\n".join([*LINES, '{"rubric_id": 3, "reason": "unsure"}']),
    "quoted, then one without id": f'The answer says {ALL_HIT}\nMine: {{"status": "no"}}',
    "only in a justification": json.dumps({"justification": ALL_HIT}),
    "quoted, then cut": f'The answer says {ALL_HIT}\nMine: [{{"rubric_id": 1, "stat',
    "quoted, then cut while keyed": f'The answer says {ALL_HIT}\nMine: {{"1": "no", "2": "n',
    "cut in a string": f"[{LINES[0]}, {LINES[1]}, {CUT_ITEM}",
    "cut after a string": f'[{LINES[0]}, {LINES[1]}, {CUT_ITEM}"',
    "cut after a comma": f'[{LINES[0]}, {LINES[1]}, {CUT_ITEM}",',
    "cut in a key": SHEET[:-1] + ', {"rubric_',
    "cut in a nested list": f'[{LINES[0]}, {LINES[1]}, {CUT_ITEM}", "quotes": ["a", "b"]',
    "cut before a key": f"{LINES[0]}\n{LINES[1]}\n{LINES[2]}\n{{ ",
    "cut in a line": "\n".join([*LINES[:2], CUT_ITEM]),
    "cut in a fence": f"```json\n[{LINES[0]}, {LINES[1]}, {CUT_ITEM}\n```",
    "reasoning only": f"<think>{SHEET}</think>",
    "reasoning never closed": f"<think>\nSo it is {SHEET}",
    "closing tag after the verdicts": f"{SHEET}\n</think>\n",
    "closing tag spoken of, then a verdict": f"{SHEET} The answer holds </think> and {ALL_HIT} too.",
    "inner quotes hide a verdict": sheet('says "status": "no" somewhere', "b", "c"),
    "inner quotes end in a verdict": sheet('says "x", "status": "no", "z": "t', "b", "c"),
    "status behind a broken string": '{"rubric_id": 1, "reason": "a {"status": "yes"} b", "status": "no"}' + SHEET,
    "closing quote missing": SHEET.replace('statute"', "statute"),
    "template": sheet("why", "why", "why", statuses=("yes/no",) * 3),
    "template with dots": SHEET.replace('"}', '", ...}'),
    "schema": '{"items": {"properties": {"rubric_id": {"type": "integer"}, "status": {"enum": ["yes", "no"]}}}}',
    "nested without end": "[" * 5000 + "]" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_an_unclear_sheet_is_malformed(text: str | None) -> None:
    with pytest.raises(MalformedReplyError):
        read_sheet(text, IDS)


HITS = "yes Yes YES. y true TRUE 1 1.0 hit met Satisfied pass passed 是 是。 是！ 命中 满足 符合 达成 １ ｙｅｓ **yes**"
MISSES = (
    "no No. n false 0 0.0 miss not_hit Not-Met unmet NOT_SATISFIED unsatisfied fail failed "
    "否 否； 不是 未命中 不满足 不符合 未达成 ０"
)
NEITHER = (
    "partial 部分 部分命中 N/A n/a 不适用 null none unknown maybe -1 2 10 0.5 yes/no 是否 是/否 有 无 ok incorrect "
    "yesno ¬yes [yes] yes? 是的吧 nope"
)


@pytest.mark.parametrize(("words", "hit"), [(HITS, True), (MISSES, False)])
def test_a_status_is_a_word_of_the_vocabulary(words: str, hit: bool) -> None:
    for word in words.split():
        for status in (word, f" {word}\u200b\n"):
            assert hits(json.dumps([{"rubric_id": 1, "status": status}]), ["1"]) == {"1": hit}, status


@pytest.mark.parametrize("status", [*NEITHER.split(), "", " ", "yes (mostly)", "not hit at all"])
def test_any_other_word_is_malformed(status: str) -> None:
    with pytest.raises(MalformedReplyError, match="must be yes or no"):
        read_sheet(json.dumps([{"rubric_id": 1, "status": status}]), ["1"])


@pytest.mark.parametrize("status", [None, 2, -1, 0.5, float("nan"), ["yes"], {"yes": True}])
def test_a_status_that_is_no_word_is_malformed(status: Any) -> None:
    with pytest.raises(MalformedReplyError):
        read_sheet(json.dumps([{"rubric_id": 1, "status": status}]), ["1"])


def test_a_negation_in_several_words_is_read() -> None:
    assert hits('[{"id": 1, "status": "Not   Satisfied."}]', ["1"]) == {"1": False}


def item(own: object) -> str:
    return json.dumps([{"rubric_id": own, "status": "yes"}])


@pytest.mark.parametrize(
    "own",
    [3, 3.0, "3", " 3 ", "3.0", "03", "3.", "３", "③", "Rubric 3", "rubric_3", "RUBRIC #3", "Criterion-3:", "R3", "c3",
     "No. 3", "#3", "评分项3", "第3条", "第 ３ 项", "编号：3"],
)  # fmt: skip
def test_a_labelled_number_denotes_the_id(own: object) -> None:
    assert hits(item(own), ["3"]) == {"3": True}


@pytest.mark.parametrize("own", [-3, "-3", 3.5, 33, True, None, "three", "3a", "3/4", "Rubric 3: cites it", "", "1.3"])
def test_anything_else_does_not(own: object) -> None:
    with pytest.raises(MalformedReplyError):
        read_sheet(item(own), ["3"])


def test_ids_are_opaque() -> None:
    reply = '[{"id": "a-1", "status": "yes"}, {"id": "R4", "status": "no"}, {"id": "要点", "status": "yes"}]'
    assert hits(reply, ["R4", "要点", "a-1"]) == {"R4": False, "要点": True, "a-1": True}


def test_a_number_denotes_a_labelled_id_where_no_other_could_be_meant() -> None:
    assert hits(item(4), ["R4"]) == {"R4": True}
    with pytest.raises(MalformedReplyError, match="no criterion with the id"):
        read_sheet(item(4), ["R4", "C4"])
    with pytest.raises(MalformedReplyError, match="no criterion with the id"):
        read_sheet(item("Rubric 4"), ["R4", "4"])


def test_an_exact_id_is_never_ambiguous() -> None:
    reply = json.dumps([{"id": "R4", "status": "yes"}, {"id": 4, "status": "no"}])
    assert hits(reply, ["4", "R4"]) == {"4": False, "R4": True}


def test_readings_come_in_the_order_of_the_ids_with_their_justifications() -> None:
    reply = json.dumps([{"id": 2, "hit": "no", "reason": "二"}, {"id": 1, "hit": "yes", "justification": None}])
    assert list(read_sheet(reply, ["1", "2"]).items()) == [("1", Reading(True, "")), ("2", Reading(False, "二"))]


def test_full_width_characters_inside_a_string_stay() -> None:
    text = "甲：“乙，丙”［1］｛x｝：'丁'"
    reply = "［｛“编号”：“1”，“状态”：“是”，“理由”：“" + text.replace("“", "\\“").replace("”", "\\”") + "”｝］"
    assert read_sheet(reply, ["1"]) == {"1": Reading(True, text)}


def test_a_justification_can_always_be_written_to_a_file() -> None:
    for escape in (r"\ud83d\ude00 \ud83d", r"\ud83d\ude00 \ud83d\q"):
        justification = read_sheet(f'[{{"id": 1, "status": "yes", "reason": "{escape}"}}]', ["1"])["1"].justification
        assert justification.encode().decode().startswith("\U0001f600 \ufffd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "The reply is empty."),
        (json.dumps(ROWS[1:2]), "The verdicts for 1 and 3 are missing."),
        (json.dumps(ROWS[:2]), "The verdict for 3 is missing."),
        (json.dumps([*ROWS, *ROWS[:2]]), "There is more than one verdict for 1 and 2."),
        (SHEET.replace('"no"', '"partly"'), "The status of `2` is `partly`; it must be yes or no."),
        (f"{SHEET}\n{ALL_HIT}", "The reply holds verdicts that contradict each other."),
        (SHEET[:-9], "The JSON of the reply is broken, cut off or ambiguous near `adds up`."),
    ],
)  # fmt: skip
def test_the_error_says_what_was_wrong(text: str | None, message: str) -> None:
    with pytest.raises(MalformedReplyError) as error:
        read_sheet(text, IDS)
    assert str(error.value) == message


def test_the_error_stays_short() -> None:
    for reply in (item("x" * 5000), SHEET.replace("yes", "y" * 5000), "[" + LINES[0] + ', {"status": "' + "a" * 5000):
        with pytest.raises(MalformedReplyError) as error:
            read_sheet(reply, [str(number) for number in range(400)])
        assert len(str(error.value)) < 200


SATISFIED = CriterionReading("Satisfied", 1.0, "")
NOT_SATISFIED = CriterionReading("Not Satisfied", 0.0, "")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"verdict": "Satisfied", "score": 1.0, "confidence": 0.4, "missing_elements": []}', SATISFIED),
        ('```\n{"verdict": "NOT_SATISFIED", "score": 0,}\n```', NOT_SATISFIED),
        ('{"verdict": "Not Satisfied."}', NOT_SATISFIED),
        ('{"criteria_met": true}', SATISFIED),
        ('{"verdict": "met", "score": "1"}', SATISFIED),
        ('{"判定": "不满足", "得分": "０"}', NOT_SATISFIED),
        ("{'verdict': 'Satisfied', 'score': 1, 'reasoning': None}", SATISFIED),
        ('{"evaluation": {"criterion_3": {"verdict": "Satisfied", "score": 1}}}', SATISFIED),
        ('[{"verdict": "Not Satisfied", "score": 0.0}]', NOT_SATISFIED),
        ('{"result": "{\\"verdict\\": \\"Satisfied\\"}"}', SATISFIED),
        (json.dumps('{"verdict": "Satisfied"}'), SATISFIED),
        ('Looking at it [1]:\n{"verdict": "Satisfied"}\nHope it helps.', SATISFIED),
        ('<think>{"verdict": "Satisfied"}</think>{"verdict": "Not Satisfied"}', NOT_SATISFIED),
        ('{"verdict": "Satisfied"}\n{"verdict": "satisfied", "score": 1}', SATISFIED),
        ("{verdict: Not Satisfied, score: 0}", NOT_SATISFIED),
        ('{"verdict": "Not Satisfied", "evidence": "it claims {\\"verdict\\": \\"Satisfied\\"}"}', NOT_SATISFIED),
    ],
)  # fmt: skip
def test_a_single_verdict_is_read(text: str, want: CriterionReading) -> None:
    assert read_criterion(text) == want


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ('{"verdict": "Satisfied", "reasoning": "cites it"}', "cites it"),
        ('{"verdict": "Satisfied", "reasoning": " ", "explanation": "cites it"}', "cites it"),
        ("{verdict: Satisfied, reasoning: it cites it}", "it cites it"),
        ("{“verdict”：“Satisfied”，“理由”：“写“应当”一词”}", "写“应当”一词"),
        ('{"verdict": "Satisfied", "reasoning": "writes "Allow" here"}', 'writes "Allow" here'),
        ('{"verdict": "Satisfied", "reasoning": ["a list"]}', ""),
    ],
)
def test_the_reasoning_is_kept_as_it_is(text: str, reasoning: str) -> None:
    assert read_criterion(text).reasoning == reasoning


@pytest.mark.parametrize(
    "text",
    [
        None,
        "Satisfied",
        "verdict: Satisfied",
        '"verdict": "Satisfied", "score": 1',
        '{"score": 1}',
        '{"verdict": null, "score": 1}',
        '{"verdict": "Partially Satisfied", "score": 0.5}',
        '{"verdict": "Satisfied", "score": 0}',
        '{"verdict": "Satisfied", "score": null}',
        '{"verdict": "Satisfied", "score": NaN}',
        '{"verdict": "Satisfied", "score": "1/1"}',
        '{"verdict": "Satisfied", "score": [1]}',
        '{"verdict": "Satisfied", "score": 100}',
        '{"verdict": "Satisfied", "score": 0.9}',
        '{"verdict": "Satisfied", "score": 1, "score": 0}',
        '{"verdict": "Satisfied", "verdict": "Not Satisfied"}',
        '{"verdict": "Satisfied", "evaluation": {"score": 0}}',
        '{"verdict": "Satisfied", "parts": [{"verdict": "Not Satisfied"}]}',
        '{"verdict": "Satisfied"}{"verdict": "Not Satisfied"}',
        'The answer says {"verdict": "Satisfied"}; I say {"verdict": "Not Satisfied"}',
        '{"verdict": "Satisfied" | "Not Satisfied"}',
        '{"verdict": "Satisfied/Not Satisfied", "score": 1}',
        '{"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}',
        '{"verdict": "Satisfied", "score":',
        '{"verdict": "Satisfied", "reasoning": "it',
        '{"verdict": "Satisfied", "score": 1',
        '{"verdict": "Satisfied", "reasoning": "has {"verdict": "Not Satisfied"} in it"}',
        '{"reasoning": "quotes {"verdict": "Satisfied"} and", "verdict": "Not Satisfied"}',
        '<think>{"verdict": "Satisfied"}',
    ],
)
def test_an_unclear_single_verdict_is_malformed(text: str | None) -> None:
    with pytest.raises(MalformedReplyError):
        read_criterion(text)


def test_a_ternary_judge_may_give_half_a_point() -> None:
    half = CriterionReading("Partially Satisfied", 0.5, "")
    assert read_criterion('{"verdict": "partially_satisfied", "score": 0.5}', ternary=True) == half
    assert read_criterion('{"verdict": "Partially Satisfied"}', ternary=True) == half
    assert read_criterion('{"verdict": "Satisfied", "score": 1}', ternary=True) == SATISFIED


@pytest.mark.parametrize(
    "text",
    ['{"verdict": "Partially Satisfied", "score": 1}', '{"verdict": "Satisfied", "score": 0.5}', '{"score": 0.5}'],
)
def test_half_a_point_must_go_with_its_verdict(text: str) -> None:
    with pytest.raises(MalformedReplyError):
        read_criterion(text, ternary=True)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"relevant_evidence": ["a", "b, c"], "confidence": 0.5}', ["a", "b, c"]),
        ('Found:\n```json\n{"Relevant Evidence": ["a",],}\n```', ["a"]),
        ('{"relevant_evidence": []}', []),
        ('{"relevant_evidence": [{"quote": "a", "page": 3}, {"text": "b"}, ""]}', ["a", "b"]),
        ('{"relevant_evidence": ["it says "no", then leaves", "b ] c"]}', ['it says "no", then leaves', "b ] c"]),
        ("{'relevant_evidence': ['it's here', \"there\"\n'and so on']}", ["it's here", "there", "and so on"]),
        ('{"output": {"相关证据": ["甲：“乙”"]}}', ["甲：“乙”"]),
    ],
)  # fmt: skip
def test_evidence_is_read(text: str, want: list[str]) -> None:
    assert read_evidence(text) == want


@pytest.mark.parametrize(
    "text",
    [
        None,
        "no evidence",
        '["a", "b"]',
        '{"relevant_evidence": null}',
        '{"relevant_evidence": "a"}',
        '{"relevant_evidence": [1]}',
        '{"relevant_evidence": [{"page": 3}]}',
        '{"relevant_evidence": ["a", "b"',
        '{"relevant_evidence": ["a"',
        '{"relevant_evidence": ["a"]} {"relevant_evidence": ["b"]}',
    ],
)
def test_anything_else_is_no_evidence(text: str | None) -> None:
    with pytest.raises(MalformedReplyError):
        read_evidence(text)


# -- Any sheet in any disguise ---------------------------------------------------------------------------------------

Render = Callable[[str], str]
HIT_WORDS = ("yes", "Yes.", "是", "命中", "met", "满足", "Satisfied")
MISS_WORDS = ("no", "NO", "否", "未命中", "not met", "不满足", "Not Satisfied")
PHRASES = (
    """the answer|应当赔偿|[1]|{x}|status|6"|it's|“甲方”|a, b|：|\\alpha|// no|```|]|}|<think>|# one|yes"""
    """|\U0001f600|/* x|\\|'|rubric_id|,|", "|null|\t|\n"""
)
JUSTIFICATIONS = st.lists(st.sampled_from(PHRASES.split("|")), max_size=6).map(" ".join)


def double(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def raw_breaks(text: str) -> str:
    return double(text).replace("\\n", "\n").replace("\\t", "\t")


def escaped_for(opener: str, closer: str) -> Render:
    def quote(text: str) -> str:
        text = text.replace("\\", "\\\\")
        for mark in {opener, closer}:
            text = text.replace(mark, "\\" + mark)
        return f"{opener}{text}{closer}"

    return quote


QUOTES: list[Render] = [
    double,
    json.dumps,
    raw_breaks,
    repr,
    escaped_for("“", "”"),
    escaped_for("'", "'"),
    escaped_for("＂", "＂"),
]
KEYS = [
    ("rubric_id", "status", "justification"),
    ("id", "verdict", "reason"),
    ("编号", "判定", "理由"),
    ("Criterion ID", "Met", "Explanation"),
]
LABELS: list[Callable[[str], str]] = [str, "Rubric {}".format, "第{}条".format, "{}.0".format]


@st.composite
def rendered(draw: st.DrawFn) -> tuple[dict[str, Reading], str]:
    """A sheet, and a reply that says it."""
    ids = draw(st.lists(st.integers(1, 60).map(str), min_size=2, max_size=6, unique=True))
    truth = {own: Reading(draw(st.booleans()), draw(JUSTIFICATIONS).strip()) for own in ids}
    quote, keys, label = draw(st.sampled_from(QUOTES)), draw(st.sampled_from(KEYS)), draw(st.sampled_from(LABELS))
    colon, comma = draw(st.sampled_from([":", " : ", "："])), draw(st.sampled_from([",", ", ", "，", ",\n  "]))
    end = draw(st.sampled_from(["", ",", " "]))

    def item_text(own: str) -> str:
        status = draw(st.sampled_from(HIT_WORDS if truth[own].hit else MISS_WORDS))
        values = (label(own), status, truth[own].justification)
        pairs = draw(st.permutations([quote(k) + colon + quote(v) for k, v in zip(keys, values, strict=True)]))
        return "{" + comma.join(pairs) + end + "}"

    items = [item_text(own) for own in draw(st.permutations(ids))]
    between = draw(st.sampled_from([comma, " ", "\n", ", // next\n", ", /* next */"]))
    array = "[" + between.join(items) + end + "]"
    whole = [
        array,
        "\n".join(items),
        "\n\n".join(f"**{number}**\n```json\n[{one}]\n```" for number, one in enumerate(items)),
        "{" + quote("results") + colon + array + "}",
        "{" + quote("reply") + colon + "{" + quote("grades") + colon + array + end + "}}",
    ]
    unclosed = array[:-1].rstrip(",")
    return truth, draw(st.sampled_from(whole).flatmap(outside) | st.sampled_from(before(unclosed)))


def before(text: str) -> list[str]:
    """Disguises that add nothing behind a reply but the end of a fence."""
    draft = '<think>[{"rubric_id": 1, "status": "no"}] hm\n</think>\n'
    return [text, f"```json\n{text}\n```", "\ufeff" + text, draft + text, draft.removeprefix("<think>") + text]


def outside(text: str) -> st.SearchStrategy[str]:
    """Put a reply into prose, fences, reasoning or a string."""
    disguises = [
        *before(text),
        f"See [1] and 6\" pipes:\n{text}\nThat's it [2].",
        f"```\n{text}\n```\nDone.",
        f"<answer>{text}</answer>",
        json.dumps(text),
    ]
    if text.startswith(('{"', '[{"')):
        disguises.append(json.dumps(text, ensure_ascii=False)[1:-1])
    return st.sampled_from(disguises)


@given(rendered())
def test_any_disguise_of_a_sheet_is_read_exactly(case: tuple[Mapping[str, Reading], str]) -> None:
    truth, text = case
    assert read_sheet(text, list(truth)) == truth


NOISE = [*"\"'\\{}[]:,，：“”\n #/`-1", "</think>\n", "<think>", "```", "//", '"status": ', "null", "},{", "]["]


def mutilated(text: str, seed: int) -> str:
    """The text with a few characters lost, repeated or added, or with its end cut off; no word becomes another."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        stop = start + chance.choice((1, 1, 1, 3, 10, 40))
        text = chance.choice(
            (
                text[:start],
                text[:start] + text[stop:],
                text[:start] + chance.choice(NOISE) + text[start:],
                text[:start] + chance.choice(NOISE) + text[stop:],
                text[:stop] + text[start:],
            )
        )
    return text


@given(st.lists(st.booleans(), min_size=2, max_size=5), JUSTIFICATIONS, st.integers(0, 2**32), st.sampled_from(QUOTES))
def test_a_mutilated_sheet_is_never_read_wrongly(truth: list[bool], words: str, seed: int, quote: Render) -> None:
    # Neither ids nor statuses are near to one another: no loss of characters turns one into the other.
    ids = ["alpha", "bravo", "charlie", "delta", "echo"][: len(truth)]
    items = [
        "{" + f"{quote('rubric_id')}: {quote(own)}, {quote('status')}: {quote('yes' if hit else 'no')}, "
        f"{quote('justification')}: {quote(words)}" + "}"
        for own, hit in zip(ids, truth, strict=True)
    ]
    try:
        found = hits(mutilated("[" + ",\n".join(items) + "]", seed), ids)
    except MalformedReplyError:
        return
    assert found == dict(zip(ids, truth, strict=True))


PIECES = st.lists(
    st.sampled_from(
        [*NOISE, *LINES, SHEET, '"rubric_id"', '"verdict"', "yes", "2", "relevant_evidence", "{'a':", "\\u1"]
    )
    | st.text(max_size=4)
).map("".join)


@given(st.text() | PIECES)
def test_arbitrary_text_is_read_or_malformed(text: str) -> None:
    readers: list[Callable[[str], object]] = [lambda reply: read_sheet(reply, IDS), read_criterion, read_evidence]
    for read in readers:
        with contextlib.suppress(MalformedReplyError):
            read(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        *(
            "[",
            "{",
            "[{",
            "[[]",
            '{"a":',
            '{"a":"x',
            "[1]",
            '"',
            '"status":',
            "//[\n",
            "[#",
            "</think>",
            '[{\\"',
            "{a:b ",
        ),
        *("{'a':'it's ", '[{"rubric_id":1,"justification":"x" y ', LINES[0], "[" + "/" * 301, "{" + "k" * 60),
    ],
)
def test_megabytes_of_brackets_are_malformed(piece: str) -> None:
    with pytest.raises(MalformedReplyError):
        read_sheet(piece * (2_000_000 // len(piece)), IDS)


def test_the_published_messy_replies_are_read_or_refused(record_property: Callable[[str, object], None]) -> None:
    file = shared_data() / "judge_replies" / "replies.jsonl"
    if not file.exists():
        pytest.skip(f"no {file}")
    tally = Counter[str]()
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found = outcome(row)
        if row["may_reject"]:
            assert found in (row["want"], "malformed"), row["id"]
            tally["read" if found == row["want"] else "refused"] += 1
        else:
            assert found == row["want"], row["id"]
    record_property("may_reject", dict(tally))
    assert tally["read"] > tally["refused"]


def outcome(row: Mapping[str, Any]) -> Any:
    try:
        if row["kind"] == "single_criterion":
            return int(read_criterion(row["text"]).score)
        return {own: int(hit) for own, hit in hits(row["text"], [str(own) for own in row["expected_ids"]]).items()}
    except MalformedReplyError:
        return "malformed"
