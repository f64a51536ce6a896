"""What keeps a run from being made on a Ray cluster; said before anything is called."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pytest_rubrics.config import AgentModel, EndpointConfig
from pytest_rubrics.faults import Fault

if TYPE_CHECKING:
    from pytest_rubrics.config import LoadedModel, Member

PLACE = "--engine ray"
WITH_WORKERS = Fault(PLACE, "spreads the grades over a cluster by itself.", fix="Leave out -n: one pytest is enough.")


def cluster_faults(models: Iterable[LoadedModel], members: Iterable[Member]) -> Iterator[Fault]:
    """Why these models and judges cannot be called from a cluster, or why there is none.

    Args:
        models: Models under test.
        members: Judges.
    """
    if importlib.util.find_spec("ray") is None:
        yield Fault(PLACE, "needs Ray, which is not installed.", fix="pip install 'pytest-rubrics[ray]'")
    if "://" in os.environ.get("RAY_ADDRESS", ""):
        fix = "Run pytest on a node of the cluster, with that cluster's host:port or without the variable."
        yield Fault("RAY_ADDRESS", "names a Ray client, and replies are stored where pytest runs.", fix=fix)
    for one in (*models, *members):
        if isinstance(one.config, EndpointConfig) and one.config.serve is not None:
            fix = "Start it apart and give its api_base, or leave out --engine ray."
            yield Fault(PLACE, f"{one.name} has a local server (serve), which other nodes cannot reach.", fix=fix)
        if isinstance(one.config, AgentModel) and "bash" in one.config.tools:
            message = f"{one.name} keeps files between its steps (bash), which would be lost with their node."
            yield Fault(PLACE, message, fix="Leave out --engine ray.")
