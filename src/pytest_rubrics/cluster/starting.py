"""Joining a Ray cluster, or starting one on this machine, without a word on the terminal."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

OBJECT_STORE_BYTES = 200_000_000  # of a cluster of our own; plans and grades are small
CONCURRENCY = 100_000  # calls that wait in one actor; the limits are elsewhere


class ClusterError(Exception):
    """The run cannot use the cluster; the text says why."""


def join() -> None:
    """Join the cluster that ``RAY_ADDRESS`` names, or one that runs on this machine; else start one here.

    Raises:
        ClusterError: It cannot be joined.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _check_reachable(os.environ.get("RAY_ADDRESS", ""))
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:
            ray.init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
        except RuntimeError as error:  # other versions of Ray or Python
            raise ClusterError(str(error)) from error
        with suppress(AttributeError):
            # Of a dead node Ray speaks on standard output, amid pytest's dots; the run says it itself.
            ray._private.worker.print_to_stdstream = lambda *_, **__: None


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ClusterError(f"RAY_ADDRESS={address}: there is no cluster: {error}") from error


def leave() -> None:
    """Leave the cluster; one that was started here ends."""
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handler of SIGTERM, which Ray replaces by one that leaves the book of the run open."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def actor(kind: type, node: str, *arguments: Any, **options: Any) -> Any:
    """Start an actor on a node.

    Args:
        kind: Its class.
        node: Ray's id of the node.
        arguments: For the class.
        options: For Ray.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place = NodeAffinitySchedulingStrategy(node, soft=False)
    remote = ray.remote(kind).options(scheduling_strategy=place, max_concurrency=CONCURRENCY, **options)
    return remote.remote(*arguments)
