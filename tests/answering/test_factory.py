from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.answering.agent import AgentAnswerer, AgentSettings
from pytest_rubrics.answering.factory import agent_answerer
from pytest_rubrics.answering.sandbox import Limits
from pytest_rubrics.answering.tools.bash import BashTool
from pytest_rubrics.answering.tools.function import FunctionTool
from pytest_rubrics.answering.tools.mcp_server import McpSource
from pytest_rubrics.config import AgentModel, load_model, settings_without_secrets
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.workspace import Workspace, package_data
from tests.support.agents import Bench, bench, needs_bubblewrap
from tests.support.provider import Provider, Script, tool_calls
from tests.support.workspaces import Workspace as Places

HEAD = "kind: agent\nmodel: openai/x\n"
EVERYTHING = """\
strategy: react
max_steps: 7
time_limit: 60.5
output_limit: 500
system_prompt: Be brief.
tools:
  - bash
  - mcp: {command: [server, --flag], env: {SEARCH_KEY: "${RUBRICS_TEST_KEY}"}}
  - mcp: {url: "https://tools.example.org/mcp", headers: {Authorization: "Bearer ${RUBRICS_TEST_KEY}"}}
  - python: package.module:function
sandbox: docker
network: true
limits: {cpu_seconds: 1, memory_mb: 2, processes: 3, output_bytes: 4, command_timeout: 5, image: i}
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "http://127.0.0.1:9/v1") as made:
        yield made


def load(tmp_path: Path, text: str) -> AgentModel:
    folder = tmp_path / "configs" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.yaml").write_text(HEAD + text, encoding="utf-8")
    config = load_model("m", Workspace(tmp_path)).config
    assert isinstance(config, AgentModel)
    return config


def agent(own: Bench, config: AgentModel) -> AgentAnswerer:
    return agent_answerer(own.gateway, own.endpoint, config, own.folder, own.folder / "cache")


def test_every_key_reaches_the_agent(tmp_path: Path, own: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICS_TEST_KEY", "the-secret-word-1")
    config = load(tmp_path, EVERYTHING)
    made = agent(own, config)
    assert config.track == "agent"
    assert made.settings == AgentSettings("react", 7, 60.5, 500, 5.0, "Be brief.")
    shell, program, address, function = made.tools
    assert isinstance(shell, BashTool)
    assert (shell.sandbox.kind, shell.sandbox.network, shell.sandbox.limits) == (
        "docker",
        True,
        Limits(1, 2, 3, 4, "i"),
    )
    assert isinstance(program, McpSource)
    assert program.command == ["server", "--flag"]
    assert program.env["SEARCH_KEY"].resolve() == "the-secret-word-1"
    assert isinstance(address, McpSource)
    assert address.headers["Authorization"].resolve() == "Bearer the-secret-word-1"
    assert isinstance(function, FunctionTool)
    assert made.folder == own.folder / "cache" / "agents"
    assert "the-secret-word" not in str(settings_without_secrets(config))
    assert "the-secret-word" not in str([tool.identity for tool in made.tools])


def test_the_defaults_are_safe(tmp_path: Path, own: Bench) -> None:
    config = load(tmp_path, "")
    made = agent(own, config)
    (shell,) = made.tools
    assert isinstance(shell, BashTool)
    assert (shell.sandbox.kind, shell.sandbox.network) == ("bubblewrap", False)
    assert shell.sandbox.limits == Limits()
    assert made.settings == AgentSettings()


def test_without_a_sandbox_the_agent_is_told_of_the_network(tmp_path: Path, own: Bench) -> None:
    (shell,) = agent(own, load(tmp_path, "sandbox: none")).tools
    assert isinstance(shell, BashTool)
    assert shell.sandbox.network


def test_the_example_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_MODEL", raising=False)
    config = load_model("agent", Workspace(package_data())).config
    assert isinstance(config, AgentModel)
    assert config.sandbox == "bubblewrap"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "tools: [bsh]",
            'tools[0]: found "bsh" (text), expected one of bash or a mapping (key: value). Did you mean bash?',
        ),
        ("tools: [bash, {mpc: {}}]", "tools[1].mpc: unknown key. Did you mean mcp?"),
        (
            "tools: [{}]",
            "tools[0]: found a mapping, expected one of bash or {mcp: ...} or {python: package.module:function}, "
            "one in each entry.",
        ),
        ("tools: [{mcp: {}}]", "tools[0].mcp: an MCP server has either a command or a url."),
        ("tools: [{mcp: {comand: [a]}}]", "tools[0].mcp.comand: unknown key. Did you mean command?"),
        ("tools: [{python: a.b.c}]", 'tools[0].python: found "a.b.c", expected package.module:function.'),
        (
            "sandbox: non",
            'sandbox: found "non" (text), expected one of bubblewrap, docker, podman or none. Did you mean none?',
        ),
        ("max_steps: 0", "max_steps: found 0 (a number), expected a number of at least 1."),
        ("limits: {memory: 3}", "limits.memory: unknown key. Did you mean memory_mb?"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(FaultsError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == f"configs/models/m.yaml:3, {fault}"


@needs_bubblewrap
def test_pytest_runs_an_agent_on_a_benchmark(tmp_path: Path) -> None:
    script: Script = [tool_calls(("bash", {"command": "echo $((6 * 7))"})), "The advice is 42."]
    with Provider(script=script) as server:
        places = Places(tmp_path, server, ["t001", "t002"], client="litellm")
        places.model(kind="agent", tools=["bash"])
        outcome = places.pytest()
        assert [record["answer"] for record in outcome.records] == ["The advice is 42."] * 2, outcome.text
        assert {record["track"] for record in outcome.records} == {"agent"}
        assert {record["state"] for record in outcome.records} == {"scored"}
        assert server.count("answer") == 4
        assert places.imported_litellm()
        replay = places.pytest("--cache-mode", "offline", run="again")
        before, after = ({key: record["metrics"] for key, record in run.by_key.items()} for run in (outcome, replay))
        assert after == before
        assert server.count("answer") == 4
        assert not places.imported_litellm()
