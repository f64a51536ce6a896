"""Answerers from the models' files."""

from __future__ import annotations

from pathlib import Path

from pytest_rubrics.answering.agent import AgentAnswerer, AgentSettings
from pytest_rubrics.answering.tools.tool import ToolSource
from pytest_rubrics.calls.endpoint import Endpoint
from pytest_rubrics.calls.gateway import Gateway
from pytest_rubrics.config import AgentModel, ToolConfig


def agent_answerer(gateway: Gateway, endpoint: Endpoint, config: AgentModel, root: Path, cache: Path) -> AgentAnswerer:
    """An agent.

    Args:
        gateway: The way of every call.
        endpoint: Where its model is.
        config: Its file.
        root: The workspace, where MCP servers are started.
        cache: The cache folder; files of unfinished runs lie in it too.
    """
    settings = AgentSettings(
        strategy=config.strategy,
        max_steps=config.max_steps,
        time_limit=config.time_limit,
        output_limit=config.output_limit,
        tool_timeout=config.limits.command_timeout,
        system_prompt=config.system_prompt,
    )
    tools = [_source(tool, config, root) for tool in config.tools]
    return AgentAnswerer(gateway, endpoint, config.params, config.extra_body, settings, tools, cache / "agents")


def _source(tool: str | ToolConfig, config: AgentModel, root: Path) -> ToolSource:
    if isinstance(tool, str):
        return _bash(config)
    if tool.mcp is not None:
        from pytest_rubrics.answering.tools.mcp_server import McpSource

        return McpSource(tool.mcp.command or (), tool.mcp.env, tool.mcp.url, tool.mcp.headers, root)
    from pytest_rubrics.answering.tools.function import FunctionTool

    assert tool.python is not None
    return FunctionTool(tool.python)


def _bash(config: AgentModel) -> ToolSource:
    # Only here: the modules below need a Unix, the other tools do not.
    from pytest_rubrics.answering.sandbox import Limits, Sandbox
    from pytest_rubrics.answering.tools.bash import BashTool

    limits = config.limits
    return BashTool(
        Sandbox(
            config.sandbox,
            config.network or config.sandbox == "none",  # this machine's network cannot be taken away
            Limits(limits.cpu_seconds, limits.memory_mb, limits.processes, limits.output_bytes, limits.image),
        )
    )
