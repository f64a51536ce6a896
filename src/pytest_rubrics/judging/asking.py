"""Asking a judge until its reply can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import LocalSlots, Turn
from pytest_rubrics.calls.reply import Reply
from pytest_rubrics.calls.request import Message, Request
from pytest_rubrics.calls.structured import ResponseFormat, StructuredOutput
from pytest_rubrics.judging.reply import MalformedReplyError

Reading = TypeVar("Reading")

SHOWN_REPLY = 6_000  # characters of a malformed reply that are shown to the judge again

_COMPLAINTS = {
    "en": "Your reply could not be used: {fault} Judge again and send the complete JSON, nothing else.{brief}",
    "zh": "你的回复无法使用：{fault} 请重新判断，并只输出完整的 JSON。{brief}",
}
_BRIEF = {
    "en": " It was cut off by the length limit, so keep each justification under fifteen words.",
    "zh": "上一次回复因长度限制被截断，每条理由请控制在二十字以内。",
}


@dataclass(slots=True)
class Asked(Generic[Reading]):
    """What came of one question to a judge.

    Attributes:
        reading: Reading of the last reply; None where none could be read.
        replies: Paid replies.
        keys: Their cache keys.
        fault: What was wrong with the last malformed reply.
        malformed: Number of malformed replies.
        error: Why a call gave no reply, or None.
    """

    reading: Reading | None = None
    replies: list[Reply] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    fault: str = ""
    malformed: int = 0
    error: CallError | None = None

    def add(self, other: Asked[Any]) -> None:
        """Count another question in, but for its reading."""
        self.replies += other.replies
        self.keys += other.keys
        self.fault = other.fault or self.fault
        self.malformed += other.malformed
        self.error = self.error or other.error


@dataclass(frozen=True, slots=True)
class Round:
    """What all questions about one answer share.

    Attributes:
        repeat: Index of the repeat, counted from 1.
        turn: Place in the queue for slots.
        anew: Whether stored replies of former runs do not count.
        mend: Whether questions whose stored replies are all malformed are asked anew.
    """

    repeat: int
    turn: Turn
    anew: bool
    mend: bool = False


@dataclass(slots=True, repr=False)
class Asker:
    """A judge's endpoint, asked with structured output and asked again when the reply cannot be read.

    Attributes:
        gateway: The way of every call.
        endpoint: Where the judge is.
        output: What form of structured output the endpoint takes.
        params: Sampling parameters, sent as they are.
        extra_body: Fields that only this provider knows.
        attempts: Asks of one question before giving up.
        seat: Seat in a panel, or None.
    """

    gateway: Gateway
    endpoint: Endpoint
    output: StructuredOutput
    params: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    attempts: int
    seat: str | None = None
    _queue: LocalSlots = field(init=False)

    def __post_init__(self) -> None:
        # Prompts hold whole reports: few more are written than can be sent.
        self._queue = LocalSlots(2 * self.endpoint.width + 4, lambda: None)

    async def ask(
        self,
        messages: Callable[[], Sequence[Message]],
        schema: Mapping[str, Any],
        read: Callable[[str | None], Reading],
        language: str,
        round_: Round,
    ) -> Asked[Reading]:
        """Ask one question; ``reading`` of the result is None when every attempt was malformed, or a call failed.

        Args:
            messages: Writes the question.
            schema: JSON schema of the reply.
            read: Reads a reply, or raises MalformedReplyError.
            language: Language of complaints about malformed replies.
            round_: What all questions about one answer share.
        """
        async with self._queue.slot(round_.turn):
            return await self._ask(messages(), schema, read, language, round_)

    async def _ask(
        self,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        read: Callable[[str | None], Reading],
        language: str,
        round_: Round,
    ) -> Asked[Reading]:
        questions: dict[str, Request] = {}  # one for each form: each computes its key once

        def question_in(form: ResponseFormat) -> Request:
            name = form["type"] if form else "text"
            if name not in questions:
                questions[name] = self._request(messages, form, round_.repeat)
            return questions[name]

        async def send(form: ResponseFormat) -> Asked[Reading]:
            question = question_in(form)
            asked = await self._until_read(question, read, language, round_)
            if round_.mend and asked.reading is None and asked.error is None:
                asked = await self._until_read(question, read, language, replace(round_, anew=True))
            return asked

        def is_stored(form: ResponseFormat) -> bool:
            return self.gateway.has_reply(question_in(form))

        try:
            return await self.output.ask(schema, is_stored, send)
        except CallError as error:
            return Asked(error=error)

    def _request(self, messages: Sequence[Message], form: ResponseFormat, repeat: int) -> Request:
        return Request(
            model=self.endpoint.model,
            address=self.endpoint.address,
            messages=messages,
            params=self.params,
            extra_body=self.extra_body,
            response_format=form,
            repeat=repeat,
            seat=self.seat,
        )

    async def _until_read(
        self, question: Request, read: Callable[[str | None], Reading], language: str, round_: Round
    ) -> Asked[Reading]:
        opening = self.gateway.opening(question, anew=round_.anew, span=self.attempts)
        asked: Asked[Reading] = Asked()
        request = question.again(opening.attempt)
        for number in range(1, self.attempts + 1):
            begins = opening if number == 1 else None
            try:
                reply = await self.gateway.complete(request, self.endpoint, round_.turn, begins)
            except CallError as error:
                if not asked.replies:
                    raise  # the endpoint may take another form of the question
                asked.error = error
                return asked
            asked.replies.append(reply)
            asked.keys.append(request.key())
            try:
                asked.reading = read(_content(reply))
                return asked
            except MalformedReplyError as error:
                asked.fault = str(error)
                asked.malformed += 1
            request = question.again(
                opening.attempt + number, [*question.messages, *_complaint(reply, asked.fault, language)]
            )
        return asked


def _content(reply: Reply) -> str | None:
    if reply.malformed is not None:
        raise MalformedReplyError("The response held no message.")
    if reply.finish_reason == "content_filter":
        raise MalformedReplyError("The provider's content filter withheld the reply.")
    return reply.content


def _complaint(reply: Reply, fault: str, language: str) -> list[Message]:
    brief = _BRIEF[language] if reply.finish_reason == "length" else ""
    complaint = {"role": "user", "content": _COMPLAINTS[language].format(fault=fault, brief=brief)}
    if not reply.content:
        return [complaint]
    return [{"role": "assistant", "content": reply.content[:SHOWN_REPLY]}, complaint]
