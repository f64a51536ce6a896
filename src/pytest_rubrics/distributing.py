"""What the controller of pytest-xdist decides and tells about its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import execnet
import pytest

from pytest_rubrics import merging
from pytest_rubrics.recorder import settings_of
from pytest_rubrics.scheduling import TaskScheduling
from pytest_rubrics.workers import EXECMODEL, HERE, Workers, callers_of, host_of, is_elsewhere, place_of

if TYPE_CHECKING:
    from execnet import XSpec

    from pytest_rubrics.plan import Plan
    from pytest_rubrics.session import Session

REACH_WITHIN = 60.0  # seconds in which a host must let a worker start
_PREFIX = "RUBRICS_"


def workers_of(config: pytest.Config, plan: Plan, specs: Sequence[XSpec]) -> Workers:
    """The workers that there will be.

    Raises:
        UsageError: Hosts cannot be kept apart, or a limit cannot be split over them.
    """
    hosts = [host_of(spec) for spec in specs]
    is_usual = config.getoption("dist") == "load"
    if len(set(hosts)) > 1 and not is_usual:
        raise pytest.UsageError(
            f"--dist {config.getoption('dist')} would send a task to any host, and hosts pay for what they look ahead "
            "at: with several hosts only --dist load works."
        )
    callers = callers_of(hosts) if is_usual else {host: hosts.count(host) for host in hosts}
    workers = Workers(callers)
    for name, limit in _limits(plan):
        if not all(part.of(limit) for part in workers.parts.values()):
            workers.stop()
            raise pytest.UsageError(
                f"{name} {limit} cannot be split over {len(callers)} hosts: each needs one at least."
            )
    return workers


def told_to(node: Any, state: Session) -> dict[str, Any]:
    """What a worker must know, in plain types."""
    assert state.workers is not None
    spec, config = node.gateway.spec, state.plan.config
    seat = state.workers.sit(node.gateway.id, host_of(spec))
    elsewhere = is_elsewhere(spec)
    return {
        "run": config.run,
        "started_at": config.started_at,
        "run_dir": str(config.run_dir),
        "seat": (seat.number, seat.count),
        "part": (seat.part.first, seat.part.last, seat.part.total),
        "elsewhere": elsewhere,
        "sign": None if elsewhere else str(state.workers.sign),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)},
        "settings": None if seat.host == HERE else json.dumps(settings_of(state.plan)),
    }


def scheduler(config: pytest.Config, state: Session) -> TaskScheduling:
    """Hands out the items of a run."""
    recorder, workers = state.recorder, state.workers
    assert recorder is not None
    assert workers is not None
    return TaskScheduling(workers, config, lambda nodeid: nodeid in recorder.selected, expected=len(workers.seats))


def raise_usage_error(node: Any, error: object) -> None:
    """End the session when a worker could not begin because of a usage error; xdist would only start it again.

    Raises:
        UsageError: As the worker's.
    """
    _, found, message = str(error or "").partition("UsageError: ")
    if found:
        raise pytest.UsageError(f"on {host_of(node.gateway.spec)}: {message.strip()}")


def move_from_dead_host(node: Any, workers: Workers) -> str | None:
    """Let the worker that xdist will start for a lost one run on another host when its own cannot be reached.

    It takes the same seat, so it goes on with what was left of its host's part.

    Returns:
        What there is to say.
    """
    spec = node.gateway.spec
    if not is_elsewhere(spec) or _can_be_reached(place_of(spec)):
        return None
    for place in workers.callers:
        if place != place_of(spec) and _can_be_reached(place):
            node.gateway.spec = execnet.XSpec(EXECMODEL + place)
            node.gateway.spec.in_place_of = host_of(spec)
            return f"{place_of(spec)} cannot be reached: what was left for it goes on at {place}"
    return None


def _can_be_reached(place: str) -> bool:
    """Whether a worker could start there; tried in a process of its own, for execnet leaves open what has failed."""
    command = [sys.executable, "-c", "import execnet, sys; execnet.makegateway(sys.argv[1]).exit()", place]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=REACH_WITHIN, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    return tried.returncode == 0


def _limits(plan: Plan) -> Iterator[tuple[str, int]]:
    yield "--concurrency", plan.config.concurrency
    for endpoint in [*plan.models, *plan.judge.members]:
        limit = getattr(endpoint.config, "max_concurrency", None)
        if limit is not None:
            yield f"max_concurrency of {endpoint.name}", limit


def check_settings(told: Mapping[str, Any], plan: Plan) -> None:
    """See that a worker has the models, judge, prompts and data of its controller: a host may have older files.

    Raises:
        UsageError: Something differs.
    """
    expected = dict(merging.settings_of(json.loads(told["settings"])))
    found = dict(merging.settings_of(json.loads(json.dumps(settings_of(plan)))))
    lines = [
        f"{' '.join(place)}, {key}: found {is_}, expected {wanted} as on the controller."
        for place in expected | found
        for key, is_, wanted in merging.differences(found.get(place, {}), expected.get(place, {}))
    ]
    if lines:
        raise pytest.UsageError("\n  ".join(["the files of this host differ from the controller's:", *lines]))
