"""Subcommands about the data of a benchmark."""

from __future__ import annotations

import argparse

from pytest_rubrics.cli.command import argument, command, data_dir, find_benchmark, find_workspace, say


@command(
    "describe",
    "statistics of the tasks of a benchmark",
    argument("benchmark", metavar="BENCHMARK", help="name of the benchmark"),
    argument("--source", metavar="VALUE", default="sample", help="sample (default), full, or a path"),
)
def describe(options: argparse.Namespace) -> None:
    """Print the statistics of a benchmark's data."""
    from pytest_rubrics import describing
    from pytest_rubrics.sources import SAMPLE, Source

    workspace = find_workspace()
    benchmark = find_benchmark(options.benchmark, workspace)
    loaded = Source(options.source, data_dir(workspace)).load(benchmark)
    say(f"{benchmark.spec.title}: {len(loaded.tasks)} tasks from {loaded.origin}")
    if options.source == SAMPLE:
        say("SAMPLE: these are bundled sample tasks; --source full is the published data set.")
    say()
    say(describing.render(describing.describe(loaded.tasks, benchmark.tags)).rstrip("\n"))


@command(
    "fetch",
    "download the published data set of a benchmark, as --source full does",
    argument("benchmark", metavar="BENCHMARK", help="name of the benchmark"),
)
def fetch(options: argparse.Namespace) -> None:
    """Download a data set, check that every row is a task, and print where it is."""
    from pytest_rubrics.sources import FULL, Source

    workspace = find_workspace()
    benchmark = find_benchmark(options.benchmark, workspace)
    loaded = Source(FULL, data_dir(workspace)).load(benchmark)
    hub = benchmark.spec.sources.hub
    assert hub is not None
    say(f"{benchmark.spec.title}: {len(loaded.tasks)} tasks from {loaded.origin}")
    say(f"in {data_dir(workspace) / benchmark.name / hub.first.revision}")
    for name, sha256 in loaded.checksum.items():
        say(f"{sha256}  {name}")
