"""Python functions as tools, named in the YAML as ``package.module:function``."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pytest_rubrics.answering.tools.tool import Definition, Observation
from pytest_rubrics.calls.errors import CallError


@dataclass(slots=True)
class FunctionTool:
    """A function of the user's. It runs in this process, outside any sandbox.

    Attributes:
        path: ``package.module:function``.
    """

    path: str
    _function: Callable[..., Any] | None = field(default=None, init=False)

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides the results."""
        return {"python": self.path}

    async def check(self, folder: Path) -> None:
        """Import it; raises CallError where that fails."""
        self.load()

    def session(self, folder: Path) -> FunctionTool:
        """A function keeps nothing: it is its own session."""
        return self

    async def definitions(self) -> Sequence[Definition]:
        """The tool: arguments from the signature, the description from the docstring."""
        from pydantic import PydanticUserError, TypeAdapter

        function = self.load()
        try:
            schema = TypeAdapter[Any](cast(Any, function)).json_schema()
        except PydanticUserError as error:
            raise self._unusable(f"its signature gives no JSON schema: {error}") from error
        if schema.get("type") != "object":
            raise self._unusable("it takes arguments by position only")
        schema.setdefault("properties", {})
        return [Definition(function.__name__, inspect.getdoc(function) or "", schema)]

    def lost(self) -> str | None:
        """Nothing."""
        return None

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Observation:
        """Call the function; a blocking one in a thread, which is left to itself when the time is over."""
        from pydantic import ValidationError, validate_call

        function = self.load()
        started = time.perf_counter()
        try:
            async with asyncio.timeout(seconds):
                checked = validate_call(function)
                if inspect.iscoroutinefunction(function):
                    result = await checked(**arguments)
                else:
                    result = await _in_thread(lambda: checked(**arguments))
        except ValidationError as error:
            if error.title != function.__name__:  # raised inside the function
                return _failed(error, started)
            faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
            return Observation(f"The arguments do not fit: {'; '.join(faults)}", is_error=True)
        except TimeoutError:
            return Observation(f"No result after {seconds:g} seconds.", True, time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is for the model to see
            return _failed(error, started)
        return Observation(_as_text(result), seconds=time.perf_counter() - started)

    async def close(self) -> None:
        """Nothing is open."""

    async def discard(self) -> None:
        """Nothing is kept."""

    def load(self) -> Callable[..., Any]:
        """The function.

        Raises:
            CallError: It cannot be imported.
        """
        if self._function is None:
            module, _, name = self.path.partition(":")
            try:
                self._function = getattr(importlib.import_module(module), name)
            except Exception as error:
                raise self._unusable(f"{type(error).__name__}: {error}") from error
        if not callable(self._function):
            raise self._unusable("it is no function")
        return self._function

    def _unusable(self, reason: str) -> CallError:
        fix = "Name an importable function with type hints, as package.module:function."
        return CallError("error", f"the tool python: {self.path} cannot be used: {reason}. {fix}")


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread of its own: one that hangs must hold up neither a pool nor the exit."""
    done: Future[Any] = Future()

    def run() -> None:
        with contextlib.suppress(InvalidStateError):  # nobody waits any more
            try:
                done.set_result(function())
            except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                done.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - sys.exit() must end neither this process nor its loop
                done.set_exception(RuntimeError(repr(error)))

    threading.Thread(target=run, name="rubrics-function", daemon=True).start()
    return await asyncio.wrap_future(done)


def _failed(error: Exception, started: float) -> Observation:
    return Observation(f"{type(error).__name__}: {error}", True, time.perf_counter() - started)


def _as_text(result: Any) -> str:
    if result is None:
        return "[no result]"
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
