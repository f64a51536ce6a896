"""JSON as language models write it, read by a grammar that never guesses.

Repair libraries make the best of any text: they close a cut object, keep the last of two equal keys, end a string
where it suits, and may take quadratic time. A verdict must not come about like that. This reader forgives punctuation
only: prose and fences around, quotes of any kind (also unescaped inside a string, where its end is clear), full-width
punctuation, bare keys and words, comments, missing and trailing commas. It invents and drops nothing, says so when
the text is in doubt, and takes linear time.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable

from pytest_rubrics.judging.json_reply import CLOSERS, INVISIBLE, MAX_DEPTH, Found, Json, Object

_MAX_BROKEN = 500  # brackets that lead to nothing; no reply that we ask for has as many

# Loops are possessive, and short where they may overlap, so that no text makes the patterns slow.
_BLANK = rf"[\s{INVISIBLE}]*+"
_COMMENT = r"(?://[^\n]{0,200}+(?=\n|\Z)|#[^\n]{0,200}+(?=\n|\Z)|/\*(?s:(?!\*/).){0,200}+\*/)"
_GAP = rf"{_BLANK}(?:{_COMMENT}{_BLANK}){{0,8}}+"
_COLON = rf"{_GAP}[:：]"

_QUOTES = "".join(CLOSERS)
_QUOTED = "(?:" + "|".join(rf"{quote}(?:[^{end}\\\n]|\\.){{0,200}}+[{end}]" for quote, end in CLOSERS.items()) + ")"
_STOPS = {end: re.compile(rf"\\.|[{end}]", re.DOTALL) for end in CLOSERS.values()}
_BARE = r"[\w$](?:[\w$.\-]| (?=[\w$])){0,60}+"
_WORD = re.compile(rf"[^\s,，:：{{}}\[\]｛｝［］{_QUOTES}#/][^,，:：{{}}\[\]｛｝［］\"“”＂\n#/]*+")
_WORD_IN_ARRAY = re.compile(r"[\w.+\-]++")

_SPACE = re.compile(_GAP)
_SEPARATION = re.compile(rf"(?:{_GAP}[,，])*+{_GAP}")
_KEY = re.compile(rf"(?:(?P<quoted>{_QUOTED})|(?P<bare>{_BARE})){_COLON}")
_QUOTED_KEY = re.compile(rf"(?P<key>{_QUOTED}){_COLON}")

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = dict(zip("ntrbf", "\n\t\r\b\f", strict=True)) | {char: char for char in f"{_QUOTES}/\\\n"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?")
_LITERALS: dict[str, Json] = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "undefined": None,
    "nan": math.nan,
    "infinity": math.inf,
    "-infinity": -math.inf,
}

_REASONING = r"(?:seed:)?(?:think|thinking|thought|reasoning|reflection|scratchpad)(?:\s[^<>]{0,40})?"
_OPENING_TAG = rf"(?i:<{_REASONING}>)|\[THINK\]|◁think▷"
_CLOSING_TAG = rf"(?i:</{_REASONING}>)|\[/THINK\]|◁/think▷"
_REASONING_END = re.compile(_CLOSING_TAG)
# In prose a quote opens no string and a bracket opens a value only where one follows: think of 6" or [1].
_LANDMARK = re.compile(
    rf"(?P<opening>{_OPENING_TAG})|(?P<closing>{_CLOSING_TAG})"
    rf"|(?P<value>[\[［](?={_GAP}(?:[\[［{{｛]|null\b|None\b|{_QUOTED}{_GAP}[,，\]］]))"
    rf"|[{{｛](?={_GAP}(?:{_QUOTED}|{_BARE}){_COLON}))"
    rf"|(?P<key>(?P<quote>[\"'])(?:(?!(?P=quote))[^\\\n]|\\.){{0,60}}+(?P=quote)){_COLON}"
)
_QUOTATION = re.compile(r"[\"“'‘＂＇「『]\Z|(?:\A|\n)[ \t]*>[ \t]*\Z")
_CUT_OBJECT = re.compile(rf"[{{｛]{_BLANK}(?:[{_QUOTES}]\w{{0,40}}+[{_QUOTES}]?{_BLANK})?\Z")


# What follows the closing quote of a string; any other quote is part of it.
_COMMA = rf"(?:[,，]{_GAP}){{1,3}}+"
_MEMBER = rf"(?:[\[［{{｛\]］{_QUOTES}]|[\w.+\-]++{_GAP}[,，\]］}}｝])"
_GOES_ON = rf"(?={_GAP}(?:[\]］}}｝{{｛`<]|{_COMMA}(?:[}}｝]|{_MEMBER}|{_BARE}{_COLON}|\Z)|\Z))"
_END_IN_ARRAY = re.compile(rf"[^\S\n]*\n{_GAP}[{_QUOTES}]|{_GAP}(?:[\]］]{_GOES_ON}|{_COMMA}{_MEMBER}|[{{｛])")


def _end_in_object(key: str, after_brace: str) -> re.Pattern[str]:
    closing = rf"[}}｝]{after_brace}"
    return re.compile(rf"{_GAP}(?:{closing}|{_COMMA}(?:{closing}|{key}{_COLON}))|\s{_GAP}{key}{_COLON}")


_END_IN_OBJECT = {
    (nested, bare): _end_in_object(_BARE if bare else _QUOTED, _GOES_ON if nested else f"(?![{_QUOTES}])")
    for nested in (False, True)
    for bare in (False, True)
}


def _unescape(raw: str) -> str:
    """Resolve the escapes of a string; one that JSON does not know stands for itself."""

    def resolve(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, match[0])

    if "\\" not in raw:
        return raw
    # The round trip joins the halves of a character that was escaped as a pair.
    return _ESCAPE.sub(resolve, raw).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _literal(word: str) -> Json:
    """The value of a bare word: a literal of JSON, Python or JavaScript, a number, else the word itself."""
    plain = unicodedata.normalize("NFKC", word).strip().strip(INVISIBLE).casefold()
    if plain in _LITERALS:
        return _LITERALS[plain]
    if _INTEGER.fullmatch(plain):
        return int(plain)
    return float(plain) if _NUMBER.fullmatch(plain) else word.strip()


class _BrokenError(Exception):
    """The text at the reader's position is no JSON, however loosely read."""


class Scanner:
    """Walks once over a text, from one landmark in the prose to the next."""

    def __init__(self, text: str, matters: Callable[[str], bool]) -> None:
        self.text = text
        self.matters = matters
        self.position = 0
        self.found = Found()
        self.broken = 0
        self.relevant = False  # the value being read has a key that matters
        self.objects: list[tuple[int, Object]] = []  # the whole objects of the value being read, and where they start
        self.endless: set[tuple[str, re.Pattern[str]]] = set()  # strings whose end was sought in vain

    def run(self) -> Found:
        """Walk to the end of the text."""
        while landmark := _LANDMARK.search(self.text, self.position):
            self.position = landmark.end()
            if self.broken > _MAX_BROKEN:
                self._doubt(landmark.start())
                break
            if landmark["value"]:
                self._candidate(landmark.start())
            elif landmark["closing"]:
                if self._ends_a_line(landmark):
                    self.found = Found()
            elif landmark["opening"]:
                if not (end := _REASONING_END.search(self.text, self.position)):
                    break
                self.position = end.end()
            elif self.matters(_unescape(landmark["key"][1:-1])):
                self._doubt(landmark.start())  # a piece of JSON that belongs to no value
        else:
            if cut := _CUT_OBJECT.search(self.text, max(self.position, len(self.text) - 100)):
                self._doubt(cut.start())
        return self.found

    def _ends_a_line(self, tag: re.Match[str]) -> bool:
        """Whether an orphan closing tag stands at an edge of its line; amid a sentence it is only spoken of."""
        before = self.text[max(0, tag.start() - 300) : tag.start()].rpartition("\n")[2]
        after = self.text[tag.end() : tag.end() + 300].partition("\n")[0]
        return not (before.strip() and after.strip())

    def _doubt(self, position: int) -> None:
        self.found.doubt = self.found.doubt or self.text[position : position + 40]

    def _candidate(self, start: int) -> None:
        self.position, self.relevant, self.objects = start, False, []
        try:
            self.found.values.append(self._value(0, _END_IN_ARRAY))
        except _BrokenError:
            if self.objects:
                self.found.values.append([whole for _, whole in self.objects])
            self.broken += 1
        if self.relevant and _QUOTATION.search(self.text[max(0, start - 40) : start]):
            self._doubt(start)

    def _value(self, depth: int, string_end: re.Pattern[str]) -> Json:
        opening = self.text[self.position : self.position + 1]
        if opening in CLOSERS:
            return self._string(string_end)
        if opening in ("[", "［"):
            return self._array(depth)
        if opening in ("{", "｛"):
            return self._object(depth)
        word = (_WORD_IN_ARRAY if string_end is _END_IN_ARRAY else _WORD).match(self.text, self.position)
        if not word:
            raise _BrokenError
        self.position = word.end()
        return _literal(word[0])

    def _enter(self, depth: int) -> None:
        self.position += 1
        if depth >= MAX_DEPTH:
            raise _BrokenError

    def _skip(self, pattern: re.Pattern[str]) -> None:
        if match := pattern.match(self.text, self.position):
            self.position = match.end()

    def _closes(self, brackets: str) -> bool:
        """Go to the next member of an array or object; whether there is none because it closes here."""
        self._skip(_SEPARATION)
        closes = self.text[self.position : self.position + 1] in tuple(brackets)
        self.position += closes
        return closes

    def _array(self, depth: int) -> list[Json]:
        self._enter(depth)
        values: list[Json] = []
        while not self._closes("]］"):
            values.append(self._value(depth + 1, _END_IN_ARRAY))
        return values

    def _object(self, depth: int) -> Object:
        start = self.position
        self._enter(depth)
        pairs: list[tuple[str, Json]] = []
        further, matters = bool(self.objects), False
        try:
            while not self._closes("}｝"):
                key = _KEY.match(self.text, self.position)
                if not key:
                    raise _BrokenError
                name = key["bare"] or _unescape(key["quoted"][1:-1])
                matters |= self.matters(name)
                self.position = key.end()
                self._skip(_SPACE)
                string_end = _END_IN_OBJECT[depth > 0, key["bare"] is not None]
                pairs.append((name, self._value(depth + 1, string_end)))
        except _BrokenError:
            if matters or further:
                self._doubt(self.position)
            raise
        whole = Object(pairs)
        self.relevant |= matters
        while self.objects and self.objects[-1][0] > start:
            self.objects.pop()
        self.objects.append((start, whole))
        return whole

    def _string(self, string_end: re.Pattern[str]) -> str:
        """Read up to the first quote behind which the object or array goes on."""
        start = self.position + 1
        closers = CLOSERS[self.text[self.position]]
        self.position = start
        if (closers, string_end) in self.endless:
            raise _BrokenError
        inner_quotes = False
        for stop in _STOPS[closers].finditer(self.text, start):
            if stop[0][0] == "\\":
                continue
            if string_end.match(self.text, stop.end()):
                raw = self.text[start : stop.start()]
                if inner_quotes and any(self.matters(key["key"][1:-1]) for key in _QUOTED_KEY.finditer(raw)):
                    self._doubt(start)
                self.position = stop.end()
                return _unescape(raw)
            inner_quotes = True
        self.endless.add((closers, string_end))
        raise _BrokenError
