"""A server on loopback with the addresses of the Hugging Face and ModelScope data set hubs."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import quote


class HubServer:
    """Serves files by address and remembers what was asked.

    Attributes:
        files: Path and query to contents.
        statuses: Path and query to a status other than 200 or 404.
        redirects: Path and query to the address to go to.
        cut_off: Paths of which only the first half arrives.
        pages: Paths that are sent as HTML.
        requests: Path and query, and the Authorization header, of every request.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.statuses: dict[str, int] = {}
        self.redirects: dict[str, str] = {}
        self.cut_off: set[str] = set()
        self.pages: set[str] = set()
        self.requests: list[tuple[str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.requests.append((self.path, self.headers.get("Authorization")))
                content = hub.files.get(self.path)
                if self.path in hub.redirects:
                    self._head(302, 0, hub.redirects[self.path])
                elif self.path in hub.statuses:
                    self._head(hub.statuses[self.path], 0)
                elif content is None:
                    self._head(404, 0)
                else:
                    self._head(200, len(content))
                    self.wfile.write(content[: len(content) // 2] if self.path in hub.cut_off else content)

            def _head(self, status: int, length: int, location: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                if self.path in hub.pages:
                    self.send_header("Content-Type", "text/html; charset=utf-8")
                if location:
                    self.send_header("Location", location)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Keep standard error clean."""

        return Handler


def huggingface_path(repo: str, revision: str, file: str) -> str:
    """Return the address of a file of a data set on Hugging Face."""
    return f"/datasets/{repo}/resolve/{revision}/{file}"


def modelscope_path(repo: str, revision: str, file: str) -> str:
    """Return the address of a file of a data set on ModelScope."""
    return f"/api/v1/datasets/{repo}/repo?Revision={revision}&FilePath={quote(file, safe='')}"
