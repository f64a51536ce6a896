"""The words judges use: names of keys, statuses and ids, in the forms in which they are compared."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from typing import Literal

from pytest_rubrics.judging.json_reply import INVISIBLE, Json


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


STATUS_KEYS = _words(
    "status verdict result outcome decision judgment judgement hit ishit met ismet criteriamet criterionmet",
    "satisfied issatisfied pass passed 状态 判定 判断 判定结果 判断结果 结果 裁定 命中 满足 是否命中 是否满足 是否符合",
)
ID_KEYS = _words(
    "rubricid rubricnumber rubricno criterionid criterionnumber criteriaid itemid",
    "编号 评分项编号 评分点编号 标准编号 条目编号 规则编号",
)
# These may also hold a text, or the number of a row.
VAGUE_ID_KEYS = _words("id number rubric criterion item 序号 评分项 评分点 标准 条目")
SCORE_KEYS = _words("score 得分 分数")
REASON_KEYS = _words(
    "justification reason reasoning explanation rationale comment analysis",
    "理由 判定理由 判断理由 依据 判定依据 说明 解释 原因 分析",
)
WRAPPER_KEYS = _words(
    "result results output verdicts grades evaluation evaluations judgments judgements json data arguments",
    "结果 评估结果 输出",
)
EVIDENCE_KEYS = _words("relevantevidence evidence 相关证据 证据")
QUOTE_KEYS = _words("quote text evidence excerpt passage content 引文 原文 内容")

_HIT = _words(
    "yes y true 1 1.0 hit met satisfied pass passed",
    "是 是的 命中 已命中 满足 已满足 符合 达成 已达成 通过",
)
_MISS = _words(
    "no n false 0 0.0 miss missed nothit notmet unmet notsatisfied unsatisfied fail failed notpassed",
    "否 不是 未命中 没有命中 不命中 不满足 未满足 不符合 未符合 未达成 没有达成 不通过 未通过",
)
_PARTIAL = _words("partial partially partiallysatisfied partiallymet 部分满足 部分符合")

_SEPARATORS = re.compile(r"(?<=\w)[\s_\-]+(?=\w)")
_NUMBERED = re.compile(
    r"(?:(?:rubric|criterion|criteria|item|number|no|id|r|c|评分项|评分点|评分标准|标准|条目|规则|编号|序号|第|#)[\s_\-:.]*+)*+"
    r"(?P<number>[0-9]{1,30})(?:\.0+)?\s*(?:条|项|号|点)?[.):、]?"
)
_NO_INVISIBLE = dict.fromkeys(map(ord, INVISIBLE))


@functools.lru_cache(maxsize=1024)
def name(key: str) -> str:
    """A key without case, width and separators."""
    return re.sub(r"[\s_\-]+", "", _fold(key))


Kind = Literal["status", "id", "vague id", "score", "reason"]
_KEYS: Mapping[Kind, frozenset[str]] = {
    "status": STATUS_KEYS,
    "id": ID_KEYS,
    "vague id": VAGUE_ID_KEYS,
    "score": SCORE_KEYS,
    "reason": REASON_KEYS,
}
_KINDS: Mapping[str, Kind] = {word: kind for kind, words in _KEYS.items() for word in words}


def kind(key: str) -> Kind | None:
    """What stands under a key of a verdict, or None where the key says nothing of that."""
    return _KINDS.get(name(key))


def hit(status: Json) -> bool | None:
    """Whether a status says hit or not hit: whole words only, and none that could mean something between."""
    word = _word(status)
    return True if word in _HIT else False if word in _MISS else None


def begins(text: str) -> bool | None:
    """Whether a text is the beginning of a word for hit, or of one for miss; None where it is of neither or of both.

    >>> begins("Sat"), begins("Not"), begins("是"), begins("m"), begins("Well")
    (True, False, True, None, None)
    """
    word = _word(text)
    if not word:
        return None
    said = {
        meaning
        for meaning, known in ((True, _HIT), (False, _MISS))
        if any(one.startswith(word) or (word.startswith(one) and len(one) > 1) for one in known)
    }
    whole = hit(text)
    return whole if whole is not None else said.pop() if len(said) == 1 else None


def grade(status: Json, *, ternary: bool) -> float | None:
    """The score that a status stands for, where it has one."""
    if ternary and _word(status) in _PARTIAL:
        return 0.5
    said = hit(status)
    return None if said is None else float(said)


def number(score: Json) -> float | None:
    """A number, also one in quotes."""
    try:
        return float(score) if isinstance(score, (str, int, float)) else None
    except (ValueError, OverflowError):
        return None


def id_form(raw: Json) -> str | None:
    """The form in which ids are compared: digits are a number, whatever label or ending they carry."""
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        return None
    return _text_form(str(raw))


@functools.lru_cache(maxsize=4096)
def _text_form(text: str) -> str:
    plain = _fold(text)
    if len(plain) < 60 and (numbered := _NUMBERED.fullmatch(plain)):
        return numbered["number"].lstrip("0") or "0"
    return _SEPARATORS.sub("-", plain)


def _word(status: Json) -> str:
    return _plain_word(str(status)) if isinstance(status, (str, int, float)) else ""


@functools.lru_cache(maxsize=1024)
def _plain_word(text: str) -> str:
    return _SEPARATORS.sub("", _fold(text).strip(" .。!,;:、*_`\"'“”‘’"))


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_NO_INVISIBLE).casefold().strip()
