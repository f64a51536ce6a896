"""Tools of agents: a shell, MCP servers and Python functions."""
