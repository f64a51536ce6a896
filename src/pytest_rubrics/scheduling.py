"""Hands the items of a run to the workers of pytest-xdist, through its hook ``pytest_xdist_make_scheduler``.

A worker has many calls in flight, ahead of its tests. So only workers that call get tasks; and hosts do not share a
cache, so each has its own part of the tasks, over which its workers look ahead: what two hosts asked for would be paid
twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from pytest_rubrics.workers import Seat, Workers

QUEUED = 2  # items that a worker needs at least: it runs one when it knows the next


class Node(Protocol):
    """What is used here of a worker's controller in pytest-xdist."""

    gateway: Any
    shutting_down: bool

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        """Hand items over."""

    def shutdown(self) -> None:
        """End it when it has run what it has."""


@dataclass(slots=True, eq=False, repr=False)
class TaskScheduling:
    """A scheduler of pytest-xdist; see its protocol ``xdist.scheduler.Scheduling``.

    Attributes:
        workers: The seats of the workers.
        config: The controller's configuration; other plugins look for it here.
        is_task: Whether the item of a node id is a task; other items go to any worker.
        expected: Workers that take part from the start.
    """

    workers: Workers
    config: pytest.Config
    is_task: Callable[[str], bool]
    expected: int
    _collections: dict[Node, Sequence[str]] = field(default_factory=dict)
    _given: dict[Node, list[int]] = field(default_factory=dict)
    _tasks: Mapping[str, deque[int]] = field(default_factory=dict)
    _others: deque[int] = field(default_factory=deque)
    _home: Mapping[int, deque[int]] = field(default_factory=dict)  # the queue that each item belongs to
    _items: Sequence[str] | None = None

    @property
    def nodes(self) -> list[Node]:
        """The workers."""
        return list(self._given)

    @property
    def collection_is_completed(self) -> bool:
        """Whether all workers that take part from the start have collected."""
        return len(self._collections) >= self.expected

    @property
    def has_pending(self) -> bool:
        """Whether there are items that have not been run."""
        return any(self._queues()) or any(self._given.values())

    @property
    def tests_finished(self) -> bool:
        """Whether no worker needs to be handed anything more."""
        waiting = any(self._queues()) or any(len(given) >= QUEUED for given in self._given.values())
        return self.collection_is_completed and not waiting

    def add_node(self, node: Node) -> None:
        """Take a worker in."""
        self._given[node] = []

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        """Hear what a worker has collected."""
        if self._items is None or self._agrees(node, collection):
            self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Hand out the first items; for a worker that has come later, those that are left."""
        if self._items is None:
            (_, items), *rest = self._collections.items()
            self._items = items
            odd = [node for node, collection in rest if not self._agrees(node, collection)]
            if odd:
                return
            self._sort(items)
        for node in self.nodes:
            self._hand_over(node)

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        """Hear that a worker has run an item."""
        self._given[node].remove(item_index)
        self._hand_over(node)

    def mark_test_pending(self, item: str) -> None:
        """Run an item once more."""
        assert self._items is not None
        index = self._items.index(item)
        self._home[index].appendleft(index)
        for node in self.nodes:
            self._hand_over(node)

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        """Never needed: nothing is taken away from a worker."""
        raise NotImplementedError

    def remove_node(self, node: Node) -> str | None:
        """Let a worker go. Its items wait for the worker that takes its seat, or for others of its host.

        Returns:
            The item that it was running.
        """
        given = self._given.pop(node)
        if not given:
            return None
        assert self._items is not None
        for index in reversed(given[1:]):
            self._home[index].appendleft(index)
        for other in self.nodes:
            self._hand_over(other)
        return self._items[given[0]]

    def _sort(self, items: Sequence[str]) -> None:
        """Give each host its part of the tasks, by the same rule by which its workers look ahead."""
        tasks = [index for index, item in enumerate(items) if self.is_task(item)]
        parts = self.workers.parts
        self._tasks = {host: deque(tasks[n] for n in part.of(len(tasks))) for host, part in parts.items()}
        self._others = deque(index for index, item in enumerate(items) if not self.is_task(item))
        self._home = {index: queue for queue in self._queues() for index in queue}

    def _queues(self) -> list[deque[int]]:
        return [*self._tasks.values(), self._others]

    def _hand_over(self, node: Node) -> None:
        """Keep a worker supplied; end it when there is nothing left that it could get."""
        if self._items is None or node.shutting_down or node not in self._collections:
            return
        seat = self.workers.seats[node.gateway.id]
        given, longest = self._given[node], self.config.getoption("maxschedchunk")
        for queue, takers in self._sources(seat):
            wanted = max(QUEUED, len(queue) // takers // 4)
            if longest is not None:
                wanted = max(QUEUED, min(wanted, longest))
            if len(given) >= max(QUEUED, wanted // 2):
                return
            sent = [queue.popleft() for _ in range(min(len(queue), wanted - len(given)))]
            if sent:
                given.extend(sent)
                node.send_runtest_some(sent)
        if not any(queue for queue, _ in self._sources(seat)):
            node.shutdown()

    def _sources(self, seat: Seat) -> list[tuple[deque[int], int]]:
        """The queues that a worker takes from, with how many others do so too."""
        others = self._others, len(self._given)
        return [(self._tasks[seat.host], seat.count), others] if seat.calls else [others]

    def _agrees(self, node: Node, collection: Sequence[str]) -> bool:
        """Whether a worker has collected what the others have; it is reported where not."""
        if list(collection) == list(self._items or ()):
            return True
        theirs, own = set(self._items or ()), set(collection)
        missing, more = sorted(theirs - own), sorted(own - theirs)
        message = (
            f"Worker {node.gateway.id} collected other items than the first: {len(missing)} are missing "
            f"{missing[:3]}, {len(more)} are more {more[:3]}, or their order differs."
        )
        report = pytest.CollectReport(node.gateway.id, "failed", message, [])
        self.config.hook.pytest_collectreport(report=report)
        return False
