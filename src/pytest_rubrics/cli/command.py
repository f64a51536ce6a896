"""What a subcommand is, and what all of them share. A subcommand imports what it needs when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_rubrics.benchmarks import Benchmark
    from pytest_rubrics.workspace import Workspace

USAGE_ERROR = 4  # pytest's own code for it
SHOWN_FAULTS = 50

Run = Callable[[argparse.Namespace], int | None]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a subcommand, as argparse takes it."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand.

    Attributes:
        name: How it is called; two words for one of a group, such as ``cache stats``.
        help: What it does, in one line.
        arguments: Its arguments.
        run: Does it, and returns the exit code; None is 0.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...]
    run: Run


def argument(*names: str, **settings: Any) -> Argument:
    """An argument, in the words of ``ArgumentParser.add_argument``."""
    return Argument(names, settings)


def command(name: str, help: str, *arguments: Argument) -> Callable[[Run], Command]:
    """Make a subcommand of a function; it is offered once it stands in ``COMMANDS``."""
    return lambda run: Command(name, help, arguments, run)


def say(text: str = "") -> None:
    """Print, without secrets."""
    from pytest_rubrics.redaction import redact

    print(redact(text))


def complain(text: str) -> None:
    """Print to standard error, without secrets."""
    from pytest_rubrics.redaction import redact

    print(redact(text), file=sys.stderr)


def find_workspace() -> Workspace:
    """The workspace of the current folder: the nearest folder above that has ``benchmarks``, else the folder itself.

    Names that it lacks are those of the package.
    """
    from pytest_rubrics.workspace import Workspace

    here = Path.cwd()
    return Workspace(next((folder for folder in (here, *here.parents) if (folder / "benchmarks").is_dir()), here))


def data_dir(workspace: Workspace) -> Path:
    """Where published data sets are kept, as a run keeps them."""
    return workspace.root / ".cache" / "data"


def find_benchmark(name: str, workspace: Workspace) -> Benchmark:
    """A benchmark of the workspace, or else of the package.

    Raises:
        FaultsError: There is none of this name, or its file has faults.
    """
    from pytest_rubrics.benchmarks import BENCHMARK_FILE, BenchmarkFolder, load_benchmark
    from pytest_rubrics.faults import Fault, FaultsError
    from pytest_rubrics.suggestions import did_you_mean

    folders = [root / "benchmarks" for root in workspace.roots]
    known = sorted({path.parent.name for folder in folders for path in folder.glob(f"*/{BENCHMARK_FILE}")})
    if name not in known:
        fix = did_you_mean(name, known)
        raise FaultsError([Fault(name, f"there is no such benchmark. Known: {', '.join(known) or 'none'}.", fix=fix)])
    return load_benchmark(BenchmarkFolder(name, folders[0] / name, folders[-1] / name))
