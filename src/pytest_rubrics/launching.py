"""Starts the engine of a process on the items that pytest has selected, and looks after it while tests wait."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rubrics.run_loop import keeps_order, may_run, run_by_completion
from pytest_rubrics.session import Session, is_worker, selected_of, told

if TYPE_CHECKING:
    from pytest_rubrics.recorder import Selected
    from pytest_rubrics.wiring import Seat


def check_cache(config: pytest.Config, state: Session) -> None:
    """Open the cache of replies once on the controller: what is wrong with it is said once, before workers meet it.

    Raises:
        UsageError: It cannot be used.
    """
    from pytest_rubrics.calls.cache import ReplyStore, StoreError

    try:
        ReplyStore(state.plan.config.cache_dir, warn=partial(state.say, config)).close()
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def start_engine(session: pytest.Session, state: Session, items: list[pytest.Item]) -> bool | None:
    """Start the engine of this process on its items, and run these in the order in which their grades are ready.

    A worker that gets no tasks needs no engine.

    Returns:
        Whether the items have been run; None where another loop has to run them.

    Raises:
        UsageError: The cache directory or the cluster cannot be used.
    """
    from pytest_rubrics.calls.cache import StoreError
    from pytest_rubrics.cluster.starting import ClusterError
    from pytest_rubrics.wiring import wire

    config = session.config
    if session.testsfailed and not config.option.continue_on_collection_errors:
        return None  # pytest's own loop says what was wrong with the collection
    number, count = told(config).get("seat", (0, 1))
    if number >= count:
        return None
    state.indices = {item.nodeid: index for index, item in enumerate(items)}
    skipped = {index for index, item in enumerate(items) if _may_be_skipped(item)}
    stops_early = bool(config.getoption("maxfail", 0)) or bool(config.getoption("stepwise", False))
    selected = [selected_of(item) for item in items]
    try:
        state.wiring = wire(
            state.plan,
            [(one.plan, one.case) for one in selected],
            _seat_of(config),
            held_back=skipped,
            stops_early=stops_early,
            begins_with_tests=is_worker(config),  # the controller may still refuse the run
            warn=partial(state.say, config),
            expected=() if keeps_order(config) else _expected_seconds(state, selected),
        )
    except (StoreError, ClusterError) as error:
        raise pytest.UsageError(str(error)) from error
    if not may_run(session):
        return None
    engine = state.wiring.engine

    def wait(indices: Collection[int]) -> int:
        keep_quiet()
        return engine.first_finished(indices, tick=partial(tick, config, state))

    return run_by_completion(session, state.indices, skipped, wait)


def _expected_seconds(state: Session, selected: Sequence[Selected]) -> list[float | None]:
    """How long each answer should take, by what earlier runs left."""
    from pytest_rubrics.latencies import Latencies

    latencies = Latencies.read(state.plan.config.cache_dir)
    if not latencies.tables:
        return []
    expected = cache(latencies.expected)
    return [expected(one.case.task.benchmark, one.case.model).get(one.case.task.id) for one in selected]


def _may_be_skipped(item: pytest.Item) -> bool:
    """Whether marks may keep an item from running; a condition that is a text is pytest's to evaluate."""
    if any(item.iter_markers("skip")) or any(mark.kwargs.get("run") is False for mark in item.iter_markers("xfail")):
        return True
    conditions = [
        (mark.kwargs["condition"],) if "condition" in mark.kwargs else mark.args for mark in item.iter_markers("skipif")
    ]
    return any(not given or any(isinstance(one, str) or one for one in given) for given in conditions)


def _seat_of(config: pytest.Config) -> Seat:
    from pytest_rubrics.wiring import Seat
    from pytest_rubrics.workers import Part, goes_on

    said = told(config)
    if not said:
        return Seat()
    number, count = said["seat"]
    sign = said["sign"]
    may_launch = partial(goes_on, Path(sign)) if sign else _connection(config)
    return Seat(number, count, may_launch, Part(*said["part"]))


def _connection(config: pytest.Config) -> Callable[[], bool]:
    """Tells a worker on another host whether its controller is there: else execnet closes the channel at once."""
    plugins = (plugin for _, plugin in config.pluginmanager.list_name_plugin())
    channels = [plugin.channel for plugin in plugins if hasattr(plugin, "channel")]
    return lambda: not any(channel.isclosed() for channel in channels)


def keep_quiet() -> None:
    """Keep warnings of the engine's threads out of the filters that are in force now."""
    from pytest_rubrics.engine import THREADS
    from pytest_rubrics.quiet import put_filter_first

    put_filter_first(THREADS)


def tick(config: pytest.Config, state: Session) -> None:
    """What is done now and then while a test waits for its grade."""
    if state.wiring is not None and not state.wiring.seat.may_launch():
        raise KeyboardInterrupt("the controller has stopped the run")
    keep_quiet()
    if state.progress is None or state.wiring is None:
        return
    state.progress.update("main", state.wiring.snapshot())
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        state.say_the_rest(config)
        state.progress.tick()
