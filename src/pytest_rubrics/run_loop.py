"""Pytest's loop over the items, with the tests whose grades are ready first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from itertools import groupby

import pytest


def run_by_completion(
    session: pytest.Session,
    indices: Mapping[str, int],
    held_back: Collection[int],
    first_finished: Callable[[Collection[int]], int],
) -> bool:
    """Run all items; of tests that differ in nothing but their grade, the one whose grade is ready is the next.

    Otherwise this is pytest's own loop. The next item that a test is told of has the same parents as the one that will
    be run: that is all that the teardown of fixtures depends on.

    Args:
        session: The session.
        indices: The job of each item that has one, by node id.
        held_back: Jobs that nobody begins before their tests; these go first.
        first_finished: Waits for the first grade of several jobs, and says which it is.
    """
    blocks = [list(block) for _, block in groupby(session.items, key=lambda item: _kind(item, indices))]
    following: list[pytest.Item | None] = [*(block[0] for block in blocks[1:]), None]
    for block, after in zip(blocks, following, strict=True):
        block.sort(key=lambda item: indices.get(item.nodeid) not in held_back)
        waiting = OrderedDict((indices.get(item.nodeid, -1), item) for item in block)
        while waiting:
            index = next(iter(waiting))
            if len(block) > 1 and index not in held_back:
                index = first_finished(waiting.keys())
            item = waiting.pop(index)
            nextitem = next(iter(waiting.values()), after)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    return True


def keeps_order(config: pytest.Config) -> bool:
    """Whether the user has asked for the order of the items, or for an end that depends on it."""
    return any(config.getoption(name, None) for name in ("maxfail", "stepwise", "failedfirst", "newfirst"))


def may_run(session: pytest.Session) -> bool:
    """Whether the loop is ours to run.

    It is not where another plugin has one: in a worker, pytest-xdist says which item is next.
    """
    impls = session.config.hook.pytest_runtestloop.get_hookimpls()
    loops = [impl for impl in impls if not (impl.wrapper or impl.hookwrapper)]
    return len(loops) <= 2 and not keeps_order(session.config)  # pytest's and the one that asks


def _kind(item: pytest.Item, indices: Mapping[str, int]) -> object:
    """Equal for neighbours that may change places: calls of one function that differ in their grade alone."""
    callspec = getattr(item, "callspec", None)
    if item.nodeid not in indices or callspec is None or len(callspec.params) > 1 or _has_timeout(item):
        return item
    return item.parent, getattr(item, "originalname", item.name)


def _has_timeout(item: pytest.Item) -> bool:
    """Whether pytest-timeout counts the seconds in which a test waits: then it has to wait inside the test."""
    return bool(item.get_closest_marker("timeout") or getattr(item.config, "_env_timeout", None))
