from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pytest_rubrics.calls.providers import API_KEY_VARIABLES, BASE_URL_VARIABLES, effective_api_base, provider_of

# LiteLLM is asked in a process of its own: its import is slow, warns, and would stay for all other tests.
_ASK = """
import json, os, sys
import litellm

litellm.suppress_debug_info = True
for model, variables in json.load(sys.stdin):
    os.environ.update(variables)
    try:
        litellm.completion(model, [{"role": "user", "content": "x"}], max_retries=0, timeout=20, api_version="1")
    except Exception:  # the server refuses every request
        pass
    for name in variables:
        del os.environ[name]
"""


class _Refusing(BaseHTTPRequestHandler):
    seen: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append(f"{self.path}\n{self.headers}")
        self.send_response(401)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def arrived() -> Iterator[dict[str, list[str]]]:
    """What reaches a loopback server, by the tag that is the first part of each base URL."""
    seen: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Refusing,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    own = {name for table in (BASE_URL_VARIABLES, API_KEY_VARIABLES) for names in table.values() for name in names}
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    cases = _cases(f"http://127.0.0.1:{server.server_port}")
    try:
        subprocess.run(
            [sys.executable, "-c", _ASK], input=json.dumps(cases), text=True, env=env, check=True, timeout=300
        )
        by_tag: dict[str, list[str]] = {}
        for request in seen:
            by_tag.setdefault(re.split(r"[/\s]", request)[1], []).append(request)
        yield by_tag
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _cases(server: str) -> list[tuple[str, dict[str, str]]]:
    cases = []
    for provider, addresses in BASE_URL_VARIABLES.items():
        keys = API_KEY_VARIABLES[provider]
        for index in range(len(addresses)):
            # This variable and those that should be read after it.
            bases = {name: f"{server}/base-{provider}-{name}" for name in addresses[index:]}
            cases.append((f"{provider}/some-model", bases | {keys[0]: "key-for-tests"}))
        for index in range(len(keys)):
            base = {addresses[0]: f"{server}/key-{provider}-{keys[index]}"}
            cases.append((f"{provider}/some-model", base | {name: f"value-of-{name}" for name in keys[index:]}))
    return cases


@pytest.mark.parametrize("provider", BASE_URL_VARIABLES)
def test_litellm_reads_the_variables_of_the_table_in_its_order(
    provider: str, arrived: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = BASE_URL_VARIABLES[provider]
    for name in names:
        monkeypatch.setenv(name, f"http://127.0.0.1/{name}")
    for name in names:
        assert f"base-{provider}-{name}" in arrived
        assert effective_api_base(f"{provider}/some-model", None) == f"http://127.0.0.1/{name}"
        monkeypatch.delenv(name)
    assert effective_api_base(f"{provider}/some-model", None) is None


@pytest.mark.parametrize("provider", API_KEY_VARIABLES)
def test_litellm_sends_the_key_of_the_first_variable_that_is_set(provider: str, arrived: dict[str, list[str]]) -> None:
    for name in API_KEY_VARIABLES[provider]:
        assert any(f"value-of-{name}" in request for request in arrived[f"key-{provider}-{name}"])


def test_both_tables_name_the_same_providers() -> None:
    assert list(BASE_URL_VARIABLES) == list(API_KEY_VARIABLES)


def test_the_address_in_the_file_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1/variable")
    assert effective_api_base("openai/gpt-5.4", "http://127.0.0.1/file") == "http://127.0.0.1/file"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1/second")
    assert effective_api_base("openai/gpt-5.4", None) == "http://127.0.0.1/second"


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("openai/org/name:tag", "openai"),
        ("openrouter/anthropic/claude-opus-4.6", "openrouter"),
        ("gpt-5.4", "openai"),
        ("claude-opus-4-6", "anthropic"),
        ("unheard-of", None),
    ],
)
def test_provider_of_a_model_string(model: str, provider: str | None) -> None:
    assert provider_of(model) == provider
