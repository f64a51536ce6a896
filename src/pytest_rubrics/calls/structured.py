"""Asking for structured output in the strongest form an endpoint accepts, which is remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from pytest_rubrics.calls.cache import StoreFullError
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway

Result = TypeVar("Result")
Form = Literal["json_schema", "json_object", "text"]
FORMS: tuple[Form, ...] = ("json_schema", "json_object", "text")
ResponseFormat: TypeAlias = Mapping[str, Any] | None


@dataclass(slots=True, repr=False)
class StructuredOutput:
    """What one endpoint accepts.

    Attributes:
        gateway: The way of every call.
        endpoint: The endpoint.
        wanted: ``auto``, or the one form to use.
    """

    gateway: Gateway
    endpoint: Endpoint
    wanted: Literal["auto"] | Form
    _accepts: Form | None = None
    _worked: set[Form] = field(default_factory=set)

    async def ask(
        self,
        schema: Mapping[str, Any],
        is_stored: Callable[[ResponseFormat], bool],
        send: Callable[[ResponseFormat], Awaitable[Result]],
    ) -> Result:
        """Send with the strongest ``response_format`` that the endpoint takes.

        Nobody waits until that is found out: a refusal costs nothing, and most endpoints take the strongest.

        Args:
            schema: JSON schema of the reply.
            is_stored: Whether there is a reply to the question in a given ``response_format``.
            send: Makes the call with a given ``response_format``.

        Raises:
            CallError: The call failed for another reason than its form.
        """
        if self.wanted != "auto":
            return await send(response_format(self.wanted, schema))
        best = self._known() or FORMS[0]
        for form in sorted(FORMS, key=lambda form: form != best):  # any of them, whatever is known by now
            if is_stored(response_format(form, schema)):
                return await send(response_format(form, schema))
        *stronger, last = FORMS[FORMS.index(best) :]
        for form in stronger:
            try:
                reply = await send(response_format(form, schema))
            except CallError as error:
                if error.reason != "bad_request":
                    raise
            else:
                await self._remember(form)
                return reply
        reply = await send(response_format(last, schema))
        await self._remember(last)
        return reply

    def _known(self) -> Form | None:
        if self._accepts is None:
            row = self.gateway.store.get(self._row)
            self._accepts = row if row in FORMS else None
        return self._accepts

    async def _remember(self, form: Form) -> None:
        """One odd question may be refused in a form that others are not, and an endpoint may change."""
        self._worked.add(form)
        known = self._known()
        if known is None or FORMS.index(form) < FORMS.index(known) or known not in self._worked:
            self._accepts = form
            with suppress(StoreFullError):  # the reply met the same, and it is kept
                await self.gateway.store.put({self._row: form})

    @property
    def _row(self) -> str:
        return f"accepts:{self.endpoint.identity}"


def response_format(form: Form, schema: Mapping[str, Any]) -> ResponseFormat:
    """OpenAI's ``response_format`` for a form; None for plain text."""
    if form == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": schema}}
    return {"type": "json_object"} if form == "json_object" else None
