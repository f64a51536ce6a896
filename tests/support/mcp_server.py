"""An MCP server for tests, with tools that work, fail, hang and die: over standard input and output, or on a port."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("test")
_remembered: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def remember(word: str) -> str:
    """Remember a word, and say all that are remembered."""
    _remembered.append(word)
    return " ".join(_remembered)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("this tool fails")


@server.tool()
def hang() -> str:
    """Sleep for long."""
    time.sleep(600)
    return "never"


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def spawn(seconds: str) -> int:
    """Start a child that sleeps."""
    return subprocess.Popen(["sleep", seconds], stdout=subprocess.DEVNULL).pid


@server.tool(name="read.variable")
def read_variable(name: str) -> str:
    """Read an environment variable."""
    return os.environ.get(name, "unset")


@server.tool()
def header(name: str, context: Context) -> str:
    """Read a header of the request."""
    return context.headers.get(name, "unset") if context.headers else "none"


@server.tool(structured_output=True)
def table() -> list[dict[str, int]]:
    """Give structured data."""
    return [{"x": 1}, {"x": 2}]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        print("starting up", file=sys.stderr, flush=True)
        server.run("stdio")
