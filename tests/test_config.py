from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from pytest_rubrics.calls.litellm_client import load_litellm
from pytest_rubrics.calls.prices import listed_price
from pytest_rubrics.config import (
    ChatModel,
    JudgeConfig,
    PriceConfig,
    RecordedModel,
    load_judge,
    load_model,
    load_prices,
    settings_without_secrets,
)
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.workspace import Workspace, package_data

OWN = "http://127.0.0.1:8000/v1"
READY = ["anthropic", "dashscope", "deepseek", "gemini", "ollama", "openai", "openrouter", "vllm"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for folder in ("configs/models", "judges"):
        (tmp_path / folder).mkdir(parents=True)
    return Workspace(tmp_path)


def write_model(workspace: Workspace, text: str, name: str = "m") -> None:
    (workspace.root / f"configs/models/{name}.yaml").write_text(text, encoding="utf-8")


def model_faults(workspace: Workspace, text: str) -> list[str]:
    write_model(workspace, text)
    with pytest.raises(FaultsError) as caught:
        load_model("m", workspace)
    return str(caught.value).split("\n")


def judge_faults(workspace: Workspace, text: str) -> list[str]:
    (workspace.root / "judges/j.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(FaultsError) as caught:
        load_judge("j", workspace)
    return str(caught.value).split("\n")


# Models


def test_a_model_with_every_key(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICS_TEST_VALUE", "abc-123-def")
    text = """\
model: openai/gpt-5.4
api_base: https://user:word@example.org/v1
api_key: ${RUBRICS_TEST_VALUE}
headers: {X-Title: 基准}
params: {max_tokens: 32768, reasoning_effort: high, stop: null}
extra_body: {provider: {only: [a]}}
timeout: 1800
max_concurrency: 64
track: search
price: {input: 1.25, output: 10}
retry_for: 60
"""
    write_model(workspace, text, "我的 gpt")
    loaded = load_model("我的 gpt", workspace)
    config = loaded.config
    assert isinstance(config, ChatModel)
    assert loaded.name == "---gpt"
    assert loaded.file == workspace.root / "configs/models/我的 gpt.yaml"
    assert config.params == {"max_tokens": 32768, "reasoning_effort": "high", "stop": None}
    assert config.price == PriceConfig(input=1.25, output=10)
    assert config.api_key is not None
    assert config.api_key.resolve() == "abc-123-def"
    assert settings_without_secrets(config) == {
        "kind": "chat",
        "model": "openai/gpt-5.4",
        "api_base": "https://example.org/v1",
        "api_key": "${RUBRICS_TEST_VALUE}",
        "headers": {"X-Title": "***"},
        "params": {"max_tokens": 32768, "reasoning_effort": "high", "stop": None},
        "extra_body": {"provider": {"only": ["a"]}},
        "timeout": 1800,
        "max_concurrency": 64,
        "track": "search",
        "price": {"input": 1.25, "output": 10},
        "retry_for": 60,
    }


def test_the_defaults_of_a_model_add_nothing_to_the_request() -> None:
    config = ChatModel(model="a/b")
    assert (config.params, config.extra_body, config.headers, config.api_key) == ({}, {}, {}, None)
    assert (config.timeout, config.retry_for, config.max_concurrency, config.track) == (600, 180, None, "vanilla")


def test_a_bare_model_string_is_a_model(workspace: Workspace) -> None:
    loaded = load_model("openrouter/qwen/qwen3:free", workspace)
    assert loaded.name == "openrouter-qwen-qwen3-free"
    assert loaded.config == ChatModel(model="openrouter/qwen/qwen3:free")
    assert loaded.file is None


def test_a_path_on_the_command_line_is_relative_to_the_current_folder(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/own.yaml").write_text("model: a/b\n", encoding="utf-8")
    (tmp_path / "sub/other").write_text("modl: a/b\n", encoding="utf-8")
    assert load_model("own.yaml", workspace, tmp_path / "sub").name == "own"
    with pytest.raises(FaultsError) as caught:
        load_model("sub/other", workspace, tmp_path)
    assert "sub/other:1, modl: unknown key. Did you mean model?" in str(caught.value)


def test_a_folder_is_no_model(workspace: Workspace) -> None:
    with pytest.raises(FaultsError) as caught:
        load_model("configs/models", workspace)
    assert str(caught.value) == "configs/models: this is a folder, expected a YAML file."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("opnai", "--model: there is no model named 'opnai'. Known: "),
        ("gpt-5.4", "or a LiteLLM model string with its provider, such as openai/gpt-5.4."),
        ("./openai/gpt", "--model: there is no file ./openai/gpt."),
        ("a/b c", "--model: there is no file a/b c."),
        ("configs/models/m", "there is no file configs/models/m. Did you mean configs/models/m.yaml?"),
        ("configs/models/opnai.yml", "configs/models/opnai.yml: no such file."),
    ],
)
def test_a_model_that_is_not_there(name: str, message: str, workspace: Workspace) -> None:
    write_model(workspace, "model: a/b\n")
    with pytest.raises(FaultsError) as caught:
        load_model(name, workspace)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("modle: a/b\nmodel: a/b", "1, modle: unknown key. Did you mean model?"),
        ("timeout: 5", "1, model: the key is missing, expected a LiteLLM model string, such as openai/gpt-5.4."),
        ("model: ''", '1, model: found "", expected a LiteLLM model string, such as openai/gpt-5.4.'),
        ("model: a/b c", '1, model: found "a/b c", expected a LiteLLM model string, such as openai/gpt-5.4.'),
        ("model: 5", '1, model: found 5 (a number), expected text. Put it in quotes: "5".'),
        (
            "model: a/b\napi_base: localhost:8000",
            '2, api_base: found "localhost:8000", expected a URL that begins with https:// or http://.',
        ),
        ("model: a/b\ntimeout: 0", "2, timeout: found 0 (a number), expected a number greater than 0."),
        ("model: a/b\nmax_concurrency: 0", "2, max_concurrency: found 0 (a number), expected a number of at least 1."),
        ("model: a/b\nprice: {input: 1}", "2, price.output: the key is missing."),
        (
            "model: a/b\nprice: {input: -1, output: 1}",
            "2, price.input: found -1 (a number), expected a number of at least 0.",
        ),
        (
            "model: a/b\ntrack: serach",
            '2, track: found "serach" (text), expected one of vanilla, search or agent. Did you mean search?',
        ),
        ("model: a/b\nattempts: 3", "2, attempts: unknown key. Allowed are model, api_base, api_key, headers, params,"),
        (
            "model: a/b\nparams: {when: 2026-11-01}",
            "2, params.when: found 2026-11-01 (a date), expected text, a number, true or false, a list or a mapping.",
        ),
        ("model: a/b\nparams: {x: .nan}", "2, params.x: found .nan (a number), expected a finite number."),
        ("kind: chta\nmodel: a/b", '1, kind: found "chta" (text), expected one of chat, agent, command, recorded. Did'),
        ("kind: recorded\nanswers: 不.jsonl", "2, answers: there is no file or folder "),
        ("kind: recorded", "1, answers: the key is missing."),
        (
            f"model: openai/m\napi_base: {OWN}\nclient: opnai",
            '3, client: found "opnai" (text), expected one of litellm or openai. Did you mean openai?',
        ),
        (
            f"model: hosted_vllm/m\napi_base: {OWN}\nclient: openai",
            "3, client: client: openai is for models named openai/..., and this is hosted_vllm/m. Write the model as "
            "openai/NAME, or leave client out.",
        ),
        (
            "client: openai\nmodel: openai/m",
            "1, client: client: openai is for a server of one's own, and openai/m has no api_base. Write its address "
            "as api_base, or leave client out.",
        ),
        (
            f"kind: agent\nmodel: openai/gpt-5.4\nclient: openai\napi_base: {OWN}",
            "3, client: LiteLLM translates parameters for OpenAI's own models, such as openai/gpt-5.4. Serve it under "
            "another name, or leave client out.",
        ),
    ],
)
def test_a_fault_of_a_model_file(text: str, fault: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    [found] = model_faults(workspace, f"{text}\n")
    assert found.startswith(f"configs/models/m.yaml:{fault}")


@pytest.mark.parametrize("name", ["m", "org/name:tag", "gpt-oss-120b", "Qwen/Qwen3.5-27B", "olmo-3", "foo1"])
def test_a_server_of_ones_own_can_be_called_by_openais_sdk(name: str, workspace: Workspace) -> None:
    write_model(workspace, f"client: openai\nmodel: openai/{name}\napi_base: {OWN}\n")
    config = load_model("m", workspace).config
    assert isinstance(config, ChatModel)
    assert config.client == "openai"
    assert settings_without_secrets(config)["client"] == "openai"


def test_the_address_for_openais_sdk_may_stand_in_the_environment(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", OWN)
    write_model(workspace, "client: openai\nmodel: openai/m\n")
    assert load_model("m", workspace).config


def test_openais_sdk_is_refused_for_every_model_that_litellm_knows_a_price_of() -> None:
    names = {name.removeprefix("openai/") for name in load_litellm().model_cost}
    priced = [name for name in sorted(names) if listed_price(f"openai/{name}") and "embedding" not in name]
    assert len(priced) > 50
    for name in priced:
        with pytest.raises(ValidationError, match="OpenAI's own models"):
            ChatModel(model=f"openai/{name}", api_base=OWN, client="openai")


def test_keys_that_do_not_belong_under_params_say_where_they_do(workspace: Workspace) -> None:
    text = """\
model: a/b
params:
  api_key: sk-abcdefgh12345678
  n: 3
  stream: true
  response_format: {type: json_object}
  num_retries: 2
  max_tokens: 5
"""
    start = "configs/models/m.yaml"
    assert model_faults(workspace, text) == [
        f"{start}:3, params.api_key: api_key does not belong under params. "
        "It is a key of the file itself, beside params.",
        f"{start}:4, params.n: n does not belong under params. Use --repeats for several answers to a task.",
        f"{start}:5, params.stream: stream does not belong under params. Remove it: replies are read whole.",
        f"{start}:6, params.response_format: response_format does not belong under params. "
        "A judge has the key reply for it; answers are free text.",
        f"{start}:7, params.num_retries: num_retries does not belong under params. "
        "Write how long to try again as retry_for, in seconds, beside params.",
    ]


def test_recorded_answers_are_relative_to_the_workspace(workspace: Workspace) -> None:
    (workspace.root / "答案").mkdir()
    write_model(workspace, "kind: recorded\nanswers: 答案\ntrack: agent\n")
    loaded = load_model("m", workspace)
    assert loaded.config == RecordedModel(kind="recorded", answers="答案", track="agent")
    assert settings_without_secrets(loaded.config) == {"kind": "recorded", "answers": "答案", "track": "agent"}


def test_secrets_do_not_reach_the_settings(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "abc-123-def")
    text = "model: a/b\napi_key: literal-key-1\nextra_body: {token: '${SOME_TOKEN}', key: literal-key-1}\n"
    write_model(workspace, text)
    config = load_model("m", workspace).config
    settings = settings_without_secrets(config)
    assert settings["api_key"] == "***"
    assert settings["extra_body"] == {"token": "***", "key": "***"}
    assert "literal-key-1" not in repr(config.api_key if isinstance(config, ChatModel) else None)


# Judges


def test_a_judge_with_every_key(workspace: Workspace) -> None:
    text = """\
model: a/b
prompt: python:package.module:NAME
language: zh
show_weights: false
attempts: 5
reply: json_object
max_justification: 200
"""
    (workspace.root / "judges/严.yaml").write_text(text, encoding="utf-8")
    config = load_judge("严", workspace).members[0].config
    assert (config.prompt, config.language, config.show_weights) == ("python:package.module:NAME", "zh", False)
    assert (config.attempts, config.reply, config.max_justification) == (5, "json_object", 200)


def test_a_bare_model_string_is_a_judge(workspace: Workspace) -> None:
    loaded = load_judge("openai/gpt-5.4", workspace)
    assert (loaded.name, loaded.config) == ("openai-gpt-5.4", JudgeConfig(model="openai/gpt-5.4"))
    assert isinstance(loaded.config, JudgeConfig)
    assert (loaded.config.attempts, loaded.config.reply, loaded.config.language) == (3, "auto", "match")
    assert [seat for seat, _ in loaded.seats] == [loaded.name]


def write_judges(workspace: Workspace, **texts: str) -> None:
    for name, text in texts.items():
        (workspace.root / f"judges/{name}.yaml").write_text(text, encoding="utf-8")


def test_a_panel_finds_its_members_by_name_path_and_model_string(workspace: Workspace) -> None:
    write_judges(workspace, a="model: x/a\ntypical_seconds: 5\n", b="model: x/b\ntypical_seconds: 9\n")
    write_judges(workspace, p="panel: [a, judges/b.yaml, x/c]\ndecide: mean\nnote: three\n")
    judge = load_judge("p", workspace)
    assert [(seat, member.config.model) for seat, member in judge.seats] == [("a", "x/a"), ("b", "x/b"), ("x-c", "x/c")]
    assert (judge.name, judge.decide, judge.typical_seconds) == ("p", "mean", None)
    settings = judge.settings()
    assert (settings["decide"], settings["members"]["b"]["model"]) == ("mean", "x/b")


def test_a_repeated_judge_has_a_seat_for_each_reading(workspace: Workspace) -> None:
    write_judges(workspace, j="model: x/j\njudge_repeats: 3\n")
    judge = load_judge("j", workspace)
    assert [seat for seat, _ in judge.seats] == ["j", "j#2", "j#3"]
    assert judge.decide == "majority"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("panel: [a]", "judges/j.yaml:1, panel: found a list, expected at least 2 entries"),
        ("panel: [a, b]\nmodel: x/y", "judges/j.yaml:2, model: "),
        ("panel: [a, b]\ndecide: most", "judges/j.yaml:2, decide: found"),
        ("panel: [a, gone]", "judges/j.yaml: there is no judge named 'gone'"),
        ("panel: [a, a]", "judges/j.yaml, panel: two members have the name a."),
        ("panel: [a, twice]", "judges/j.yaml, panel: twice has judge_repeats, and a member has one vote."),
        ("panel: [a, inner]", "judges/j.yaml, panel: inner is a panel itself."),
        ("panel: [a, ternary]", "judges/j.yaml, decide: ternary has a ternary scale"),
    ],
)
def test_a_fault_of_a_panel(text: str, fault: str, workspace: Workspace) -> None:
    write_judges(workspace, a="model: x/a\n", b="model: x/b\n", twice="model: x/t\njudge_repeats: 2\n")
    write_judges(workspace, inner="panel: [a, b]\n", ternary="model: x/t\nscale: ternary\n")
    [found] = judge_faults(workspace, text)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("attempts: 11", "2, attempts: found 11 (a number), expected a number of at most 10."),
        ("reply: jsn", '2, reply: found "jsn" (text), expected one of auto, json_schema, json_object or text.'),
        ("language: no", "2, language: found no, which YAML reads as false, expected one of match, en or zh."),
        ("show_weights: 'no'", '2, show_weights: found "no" (text), expected true or false. Remove the quotes.'),
        ("prompt: ''", '2, prompt: found "" (text), expected text that is not empty or a mapping (key: value).'),
        ("track: agent", "2, track: unknown key. Allowed are "),
    ],
)
def test_a_fault_of_a_judge_file(text: str, fault: str, workspace: Workspace) -> None:
    [found] = judge_faults(workspace, f"model: a/b\n{text}\n")
    assert found.startswith(f"judges/j.yaml:{fault}")


def test_a_judge_that_is_not_there_names_who_asked(workspace: Workspace) -> None:
    with pytest.raises(
        FaultsError, match=r"^judges/panel\.yaml: there is no judge named 'gemni'.* Did you mean gemini\?"
    ):
        load_judge("gemni", workspace, asked_by="judges/panel.yaml")


# Prices


def test_prices_of_the_workspace_beat_the_package(workspace: Workspace) -> None:
    shipped = load_prices(workspace)
    model = "openrouter/z-ai/glm-5"
    assert shipped.get(model) == PriceConfig(input=1, output=3.2)
    text = f"{model}: {{input: 2, output: 4, cached_input: 0.5}}\nown/model: {{input: 0, output: 0}}\n"
    (workspace.root / "configs/prices.yaml").write_text(text, encoding="utf-8")
    prices = load_prices(workspace)
    assert prices.get(model) == PriceConfig(input=2, output=4, cached_input=0.5)
    assert prices.get("own/model") == PriceConfig(input=0, output=0)
    assert len(prices.root) == len(shipped.root) + 1
    assert prices.get("no/such") is None


def test_a_fault_of_the_price_table_names_the_model(workspace: Workspace) -> None:
    (workspace.root / "configs/prices.yaml").write_text("a/b: {input: x, outptu: 1, output: 1}\n", encoding="utf-8")
    with pytest.raises(FaultsError) as caught:
        load_prices(workspace)
    assert str(caught.value).split("\n") == [
        'configs/prices.yaml:1, a/b.input: found "x" (text), expected a number.',
        "configs/prices.yaml:1, a/b.outptu: unknown key. Did you mean output?",
    ]


# The ready files


@pytest.mark.parametrize("name", READY)
def test_ready_models_and_judges_load_without_any_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("API_KEY", "API_BASE", "MODEL"):
        monkeypatch.delenv(f"{name.upper()}_{variable}", raising=False)
    root = Workspace(package_data())
    model, judge = load_model(name, root).config, load_judge(name, root).members[0].config
    assert isinstance(model, ChatModel)
    assert model.model == judge.model
    assert "temperature" not in model.params | judge.params
    tokens = judge.params["max_tokens"]
    assert isinstance(tokens, int)
    assert tokens >= 16384
    if name not in {"ollama", "vllm"}:
        assert str(model.api_key) == str(judge.api_key) == f"${{{name.upper()}_API_KEY}}"


def test_reading_files_does_not_import_litellm() -> None:
    code = (
        "import sys; from pathlib import Path; from pytest_rubrics.config import load_model; "
        "from pytest_rubrics.workspace import Workspace; load_model('openai', Workspace(Path.cwd())); "
        "sys.exit('litellm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_workspace_is_light_to_import() -> None:
    code = (
        "import sys, pytest_rubrics.workspace, pytest_rubrics.redaction; "
        "sys.exit(bool({'pydantic', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_judge_may_have_a_prompt_for_one_kind_only(workspace: Workspace) -> None:
    (workspace.root / "judges/j.yaml").write_text("model: openai/x\nprompt: {sheet: brief}\n", encoding="utf-8")
    (member,) = load_judge("j", workspace).members
    assert member.config.prompt == {"sheet": "brief"}


def test_a_prompt_of_an_unknown_kind_is_a_fault(workspace: Workspace) -> None:
    (fault,) = judge_faults(workspace, "model: openai/x\nprompt: {sheeet: brief}")
    assert fault.startswith("judges/j.yaml:2, prompt.sheeet: ")
