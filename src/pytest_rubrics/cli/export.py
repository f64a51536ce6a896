"""``rubrics export``: tables for other tools."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_rubrics.cli.command import argument, command, say


@command(
    "export",
    "write the grades or verdicts of a run as one long table",
    argument("run", metavar="RUN", type=Path, help="folder of a run"),
    argument("--format", choices=("csv", "parquet", "xlsx"), default="csv", help="csv if not given"),
    argument(
        "--what", choices=("grades", "verdicts"), default="grades", help="a row for each grade (default), or verdict"
    ),
    argument("--out", metavar="FILE", type=Path, help="RUN/WHAT.FORMAT if not given; - writes CSV to the terminal"),
)
def export(options: argparse.Namespace) -> None:
    """Write the table, and say where it is."""
    from pytest_rubrics import exporting
    from pytest_rubrics.faults import Fault, FaultsError
    from pytest_rubrics.rebuilding import open_run

    run = open_run(options.run)
    columns, rows_of = exporting.TABLES[options.what]
    if str(options.out) == "-":
        if options.format != "csv":
            raise FaultsError([Fault("--out -", f"cannot show {options.format}.", fix="Give a file, or --format csv.")])
        exporting.write_csv(columns, rows_of(run), sys.stdout)
        return
    path: Path = options.out or run.folder / f"{options.what}.{options.format}"
    if options.format == "csv":
        with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            exporting.write_csv(columns, rows_of(run), file)
    elif options.format == "parquet":
        exporting.write_parquet(columns, rows_of(run), path)
    else:
        exporting.write_xlsx(columns, rows_of(run), path)
    say(f"{options.what}: {path}")
