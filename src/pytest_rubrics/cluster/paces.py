"""The pace of every endpoint for a whole cluster: an actor on the controller's node, and what workers see of it.

Workers tell how long ago something happened, since clocks of several hosts differ.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pytest_rubrics.calls.errors import CallError, ProviderError
from pytest_rubrics.calls.pacing import Pacer
from pytest_rubrics.cluster.worker import EndpointId


class Paces:
    """The actor: the pacers of the controller, which other runs on its machine share.

    Args:
        pacers: By endpoint.
    """

    def __init__(self, pacers: Mapping[EndpointId, Pacer]) -> None:
        self._pacers = pacers

    async def wait(self, endpoint: EndpointId) -> float:
        """Seconds until a call may start."""
        return self._pacers[endpoint].wait()

    async def take(self, endpoint: EndpointId, tokens: float, alone: bool) -> bool:
        """Start a call if it may."""
        return self._pacers[endpoint].take(tokens, alone=alone)

    async def give_back(self, endpoint: EndpointId, tokens: float) -> None:
        """A call did not start after all."""
        self._pacers[endpoint].give_back(tokens)

    async def answered(
        self, endpoint: EndpointId, age: float, tokens: float, used: float, headers: Mapping[str, str]
    ) -> None:
        """A call was answered that started so many seconds ago."""
        self._pacers[endpoint].answered(time.monotonic() - age, tokens, used, headers)

    async def refused(self, endpoint: EndpointId, age: float, tokens: float, error: ProviderError) -> float:
        """A call was refused that started so many seconds ago."""
        return self._pacers[endpoint].refused(time.monotonic() - age, tokens, error)


class RemotePacer(Pacer):
    """The pace of one endpoint as a worker sees it.

    Args:
        actor: Handle of `Paces`.
        endpoint: Which one.
        counts_tokens: Whether the user permits a number of tokens.
    """

    def __init__(self, actor: Any, endpoint: EndpointId, *, counts_tokens: bool) -> None:
        super().__init__()
        self._actor = actor
        self._endpoint = endpoint
        self.counts_tokens = counts_tokens

    def wait(self) -> float:
        """Seconds until a call may start, as far as is known now; 0 if it may."""
        return float(self._ask("wait"))

    def take(self, tokens: float, *, alone: bool) -> bool:
        """Start a call if it may."""
        return bool(self._ask("take", tokens, alone))

    def give_back(self, tokens: float) -> None:
        """A call did not start after all."""
        self._actor.give_back.remote(self._endpoint, tokens)

    def answered(self, started: float, tokens: float, used: float, headers: Mapping[str, str]) -> None:
        """A call was answered."""
        self.learn(used)
        age = time.monotonic() - started
        self._actor.answered.remote(self._endpoint, age, tokens, used, dict(headers))

    def refused(self, started: float, tokens: float, error: ProviderError) -> float:
        """A call was refused for now; seconds until calls start again."""
        return float(self._ask("refused", time.monotonic() - started, tokens, error))

    def _ask(self, method: str, *arguments: object) -> Any:
        from ray.exceptions import RayActorError

        try:
            return getattr(self._actor, method).remote(self._endpoint, *arguments).future().result()
        except RayActorError as error:
            raise CallError("error", "the pace on the controller's node cannot be reached") from error
