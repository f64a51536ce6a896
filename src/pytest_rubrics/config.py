"""The YAML files of models, judges and prices. Imports pydantic: load it only where files are read."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    JsonValue,
    RootModel,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pytest_rubrics.answering.serving.settings import ServeConfig
from pytest_rubrics.calls.endpoint import Client
from pytest_rubrics.calls.providers import effective_api_base
from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.redaction import redact_json
from pytest_rubrics.suggestions import did_you_mean
from pytest_rubrics.variables import Secret
from pytest_rubrics.workspace import Workspace, is_yaml_path
from pytest_rubrics.yaml_files import YamlModel, load_yaml

_MODEL_STRING = "a LiteLLM model string, such as openai/gpt-5.4"

Track = Literal["vanilla", "search", "agent"]
PromptKind = Literal["sheet", "criterion", "evidence", "synthesis"]
Decide = Literal["majority", "unanimous", "any", "mean"]
# What a command's arguments may hold in braces.
COMMAND_PLACES = ("task_file", "report_file", "task_id", "key", "subset", "repeat")

_OWN_KEY = "It is a key of the file itself, beside params"
_CREDENTIAL = "Credentials do not belong here: set the environment variable that LiteLLM reads for it"
# Where keys belong that users put under params.
_ELSEWHERE = {
    "api_base": _OWN_KEY,
    "api_key": _OWN_KEY,
    "aws_access_key_id": _CREDENTIAL,
    "aws_secret_access_key": _CREDENTIAL,
    "aws_session_token": _CREDENTIAL,
    "azure_ad_token": _CREDENTIAL,
    "base_url": "Write it as api_base, beside params",
    "cache": "Remove it: replies are cached by --cache-mode",
    "caching": "Remove it: replies are cached by --cache-mode",
    "client_secret": _CREDENTIAL,
    "custom_llm_provider": "Write it in model, as provider/model",
    "drop_params": "Remove it, and the parameters that the provider does not know",
    "extra_body": _OWN_KEY,
    "extra_headers": "Write it as headers, beside params",
    "fallbacks": "Remove it: a run asks one model",
    "functions": "Tools belong to an agent: kind: agent",
    "headers": _OWN_KEY,
    "max_retries": "Write how long to try again as retry_for, in seconds, beside params",
    "messages": "Remove it: messages are made from the task",
    "metadata": "Remove it, or write it under extra_body",
    "mock_response": "For ready answers use kind: recorded",
    "logprobs": "A judge asks for them with verdict: logprob, beside params",
    "model": _OWN_KEY,
    "n": "Use --repeats for several answers to a task",
    "num_retries": "Write how long to try again as retry_for, in seconds, beside params",
    "request_timeout": "Write it as timeout, in seconds, beside params",
    "response_format": "A judge has the key reply for it; answers are free text",
    "stream": "Remove it: replies are read whole",
    "stream_options": "Remove it: replies are read whole",
    "timeout": _OWN_KEY,
    "tool_choice": "Tools belong to an agent: kind: agent",
    "tools": "Tools belong to an agent: kind: agent",
    "vertex_credentials": _CREDENTIAL,
}


def _check_parameter(name: str) -> str:
    if name in _ELSEWHERE:
        raise ValueError(f"{name} does not belong under params. {_ELSEWHERE[name]}")
    return name


def _check_url(url: str) -> str:
    if not re.match(r"https?://[^/\s]", url):
        raise ValueError(f'found "{url}", expected a URL that begins with https:// or http://')
    return url


def _check_model(model: str) -> str:
    if not re.fullmatch(r"\S+", model):
        raise ValueError(f'found "{model}", expected {_MODEL_STRING}')
    return model


def _check_function(path: str) -> str:
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", path):
        raise ValueError(f'found "{path}", expected package.module:function')
    return path


# Names that LiteLLM takes for models of OpenAI's, whatever the address.
_OPENAIS_OWN = re.compile(r"gpt-(?!oss)|(^|[/:])(o\d|chat-latest|computer-use-|daybreak-)")

Parameter = Annotated[str, AfterValidator(_check_parameter)]
Url = Annotated[str, AfterValidator(_check_url)]
ModelString = Annotated[str, AfterValidator(_check_model), Field(description=_MODEL_STRING)]
NonEmpty = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Usd = Annotated[float, Field(ge=0)]


class PriceConfig(YamlModel):
    """USD per million tokens. Cached input costs as much as other input where it has no price of its own."""

    input: Usd
    output: Usd
    cached_input: Usd | None = None


class PriceTable(RootModel[dict[NonEmpty, PriceConfig]]):
    """LiteLLM model string to price."""

    def get(self, model: str) -> PriceConfig | None:
        """The price of a model, or None."""
        return self.root.get(model)


class EndpointConfig(YamlModel):
    """How a model is reached and what it is sent.

    Attributes:
        model: LiteLLM model string.
        api_base: Base URL; the provider's own if not given.
        api_key: Key; LiteLLM's own variable if not given.
        headers: Extra HTTP headers.
        params: Sampling parameters, sent as they are; nothing is added.
        extra_body: Fields of the request that only this provider knows.
        timeout: Seconds for one call.
        max_concurrency: Calls in flight over all workers.
        rpm: Calls per minute over all runs of this machine.
        tpm: Tokens per minute, of input and output together, over all runs of this machine.
        price: Beats LiteLLM's table.
        retry_for: Seconds in which transient errors and 429 are tried again.
        typical_seconds: Seconds that one task usually takes here, for saying at the start how long a run will take.
        note: A sentence to print under every table, such as a warning.
        serve: Starts a local server for it.
        client: The library that calls it; LiteLLM if not given. ``openai`` is OpenAI's SDK, for servers of one's own
            that speak its protocol: the same requests, replies and errors for less CPU time.
    """

    model: ModelString
    api_base: Url | None = None
    api_key: Secret | None = None
    headers: dict[NonEmpty, Secret] = Field(default_factory=dict)
    params: dict[Parameter, JsonValue] = Field(default_factory=dict)
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    timeout: float = Field(default=600.0, gt=0)
    max_concurrency: Count | None = None
    rpm: float | None = Field(default=None, gt=0)
    tpm: float | None = Field(default=None, gt=0)
    price: PriceConfig | None = None
    retry_for: float = Field(default=180.0, ge=0)
    typical_seconds: float | None = Field(default=None, gt=0)
    note: NonEmpty | None = None
    serve: ServeConfig | None = None
    client: Client | None = None

    @field_validator("client")
    @classmethod
    def _can_be_called_so(cls, client: Client | None, info: ValidationInfo) -> Client | None:
        model, api_base, serve = (info.data.get(name) for name in ("model", "api_base", "serve"))
        if client != "openai" or model is None:
            return client
        if not model.startswith("openai/"):
            fix = "Write the model as openai/NAME, or leave client out."
            raise ValueError(f"client: openai is for models named openai/..., and this is {model}. {fix}")
        if serve is None and effective_api_base(model, api_base) is None:
            fix = "Write its address as api_base, or leave client out."
            raise ValueError(f"client: openai is for a server of one's own, and {model} has no api_base. {fix}")
        if _OPENAIS_OWN.search(model.removeprefix("openai/")):
            fix = "Serve it under another name, or leave client out."
            raise ValueError(f"LiteLLM translates parameters for OpenAI's own models, such as {model}. {fix}")
        return client


class ChatModel(EndpointConfig):
    """A model that is asked in one call."""

    kind: Literal["chat"] = "chat"
    track: Track = "vanilla"


class McpConfig(YamlModel):
    """An MCP server: a program, or an address.

    Attributes:
        command: Program and arguments; it speaks over its standard input and output.
        env: Variables for it, beside HOME, PATH and the like.
        url: Address of a server with streamable HTTP.
        headers: Headers for it.
    """

    command: list[NonEmpty] | None = Field(default=None, min_length=1)
    env: dict[NonEmpty, Secret] = Field(default_factory=dict)
    url: Url | None = None
    headers: dict[NonEmpty, Secret] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one(self) -> McpConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url")
        return self


class ToolConfig(YamlModel):
    """Tools beside ``bash``.

    Attributes:
        mcp: An MCP server, whose tools are all offered.
        python: A function of the user's, as ``package.module:function``.
    """

    mcp: McpConfig | None = None
    python: Annotated[str, AfterValidator(_check_function)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> ToolConfig:
        if (self.mcp is None) == (self.python is None):
            raise PydanticCustomError("tool", "{mcp: ...} or {python: package.module:function}, one in each entry")
        return self


class AgentLimits(YamlModel):
    """What one tool call may use.

    Attributes:
        cpu_seconds: CPU time of each process of a command.
        memory_mb: Memory of each process of a command; in a container, of all together.
        processes: Processes of a command at once.
        output_bytes: Bytes of a command's output that are kept.
        command_timeout: Seconds until a tool call is ended.
        image: Container image.
    """

    cpu_seconds: Count = 120
    memory_mb: Count = 4096
    processes: Count = 128
    output_bytes: Count = 1_000_000
    command_timeout: float = Field(default=120.0, gt=0)
    image: NonEmpty = "docker.io/library/python:3.13-slim"


class AgentModel(EndpointConfig):
    """A model that calls tools until it writes its report.

    Attributes:
        strategy: How it calls them: by the provider's tool calls, or in plain text.
        max_steps: Replies with tool calls before the report is asked for.
        time_limit: Seconds of model and tools together before the report is asked for.
        output_limit: Characters of one tool result that the model sees.
        system_prompt: Replaces the package's own.
        tools: What it works with.
        sandbox: Where shell commands run.
        network: Whether shell commands reach the network.
        limits: What one tool call may use.
    """

    kind: Literal["agent"]
    track: Track = "agent"
    strategy: Literal["function_calling", "react"] = "function_calling"
    max_steps: Count = 50
    time_limit: float = Field(default=3600.0, gt=0)
    output_limit: int = Field(default=20_000, ge=100)
    system_prompt: NonEmpty | None = None
    tools: list[Literal["bash"] | ToolConfig] = Field(default=["bash"])
    sandbox: Literal["bubblewrap", "docker", "podman", "none"] = "bubblewrap"
    network: bool = False
    limits: AgentLimits = Field(default_factory=AgentLimits)


class CommandModel(YamlModel):
    """A program that is run once for each task.

    Attributes:
        command: Program and arguments; no shell reads them. ``{task_file}``, ``{report_file}``, ``{task_id}``,
            ``{key}``, ``{subset}`` and ``{repeat}`` are replaced.
        env: Variables for it, beside PATH, HOME and a few more of this process's.
        model: Handed to it as RUBRICS_MODEL.
        api_base: Handed to it as OPENAI_BASE_URL.
        api_key: Handed to it as OPENAI_API_KEY.
        timeout: Seconds for one task.
        max_concurrency: Programs at once, over all workers.
        version: Anything; change it when the program has changed, so that it is run anew.
        note: A sentence to print under every table.
    """

    kind: Literal["command"]
    command: list[NonEmpty] = Field(min_length=1)
    track: Track = "agent"
    env: dict[NonEmpty, Secret] = Field(default_factory=dict)
    model: ModelString | None = None
    api_base: Url | None = None
    api_key: Secret | None = None
    timeout: float = Field(default=3600.0, gt=0)
    max_concurrency: Count = 4
    version: NonEmpty | int | float | None = None
    note: NonEmpty | None = None

    @field_validator("command")
    @classmethod
    def _can_run(cls, command: list[str], info: ValidationInfo) -> list[str]:
        for place in re.findall(r"\{([a-z_]+)\}", " ".join(command)):
            if place not in COMMAND_PLACES:
                known = ", ".join(f"{{{name}}}" for name in COMMAND_PLACES)
                hint = did_you_mean(place, COMMAND_PLACES) or ""
                raise ValueError(f"there is no place {{{place}}}; places are {known}. {hint}".strip())
        root = (info.context or {}).get("root")
        program = command[0]
        if root and shutil.which(root / program if "/" in program else program) is None:
            where = str(root / program) if "/" in program else "on PATH"
            raise ValueError(f"there is no program {program} that can be run, looked for {where}")
        return command


class RecordedModel(YamlModel):
    """Ready answers.

    Attributes:
        answers: A JSONL or CSV file, or a folder of reports, relative to the workspace.
        track: How the answers were made.
    """

    kind: Literal["recorded"]
    answers: NonEmpty
    track: Track = "vanilla"

    @field_validator("answers")
    @classmethod
    def _exist(cls, answers: str, info: ValidationInfo) -> str:
        root = (info.context or {}).get("root")
        if root and not (root / answers).exists():
            raise ValueError(f"there is no file or folder {root / answers}")
        return answers


def _kind(data: Any) -> Any:
    """What a model file says of its kind; ``chat`` if nothing."""
    return data.get("kind", "chat") if isinstance(data, dict) else "chat"


ModelConfig = Annotated[
    Annotated[ChatModel, Tag("chat")]
    | Annotated[AgentModel, Tag("agent")]
    | Annotated[CommandModel, Tag("command")]
    | Annotated[RecordedModel, Tag("recorded")],
    Discriminator(_kind),
]


class JudgeConfig(EndpointConfig):
    """An LLM that marks criteria.

    Attributes:
        prompt: Name of ``judges/prompts/<prompt>.<language>.md``, a path, or ``python:package.module:NAME``; or a
            mapping of such by kind (sheet, criterion, evidence, synthesis), where a judge serves several methods; the
            benchmark's own if not given.
        language: Language of the prompt: the task's, or one for all.
        show_weights: Whether the judge sees the weights of the criteria.
        attempts: How often a malformed reply is asked for in all.
        reply: Form of the reply; ``auto`` finds out what the endpoint supports.
        max_justification: Most characters of a justification, for small models; 0 asks for none.
        criteria_per_call: Criteria in one call: a number, or ``all``; the benchmark's own method if not given.
        scale: ``ternary`` adds "Partially Satisfied" (0.5) where criteria are judged one by one; its scores are not
            comparable to binary ones.
        on_missing: What becomes of a grade with criteria that stayed unjudged: it is excluded, or scored with the
            lowest and highest value that they allow.
        context_limit: Tokens of an answer above which it is read in parts.
        chunk_size: Tokens of one part.
        judge_repeats: Readings of every answer; the majority decides each criterion, as in a panel.
        verdict: ``logprob`` asks for log-probabilities and keeps the probability of a hit beside each verdict; for
            judges that are asked about one criterion at a time.
    """

    prompt: NonEmpty | dict[PromptKind, NonEmpty] | None = None
    language: Literal["match", "en", "zh"] = "match"
    show_weights: bool = True
    attempts: int = Field(default=3, ge=1, le=10)
    reply: Literal["auto", "json_schema", "json_object", "text"] = "auto"
    max_justification: int | None = Field(default=None, ge=0)
    criteria_per_call: Count | Literal["all"] | None = None
    scale: Literal["binary", "ternary"] = "binary"
    on_missing: Literal["exclude", "bound"] = "exclude"
    context_limit: Count = 150_000
    chunk_size: Count = 100_000
    judge_repeats: int = Field(default=1, ge=1, le=100)
    verdict: Literal["text", "logprob"] = "text"


class PanelConfig(YamlModel):
    """Several judges that mark the same criteria side by side.

    Attributes:
        panel: Their files: names, paths relative to the workspace, or LiteLLM model strings.
        decide: How a criterion is decided: by the ``majority`` (a tie counts against the model), hit if it is
            ``unanimous``, or hit if ``any`` member says so; ``mean`` averages the members' scores.
        note: A sentence to print under every table.
    """

    panel: list[NonEmpty] = Field(min_length=2)
    decide: Decide = "majority"
    note: NonEmpty | None = None


def _judge_kind(data: Any) -> str:
    return "a panel" if isinstance(data, dict) and "panel" in data else "a judge"


AnyJudgeConfig = Annotated[
    Annotated[JudgeConfig, Tag("a judge")] | Annotated[PanelConfig, Tag("a panel")], Discriminator(_judge_kind)
]


C = TypeVar("C", covariant=True)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """A model or a judge.

    Attributes:
        name: The file's stem, or the model string, in ASCII.
        config: What the file says.
        file: The file, or None for a bare model string.
    """

    name: str
    config: C
    file: Path | None = None


LoadedModel = Loaded[ModelConfig]
Member = Loaded[JudgeConfig]


@dataclass(frozen=True, slots=True)
class LoadedJudge:
    """A judge, or a panel of judges.

    Attributes:
        name: The file's stem, or the model string, in ASCII.
        config: What the file says.
        members: The judges of the panel; a judge alone is its own only member.
        file: The file, or None for a bare model string.
    """

    name: str
    config: JudgeConfig | PanelConfig
    members: tuple[Member, ...]
    file: Path | None = None

    @property
    def seats(self) -> list[tuple[str, Member]]:
        """Who gives verdicts, by name: the members, or the readings ``name``, ``name#2``, ... of one judge."""
        if isinstance(self.config, PanelConfig):
            return [(member.name, member) for member in self.members]
        (member,) = self.members
        more = range(2, self.config.judge_repeats + 1)
        return [(self.name, member), *((f"{self.name}#{number}", member) for number in more)]

    @property
    def decide(self) -> Decide:
        """How the verdicts of several seats become one."""
        return self.config.decide if isinstance(self.config, PanelConfig) else "majority"

    @property
    def typical_seconds(self) -> float | None:
        """Seconds that one task usually takes here: that of the slowest member, or None where one does not say."""
        paces = [member.config.typical_seconds for member in self.members]
        return None if None in paces else max(pace for pace in paces if pace is not None)

    def settings(self) -> dict[str, Any]:
        """What decides its verdicts, as plain JSON for the manifest."""
        own = settings_without_secrets(self.config)
        if isinstance(self.config, PanelConfig):
            own["members"] = {member.name: settings_without_secrets(member.config) for member in self.members}
        return own


def load_model(name: str, workspace: Workspace, cwd: Path | None = None, *, asked_by: str = "--model") -> LoadedModel:
    """A model by name, by path or by bare LiteLLM model string, such as ``openai/gpt-5.4``.

    Args:
        name: ``configs/models/NAME.yaml``, a path, or a model string with a slash.
        workspace: Where names are looked up.
        cwd: What a path is relative to; the workspace if not given.
        asked_by: Where the name stands, for messages.

    Raises:
        FaultsError: There is no such model, or its file has faults.
    """
    if _is_model_string(name, workspace, cwd):
        return Loaded(safe_name(name), ChatModel(model=name))
    path = workspace.find_model(name, cwd=cwd, asked_by=asked_by)
    config = load_yaml(
        path, cast("type[ModelConfig]", ModelConfig), shown_as=workspace.shown(path), context={"root": workspace.root}
    )
    return Loaded(safe_name(path.stem), config, path)


def load_judge(name: str, workspace: Workspace, cwd: Path | None = None, *, asked_by: str = "--judge") -> LoadedJudge:
    """A judge by name (``judges/NAME.yaml``), by path or by bare LiteLLM model string, as for `load_model`.

    The members of a panel are found in the same way; their paths are relative to the workspace.

    Raises:
        FaultsError: There is no such judge, its file has faults, or a member does not fit into a panel.
    """
    found = _load_judge_file(name, workspace, cwd, asked_by)
    if isinstance(found.config, JudgeConfig):
        return LoadedJudge(found.name, found.config, (Loaded(found.name, found.config, found.file),), found.file)
    assert found.file is not None
    shown = workspace.shown(found.file)
    faults: list[Fault] = []
    members: list[Member] = []
    for one in found.config.panel:
        with gather(faults):
            member = _load_judge_file(one, workspace, None, shown)
            faults += _unfit(member, one, shown, found.config.decide)
            if isinstance(member.config, JudgeConfig):
                members.append(Loaded(member.name, member.config, member.file))
    names = [member.name for member in members]
    twice = sorted({one for one in names if names.count(one) > 1})
    fix = "To ask one judge several times, write judge_repeats in its own file."
    faults += [Fault(shown, f"two members have the name {one}.", key="panel", fix=fix) for one in twice]
    if faults:
        raise FaultsError(faults)
    return LoadedJudge(found.name, found.config, tuple(members), found.file)


def _load_judge_file(
    name: str, workspace: Workspace, cwd: Path | None, asked_by: str
) -> Loaded[JudgeConfig | PanelConfig]:
    if _is_model_string(name, workspace, cwd):
        return Loaded(safe_name(name), JudgeConfig(model=name))
    path = workspace.find_judge(name, cwd=cwd, asked_by=asked_by)
    config = load_yaml(path, cast("type[JudgeConfig | PanelConfig]", AnyJudgeConfig), shown_as=workspace.shown(path))
    return Loaded(safe_name(path.stem), config, path)


def _unfit(member: Loaded[JudgeConfig | PanelConfig], name: str, shown: str, decide: Decide) -> list[Fault]:
    """Why a judge cannot sit in a panel."""
    config = member.config
    if isinstance(config, PanelConfig):
        return [Fault(shown, f"{name} is a panel itself.", key="panel", fix="Name its members here.")]
    if config.judge_repeats > 1:
        fix = "Make a judge file without judge_repeats for the panel."
        return [Fault(shown, f"{name} has judge_repeats, and a member has one vote.", key="panel", fix=fix)]
    if config.scale == "ternary" and decide != "mean":
        message = f"{name} has a ternary scale, whose verdicts cannot be counted as votes."
        return [Fault(shown, message, key="decide", fix="Write decide: mean, or take binary members.")]
    return []


def load_prices(workspace: Workspace) -> PriceTable:
    """``configs/prices.yaml`` of the package, with the workspace's own entries first.

    Raises:
        FaultsError: A file has faults.
    """
    tables = [
        load_yaml(path, PriceTable, shown_as=workspace.shown(path)).root
        for root in reversed(workspace.roots)
        if (path := root / "configs/prices.yaml").exists()
    ]
    return PriceTable({model: price for table in tables for model, price in table.items()})


def _is_model_string(name: str, workspace: Workspace, cwd: Path | None) -> bool:
    if is_yaml_path(name) or not re.fullmatch(r"[^\s./~][^\s/]*/\S+", name):
        return False
    path = (cwd or workspace.root) / name
    return not path.exists() and not path.with_name(f"{path.name}.yaml").exists()


def settings_without_secrets(config: ModelConfig | JudgeConfig | PanelConfig) -> dict[str, Any]:
    """A model or judge as plain JSON for the manifest: credentials as they stand in the file, or as ``***``."""
    settings: dict[str, Any] = redact_json(config.model_dump(mode="json", exclude_none=True))
    if "api_base" in settings:
        settings["api_base"] = re.sub(r"(?<=://)[^/@]+@", "", settings["api_base"])
    return settings


def safe_name(text: str) -> str:
    """A text with everything that a pytest id cannot show replaced.

    >>> safe_name("openrouter/qwen/qwen3:free")
    'openrouter-qwen-qwen3-free'
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)
