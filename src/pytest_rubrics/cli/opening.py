"""``rubrics open``: a run's report in the browser, from a server that only this machine reaches."""

from __future__ import annotations

import argparse
import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pytest_rubrics.cli.command import argument, command, say


class _Handler(SimpleHTTPRequestHandler):
    """Serves the report and its data files, and nothing else of the folder."""

    def send_head(self) -> Any:
        path = Path(self.translate_path(self.path)).resolve()
        root = Path(self.directory).resolve()
        if path == root:
            self.path = "/report.html"
        elif not (path == root / "report.html" or (path.parent == root / "report_data" and path.is_file())):
            self.send_error(404)
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> None:
        """Never list a folder."""
        self.send_error(404)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""


def make_server(folder: Path) -> ThreadingHTTPServer:
    """A server on loopback, at a port that the system chooses."""
    return ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))


def _is_stale(folder: Path) -> bool:
    """Whether the run has gone on since its report was written; a comparison has no records of its own."""
    report, results = folder / "report.html", folder / "results.jsonl"
    return not report.is_file() or (results.is_file() and results.stat().st_mtime > report.stat().st_mtime)


@command(
    "open",
    "show the report of a run in the browser, from a server on this machine alone",
    argument("run", metavar="RUN", type=Path, help="folder of a run, or of a comparison"),
    argument("--no-browser", action="store_true", help="print the address only"),
)
def open_report(options: argparse.Namespace) -> None:
    """Build the report where it is missing or older than the records, and serve it until Ctrl-C."""
    import webbrowser

    if _is_stale(options.run):
        from pytest_rubrics.rebuilding import open_run, rebuild_summary
        from pytest_rubrics.reporting.files import write_reports

        run = open_run(options.run)
        write_reports([(run, rebuild_summary(run))], options.run)
    with make_server(options.run) as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        say(f"{url}  (Ctrl-C ends it)")
        if not options.no_browser:
            webbrowser.open(url)
        server.serve_forever()
