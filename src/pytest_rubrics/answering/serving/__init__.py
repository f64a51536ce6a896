"""Local model servers: one for a run, shared by all its processes, gone when the last of them is."""

from __future__ import annotations

from pytest_rubrics.answering.serving.leases import Lease, lease
from pytest_rubrics.answering.serving.settings import ServeConfig, ServingError
from pytest_rubrics.answering.serving.weights import identity

__all__ = ["Lease", "ServeConfig", "ServingError", "identity", "lease"]
