"""Chat models: one turn, the task's prompt as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_rubrics.answering.answer import Answer, AnsweringError, read_answer
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.calls.request import Request
from pytest_rubrics.tasks import Task


@dataclass(frozen=True, slots=True, repr=False)
class ChatAnswerer:
    """Answers tasks with a chat model.

    Attributes:
        gateway: The way of every call.
        endpoint: Where the model is.
        params: Sampling parameters, sent as they are.
        extra_body: Fields that only this provider knows.
    """

    gateway: Gateway
    endpoint: Endpoint
    params: Mapping[str, Any]
    extra_body: Mapping[str, Any]

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The answer to one task.

        Raises:
            CallError: There is no reply, and it is not the model's fault.
        """
        question = self.request(task, repeat)
        opening = self.gateway.opening(question, anew=anew)
        request = question.again(opening.attempt)
        reply = await self.gateway.complete(request, self.endpoint, turn, opening)
        if reply.malformed is not None:
            partial = Answer(text=None, replies=(reply,), keys=(request.key(),))
            raise AnsweringError("malformed_response", f"{self.endpoint.name}: {reply.malformed}", partial)
        return read_answer(reply, request.key())

    def request(self, task: Task, repeat: int) -> Request:
        """The wire request of a task."""
        messages = [{"role": "user", "content": task.prompt}]
        if task.system_prompt and task.system_prompt.strip():
            messages.insert(0, {"role": "system", "content": task.system_prompt})
        return Request(
            model=self.endpoint.model,
            address=self.endpoint.address,
            messages=messages,
            params=self.params,
            extra_body=self.extra_body,
            repeat=repeat,
        )
