"""What a judge replied: lenient about syntax, strict about content.

A reply is read only where it leaves no choice. Everything else is malformed and asked again, which costs one call; a
verdict read wrongly would cost the trust in all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_rubrics.characters import whole_characters
from pytest_rubrics.judging import vocabulary as words
from pytest_rubrics.judging.json_reply import Json, Object, find, parse

Said: TypeAlias = Mapping[words.Kind, list[Json]]


class MalformedReplyError(ValueError):
    """The reply cannot be read. The text says why, in words fit to send back to the judge."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The verdict on one criterion of a sheet; the justification is "" where there is none."""

    hit: bool
    justification: str


@dataclass(frozen=True, slots=True)
class CriterionReading:
    """The verdict on a criterion judged alone.

    Attributes:
        verdict: ``Satisfied``, ``Not Satisfied`` or, from a ternary judge, ``Partially Satisfied``.
        score: 1.0, 0.0 or, for a partial verdict, 0.5.
        reasoning: The judge's words, "" where there are none.
    """

    verdict: str
    score: float
    reasoning: str


_VERDICTS = {1.0: "Satisfied", 0.0: "Not Satisfied", 0.5: "Partially Satisfied"}


def read_sheet(text: str | None, expected_ids: Sequence[str]) -> dict[str, Reading]:
    """Read the verdicts on all criteria of a task from one reply.

    Args:
        text: The reply; None counts as empty.
        expected_ids: The ids that were asked for. Ids are opaque, but 3, 3.0, "Rubric 3" and "第3条" denote "3" where
            no other expected id could be meant.

    Returns:
        One reading for each expected id, in their order.

    Raises:
        MalformedReplyError: There is not exactly one clear verdict for each expected id, or there are others.
    """
    ids = _Ids(expected_ids)
    keys = words.STATUS_KEYS | words.ID_KEYS | words.VAGUE_ID_KEYS
    values = _values(text, lambda key: words.name(key) in keys or key in ids)
    return _decide([part for value in values for part in _top_parts(value, ids)], expected_ids)


def read_criterion(text: str | None, *, ternary: bool = False) -> CriterionReading:
    """Read the verdict on one criterion.

    Args:
        text: The reply; None counts as empty.
        ternary: Whether the judge may also say ``Partially Satisfied``.

    Raises:
        MalformedReplyError: There is no clear verdict, its score says something else, or two verdicts disagree.
    """
    keys = words.STATUS_KEYS | words.SCORE_KEYS
    objects = [one for value in _values(text, lambda key: words.name(key) in keys) for one in _objects(value)]
    verdicts = [(status, one) for one in objects for status in _said(one)["status"]]
    if not verdicts:
        raise MalformedReplyError('The reply holds no JSON object with a "verdict".')
    grades = {_grade(status, ternary) for status, _ in verdicts}
    if len(grades) > 1:
        raise MalformedReplyError("The reply holds verdicts that contradict each other.")
    grade = grades.pop()
    for score in [member for one in objects for key, member in one if words.name(key) in words.SCORE_KEYS]:
        if isinstance(score, bool) or words.number(score) != grade:
            raise MalformedReplyError(f"The score is {_excerpt(score)}, which does not go with the verdict.")
    return CriterionReading(_VERDICTS[grade], grade, _reason(_said(verdicts[-1][1])))


def read_evidence(text: str | None) -> list[str]:
    """Read what a judge quoted from one chunk of a long report: the strings under ``relevant_evidence``.

    Raises:
        MalformedReplyError: There is no such list, it holds something else, or two lists disagree.
    """
    values = _values(text, lambda key: words.name(key) in words.EVIDENCE_KEYS)
    lists = [
        [quote for entry in member if (quote := _quote(entry)).strip()]
        for value in values
        for one in _objects(value)
        for key, member in one
        if words.name(key) in words.EVIDENCE_KEYS and isinstance(member, list)
    ]
    if not lists:
        raise MalformedReplyError('The reply holds no JSON object with a list "relevant_evidence".')
    if any(other != lists[0] for other in lists):
        raise MalformedReplyError('The reply holds several lists "relevant_evidence" that differ.')
    return lists[0]


@dataclass(frozen=True, slots=True)
class _Part:
    """Verdicts that stand together: those of one list, of one object keyed by id, or one alone."""

    shape: str
    verdicts: list[tuple[str, Reading]]


class _Ids:
    """The expected ids, and what else may denote them."""

    def __init__(self, expected: Sequence[str]) -> None:
        self._exact = set(expected)
        self._resolved: dict[str, str | None] = {}  # every entry of a reply repeats the same few keys
        self._loose: defaultdict[str, set[str]] = defaultdict(set)
        for one in expected:
            self._loose[words.id_form(one) or one].add(one)

    def __contains__(self, raw: Json) -> bool:
        return self.resolve(raw) is not None

    def resolve(self, raw: Json) -> str | None:
        """The expected id that is meant, or None where there is none or more than one."""
        if not isinstance(raw, str):
            return self._meant(raw)
        if raw not in self._resolved:
            self._resolved[raw] = self._meant(raw)
        return self._resolved[raw]

    def _meant(self, raw: Json) -> str | None:
        form = words.id_form(raw)
        if form is None:
            return None
        exact = raw if isinstance(raw, str) else form
        meant = {exact} if exact in self._exact else self._loose[form]
        return next(iter(meant)) if len(meant) == 1 else None


def _values(text: str | None, matters: Callable[[str], bool]) -> list[Json]:
    if not text or not text.strip():
        raise MalformedReplyError("The reply is empty.")
    found = find(text, matters)
    if found.doubt is not None:
        place = f"near {_excerpt(found.doubt)}" if found.doubt.strip() else "at its end"
        raise MalformedReplyError(f"The JSON of the reply is broken, cut off or ambiguous {place}.")
    return [_decoded(value) for value in found.values]


def _decoded(value: Json) -> Json:
    """The value, where a wrapper holds what it wraps as a string that is JSON once more. Other strings are texts."""
    return Object((key, _unpacked(key, member)) for key, member in value) if isinstance(value, Object) else value


def _unpacked(key: str, member: Json) -> Json:
    if isinstance(member, str) and words.name(key) in words.WRAPPER_KEYS and member.lstrip().startswith(("[", "{")):
        return parse(member) or member
    return member


def _top_parts(value: Json, ids: _Ids) -> list[_Part]:
    parts = _parts(value, ids)
    said = _said(value)
    if not parts and ((said["id"] and said["reason"]) or said["status"]):
        raise MalformedReplyError("A verdict lacks its id or its status.")
    return parts


def _parts(value: Json, ids: _Ids) -> list[_Part]:
    if isinstance(value, list):
        return _list_parts(value, ids)
    if not isinstance(value, Object):
        return []
    if any(key in ids and _marks(member) for key, member in value):
        others = [member for key, member in value if key not in ids]
        return [_keyed_part(value, ids), *(part for member in others for part in _parts(member, ids))]
    nested = [part for _, member in value if isinstance(member, (list, Object)) for part in _parts(member, ids)]
    said = _said(value)
    named = said["id"] + said["vague id"]
    is_wrapper = nested and not any(name in ids for name in named)
    if is_wrapper or not named or not said["status"]:
        return nested
    own = _own_id(said, ids)
    return [_Part("object", [(own, _reading(said, own))]), *nested]


def _list_parts(values: list[Json], ids: _Ids) -> list[_Part]:
    parts = [_parts(value, ids) for value in values]
    if not any(parts):
        return []
    if not all(parts):
        raise MalformedReplyError("A list of verdicts holds an entry without an id and a status.")
    return [_Part("list", [verdict for some in parts for part in some for verdict in part.verdicts])]


def _keyed_part(value: Object, ids: _Ids) -> _Part:
    verdicts = []
    for key, member in value:
        own = ids.resolve(key)
        if own is not None:
            said = _said(member if isinstance(member, Object) else Object([("status", member)]))
            verdicts.append((own, _reading(said, own)))
            if any(ids.resolve(name) != own for name in _names(said, ids)):
                raise MalformedReplyError(f"The verdict under {_excerpt(key)} carries another id.")
        elif _marks(member):
            raise _unknown(key)
    return _Part("keyed", verdicts)


def _marks(value: Json) -> bool:
    """Whether the value of a key says hit or not hit."""
    return bool(_said(value)["status"]) if isinstance(value, Object) else words.hit(value) is not None


def _names(said: Said, ids: _Ids) -> list[Json]:
    """What an object gives as its id. A vague key counts where it names a criterion."""
    return said["id"] + [name for name in said["vague id"] if name in ids]


def _own_id(said: Said, ids: _Ids) -> str:
    named = _names(said, ids) or said["vague id"]
    meant = {ids.resolve(name): name for name in named}
    if None in meant:
        raise _unknown(meant[None])
    if len(meant) > 1:
        raise MalformedReplyError(f"One verdict carries several ids: {_listed(map(str, meant))}.")
    return next(own for own in meant if own is not None)


def _unknown(name: Json) -> MalformedReplyError:
    return MalformedReplyError(f"There is no criterion with the id {_excerpt(name)}.")


def _reading(said: Said, own: str) -> Reading:
    """The verdict of an object."""
    statuses = said["status"]
    hits = {words.hit(status) for status in statuses}
    if not hits or None in hits:
        wrong = next((status for status in statuses if words.hit(status) is None), None)
        raise MalformedReplyError(f"The status of {_excerpt(own)} is {_excerpt(wrong)}; it must be yes or no.")
    if len(hits) > 1:
        raise MalformedReplyError(f"The verdict on {_excerpt(own)} says both yes and no.")
    hit = hits == {True}
    for score in said["score"]:
        number = words.number(score)
        # Other numbers are points, which are none of the judge's business.
        if number is not None and (0 < number < 1 or (number in {0, 1} and number != hit)):
            raise MalformedReplyError(f"The score of {_excerpt(own)} contradicts its status.")
    return Reading(hit, _reason(said))


def _decide(parts: list[_Part], expected: Sequence[str]) -> dict[str, Reading]:
    """The one reading on which all parts of the reply agree."""
    for part in parts:
        _refuse_repeated(part.verdicts)
    complete = [part for part in parts if len(part.verdicts) == len(expected)]
    if complete:
        readings = dict(complete[-1].verdicts)
        if parts[-1] is not complete[-1]:
            raise MalformedReplyError("An incomplete list of verdicts follows a complete one.")
        if any(reading.hit != readings[own].hit for part in parts for own, reading in part.verdicts):
            raise MalformedReplyError("The reply holds verdicts that contradict each other.")
    else:
        # A stray verdict must not fill a gap in a list, so only parts of one shape add up.
        if len({part.shape for part in parts}) > 1:
            raise MalformedReplyError("The verdicts are spread over the reply and do not form one list.")
        verdicts = [verdict for part in parts for verdict in part.verdicts]
        _refuse_repeated(verdicts)
        readings = dict(verdicts)
    missing = [own for own in expected if own not in readings]
    if missing and not readings:
        raise MalformedReplyError("The reply holds no verdicts as JSON objects with an id and a status.")
    if missing:
        several = len(missing) > 1
        raise MalformedReplyError(
            f"The verdict{'s' * several} for {_listed(missing)} {'are' if several else 'is'} missing."
        )
    return {own: readings[own] for own in expected}


def _refuse_repeated(verdicts: list[tuple[str, Reading]]) -> None:
    repeated = [own for own, times in Counter(own for own, _ in verdicts).items() if times > 1]
    if repeated:
        raise MalformedReplyError(f"There is more than one verdict for {_listed(repeated)}.")


def _grade(status: Json, ternary: bool) -> float:
    grade = words.grade(status, ternary=ternary)
    if grade is None:
        allowed = [f'"{verdict}"' for score, verdict in _VERDICTS.items() if ternary or score != 0.5]
        raise MalformedReplyError(f"The verdict is {_excerpt(status)}; it must be {' or '.join(allowed)}.")
    return grade


def _reason(said: Said) -> str:
    reasons = (reason for reason in said["reason"] if isinstance(reason, str))
    return next((whole_characters(reason) for reason in reasons if reason.strip()), "")


def _quote(entry: Json) -> str:
    if isinstance(entry, Object):
        entry = next((member for key, member in entry if words.name(key) in words.QUOTE_KEYS), None)
    if not isinstance(entry, str):
        raise MalformedReplyError('"relevant_evidence" must be a list of strings.')
    return whole_characters(entry)


def _objects(value: Json) -> Iterator[Object]:
    """Every object in a value, from the outside in."""
    if isinstance(value, Object):
        yield value
        value = [member for _, member in value]
    for member in value if isinstance(value, list) else ():
        yield from _objects(member)


def _said(item: Json) -> Said:
    """What an object says, by the kind of its keys; lists and objects say nothing by themselves."""
    said: dict[words.Kind, list[Json]] = {"status": [], "id": [], "vague id": [], "score": [], "reason": []}
    for key, member in item if isinstance(item, Object) else ():
        kind = words.kind(key)
        if kind is not None and not isinstance(member, (list, Object)):
            said[kind].append(member)
    return said


def _excerpt(value: Json) -> str:
    text = " ".join(whole_characters("null" if value is None else str(value)).split())
    return f"`{text[:30]}…`" if len(text) > 30 else f"`{text}`"


def _listed(names: Iterable[str]) -> str:
    shown = [name[:30] for name in names]
    if len(shown) > 12:
        return f"{', '.join(shown[:12])} and {len(shown) - 12} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
