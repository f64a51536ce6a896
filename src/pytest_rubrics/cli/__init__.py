"""The command ``rubrics``: all that is done beside a run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from pytest_rubrics import __version__
from pytest_rubrics.cli.audit import audit
from pytest_rubrics.cli.baseline import baseline
from pytest_rubrics.cli.cache import explain, import_spilled, stats
from pytest_rubrics.cli.command import SHOWN_FAULTS, USAGE_ERROR, Command, complain
from pytest_rubrics.cli.compare import compare
from pytest_rubrics.cli.data import describe, fetch
from pytest_rubrics.cli.doctor import doctor
from pytest_rubrics.cli.export import export
from pytest_rubrics.cli.init import init
from pytest_rubrics.cli.opening import open_report
from pytest_rubrics.cli.rejudge import rejudge
from pytest_rubrics.cli.rescore import rescore
from pytest_rubrics.cli.runs import gate, merge, report

COMMANDS: tuple[Command, ...] = (
    init,
    describe,
    fetch,
    report,
    open_report,
    export,
    merge,
    gate,
    baseline,
    compare,
    rescore,
    rejudge,
    audit,
    stats,
    import_spilled,
    explain,
    doctor,
)
_GROUPS = {"cache": "look into the cache of paid replies"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        arguments: Those of the command line if not given.

    Returns:
        The exit code: 4 for a wrong command line and for every fault in what a user wrote.
    """
    for stream in (sys.stdout, sys.stderr):
        # Chinese text must not end a report where the terminal cannot show it.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = _parser().parse_args(arguments)
    if not hasattr(options, "command"):
        options.parser.error("a subcommand is missing")
    try:
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    return code


def _run(options: argparse.Namespace) -> int:
    from pytest_rubrics.faults import FaultsError

    try:
        return options.command.run(options) or 0
    except FaultsError as error:
        count = len(error.faults)
        more = [f"  and {count - SHOWN_FAULTS} more"] if count > SHOWN_FAULTS else []
        title = "1 fault:" if count == 1 else f"{count} faults:"
        complain("\n".join([title, *(f"  {fault}" for fault in error.faults[:SHOWN_FAULTS]), *more]))
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"1 fault:\n  {error}")
    return USAGE_ERROR


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end as pytest does."""
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(prog="rubrics", description="Work beside the runs of rubric-graded benchmarks; pytest runs them.")
    parser.add_argument("--version", action="version", version=f"pytest-rubrics {__version__}")
    parser.set_defaults(parser=parser)
    groups: dict[tuple[str, ...], Any] = {(): _subcommands(parser)}
    for command in COMMANDS:
        *above, name = command.name.split()
        group = tuple(above)
        if group not in groups:
            groups[group] = _subcommands(groups[()].add_parser(*group, help=_GROUPS[above[0]]))
        _add(groups[group], name, command)
    return parser


def _subcommands(parser: argparse.ArgumentParser) -> Any:
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(metavar="COMMAND", title="commands")


def _add(group: Any, name: str, command: Command) -> None:
    parser = group.add_parser(name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}.")
    for each in command.arguments:
        parser.add_argument(*each.names, **each.settings)
    parser.set_defaults(command=command, parser=parser)
