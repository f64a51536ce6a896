"""Asking for structured output: the strongest form an endpoint accepts, found out once and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pytest_rubrics.calls.cache import StoreFullError
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.gateway import Gateway

Result = TypeVar("Result")
Form = Literal["json_schema", "json_object", "text"]
FORMS: tuple[Form, ...] = ("json_schema", "json_object", "text")


@dataclass(slots=True)
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
    _failed: bool = False

    async def ask(
        self, schema: Mapping[str, Any], send: Callable[[Mapping[str, Any] | None], Awaitable[Result]]
    ) -> Result:
        """Send with the strongest ``response_format`` that the endpoint takes.

        Args:
            schema: JSON schema of the reply.
            send: Makes the call with a given ``response_format``.

        Raises:
            CallError: The call failed for another reason than its form.
        """
        store = self.gateway.store
        while (form := self._known()) is None:
            # One call of all processes finds out, the others wait for it; where it failed, everybody tries.
            alone = await self._claim()
            if not (alone or self._failed):
                await store.wait(self._row)
                continue
            try:
                if self._known() is None:  # another may have found out between our look and our claim
                    return await self._find_out(schema, send)
            finally:
                if alone:
                    await asyncio.shield(store.release(self._row))
        return await send(response_format(form, schema))

    def _known(self) -> Form | None:
        if self.wanted != "auto":
            return self.wanted
        if self._accepts is None:
            row = self.gateway.store.get(self._row)
            self._accepts = row if row in FORMS else None
        return self._accepts

    async def _claim(self) -> bool:
        with suppress(StoreFullError):
            return await self.gateway.store.claim(self._row)
        return True

    @property
    def _row(self) -> str:
        return f"accepts:{self.endpoint.identity}"

    async def _find_out(
        self, schema: Mapping[str, Any], send: Callable[[Mapping[str, Any] | None], Awaitable[Result]]
    ) -> Result:
        for form in FORMS:
            try:
                reply = await send(response_format(form, schema))
            except CallError as error:
                if error.reason != "bad_request" or form == FORMS[-1]:
                    self._failed = True
                    raise
                continue
            self._accepts = form
            with suppress(StoreFullError):  # the reply met the same, and it is kept
                await self.gateway.store.put({self._row: form})
            return reply
        raise AssertionError("the last form either returns or raises")


def response_format(form: Form, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """OpenAI's ``response_format`` for a form; None for plain text."""
    if form == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": schema}}
    return {"type": "json_object"} if form == "json_object" else None
