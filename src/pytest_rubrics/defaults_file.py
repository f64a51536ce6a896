"""The contents of ``configs/defaults.yaml``: a workspace's own defaults of the command line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pytest_rubrics.yaml_files import YamlModel

Count = Annotated[int, Field(ge=1)]


class DefaultsFile(YamlModel):
    """Keys are the options without dashes, ``_`` for ``-``; paths are relative to the workspace root."""

    model: str | list[str] | None = None
    judge: str | None = None
    source: str | list[str] | None = None
    limit: Count | None = None
    repeats: Count | None = None
    concurrency: Count | None = None
    cache_dir: str | None = None
    cache_mode: Literal["rw", "offline", "refresh", "off"] | None = None
    run_dir: str | None = None
    gate: str | None = None
    max_cost: Annotated[float, Field(ge=0)] | None = None
    estimate: bool | None = None
    retry: Literal["excluded", "failed", "all"] | None = None
    engine: Literal["local", "ray"] | None = None
    shard: str | None = None
