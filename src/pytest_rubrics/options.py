"""The options of a run: command line, then RUBRICS_* environment, then configs/defaults.yaml, then built in."""

from __future__ import annotations

import datetime
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.suggestions import did_you_mean

if TYPE_CHECKING:
    import pytest

CACHE_MODES = ("rw", "offline", "refresh", "off")
ENGINES = ("local", "ray")
RETRIES = ("excluded", "failed", "all")
_SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its help and how a text becomes its value."""

    name: str
    help: str
    kind: Literal["text", "texts", "path", "count", "amount", "choice", "flag", "shard"] = "text"
    default: Any = None
    choices: tuple[str, ...] = ()
    metavar: str = "NAME"

    @property
    def key(self) -> str:
        """Its key in ``configs/defaults.yaml``."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def dest(self) -> str:
        """Its attribute among pytest's options; prefixed, since other plugins have a ``--repeats`` too."""
        return f"rubrics_{self.key}"

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"RUBRICS_{self.key.upper()}"


OPTIONS = (
    Option("--model", "model under test: configs/models/NAME.yaml, a path, or a LiteLLM string; repeatable", "texts",
           ("local",)),
    Option("--judge", "judge: judges/NAME.yaml, a path, or a LiteLLM string", "text", "local"),
    Option("--source", "sample, full, or a path in the published layout; [BENCHMARK=]VALUE; repeatable", "texts",
           ("sample",), metavar="VALUE"),
    Option("--limit", "the first N tasks of each subset", "count", metavar="N"),
    Option("--repeats", "answers per task", "count", 1, metavar="N"),
    Option("--concurrency", "calls in flight over all workers, per endpoint", "count", 32, metavar="N"),
    Option("--cache-dir", "folder of the paid replies, shared by runs", "path", ".cache/replies", metavar="DIR"),
    Option("--cache-mode", "rw; offline: never call; refresh: ask again what is older than this run; off: a private "
           "cache in the run folder", "choice", "rw", CACHE_MODES, "MODE"),
    Option("--run-dir", "folder of this run's files", "path", metavar="DIR"),
    Option("--gate", "configs/gates/NAME.yaml or a path: the exit code becomes the gate's", "text"),
    Option("--max-cost", "launch no call that could take the run past this many USD", "amount", metavar="USD"),
    Option("--estimate", "print calls, tokens and cost; run nothing", "flag", False),
    Option("--retry", "ask anew for what former runs excluded, or failed", "choice", None, RETRIES, "WHAT"),
    Option("--engine", "where grades are made: local, in the processes of pytest; ray, on the nodes of a Ray cluster",
           "choice", "local", ENGINES, "ENGINE"),
    Option("--shard", "this machine's part of the tasks", "shard", metavar="I/N"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that was asked for, once for a run and all its workers.

    Attributes:
        model, judge, source, limit, repeats, concurrency, cache_dir, cache_mode, run_dir, gate, max_cost, estimate,
            retry, engine: As in the table of options. Paths are absolute.
        shard: Number of this part and number of parts, or None.
        run: Id of the run.
        started_at: When it began, seconds since the epoch.
    """

    model: tuple[str, ...]
    judge: str
    source: tuple[str, ...]
    limit: int | None
    repeats: int
    concurrency: int
    cache_dir: Path
    cache_mode: Literal["rw", "offline", "refresh", "off"]
    run_dir: Path
    gate: str | None
    max_cost: float | None
    estimate: bool
    retry: Literal["excluded", "failed", "all"] | None
    engine: Literal["local", "ray"]
    shard: tuple[int, int] | None
    run: str
    started_at: float


def add_options(parser: pytest.Parser) -> None:
    """Register the options with pytest."""
    group = parser.getgroup("rubrics", "rubric-graded benchmarks")
    for option in OPTIONS:
        default = "" if option.default is None or option.kind == "flag" else f" (default: {_shown(option.default)})"
        settings: dict[str, Any] = {"dest": option.dest, "default": None, "help": option.help + default}
        if option.kind == "flag":
            settings.update(action="store_const", const="true")
        else:
            settings["metavar"] = "|".join(option.choices) if option.choices else option.metavar
            settings["action"] = "append" if option.kind == "texts" else "store"
        group.addoption(option.name, **settings)


def _shown(default: Any) -> str:
    return ", ".join(default) if isinstance(default, tuple) else str(default)


def read_options(given: Mapping[str, Any], environment: Mapping[str, str], root: Path, cwd: Path) -> RunConfig:
    """Settle every option.

    Args:
        given: Values of the command line by key; None where not given.
        environment: The process environment.
        root: Root of the workspace.
        cwd: Where the command was given.

    Raises:
        FaultsError: A value is wrong; all of them at once.
    """
    faults: list[Fault] = []
    defaults = _read_defaults(root, faults)
    values: dict[str, Any] = {}
    for option in OPTIONS:
        raw, origin, base = option.default, None, root
        if given.get(option.key) is not None:
            raw, origin, base = given[option.key], option.name, cwd
        elif environment.get(option.variable):
            raw, origin, base = environment[option.variable], option.variable, cwd
        elif option.key in defaults:
            raw, origin = defaults[option.key], "configs/defaults.yaml"
        try:
            values[option.key] = _convert(option, raw, base)
        except ValueError as error:
            faults.append(Fault(str(origin), str(error)))
    if faults:
        raise FaultsError(faults)
    return _complete(values, root)


def _complete(values: dict[str, Any], root: Path) -> RunConfig:
    run = secrets.token_hex(4)
    started = time.time()
    if values["run_dir"] is None:
        stamp = datetime.datetime.fromtimestamp(started, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        values["run_dir"] = root / "reports" / f"{stamp}-{run[:4]}"
    if values["cache_mode"] == "off":
        values["cache_dir"] = values["run_dir"] / "replies"
    return RunConfig(**values, run=run, started_at=started)


def _read_defaults(root: Path, faults: list[Fault]) -> dict[str, Any]:
    path = root / "configs" / "defaults.yaml"
    if not path.is_file():
        return {}
    from pytest_rubrics.defaults_file import DefaultsFile
    from pytest_rubrics.yaml_files import load_yaml

    with gather(faults):
        return load_yaml(path, DefaultsFile, shown_as="configs/defaults.yaml").model_dump(exclude_none=True)
    return {}


def _convert(option: Option, raw: Any, base: Path) -> Any:
    if raw is None:
        return None
    match option.kind:
        case "texts":
            return _texts(raw)
        case "path":
            return Path(os.path.abspath(base / Path(_text(raw)).expanduser()))  # noqa: PTH100 - no symlink resolution
        case "count":
            return _count(raw)
        case "amount":
            return _amount(raw)
        case "flag":
            return _flag(raw)
        case "shard":
            return _shard(raw)
        case "choice":
            return _choice(option, raw)
        case _:
            return _text(raw)


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError(f"found {raw!r}, expected a text.")
    return raw


def _texts(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",")]
    if not isinstance(raw, (list, tuple)) or not raw:
        raise ValueError(f"found {raw!r}, expected a text or a list of texts.")
    return tuple(_text(part) for part in raw)


def _count(raw: Any) -> int:
    number = raw
    if isinstance(raw, str) and re.fullmatch(r"\d+", raw.strip()):
        number = int(raw)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"found {raw!r}, expected a whole number from 1.")
    return number


def _amount(raw: Any) -> float:
    try:
        amount = float(raw)
    except (TypeError, ValueError):
        amount = -1.0
    if isinstance(raw, bool) or not 0 <= amount < float("inf"):
        raise ValueError(f"found {raw!r}, expected an amount in USD, such as 2.50.")
    return amount


def _flag(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in {"1", "true", "yes", "0", "false", "no"}:
        return raw.lower() in {"1", "true", "yes"}
    raise ValueError(f"found {raw!r}, expected true or false.")


def _choice(option: Option, raw: Any) -> str:
    if raw not in option.choices:
        hint = did_you_mean(str(raw), option.choices)
        raise ValueError(f"found {raw!r}, expected one of {', '.join(option.choices)}.{' ' + hint if hint else ''}")
    return str(raw)


def _shard(raw: Any) -> tuple[int, int]:
    found = _SHARD.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if not found or int(found[1]) > int(found[2]):
        raise ValueError(f"found {raw!r}, expected I/N with 1 <= I <= N, such as 1/4.")
    return int(found[1]), int(found[2])
