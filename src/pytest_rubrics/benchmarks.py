"""Benchmark folders: which lie below the given paths, and what their ``benchmark.yaml`` says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.suggestions import did_you_mean

if TYPE_CHECKING:
    from pytest_rubrics.benchmark_file import BenchmarkFile

BENCHMARK_FILE = "benchmark.yaml"
# Folders that pytest does not look into either.
_NOT_SEARCHED = {"__pycache__", "build", "dist", "node_modules", "venv"}


@dataclass(frozen=True, slots=True)
class BenchmarkFolder:
    """A folder with the test modules of a benchmark.

    Attributes:
        name: Name of the benchmark, also of the folder.
        folder: The folder.
        shipped: The package's folder of the same name, which stands in for files that `folder` lacks; or None.
    """

    name: str
    folder: Path
    shipped: Path | None = None

    @property
    def file(self) -> Path:
        """The ``benchmark.yaml`` in use."""
        return self.find(BENCHMARK_FILE)

    def find(self, name: str) -> Path:
        """Return the path of a file: in the folder, else in the package, else where it is missing in the folder."""
        own = self.folder / name
        if self.shipped and not own.exists() and (self.shipped / name).exists():
            return self.shipped / name
        return own

    def is_complete(self) -> bool:
        """Whether there is a ``benchmark.yaml``."""
        return self.file.is_file()


@dataclass(frozen=True, slots=True, repr=False)
class Benchmark:
    """A benchmark, read.

    Attributes:
        name: Name, also of its folder.
        folder: Where its files are.
        spec: Its ``benchmark.yaml``.
    """

    name: str
    folder: BenchmarkFolder
    spec: BenchmarkFile

    @property
    def sample(self) -> Path:
        """The bundled sample."""
        return self.folder.find(self.spec.sources.sample)

    @property
    def scoring(self) -> Scoring:
        """How verdicts become a score."""
        rule = self.spec.scoring
        return Scoring(rule.metric, rule.clip, rule.pass_at)

    @property
    def tags(self) -> list[str]:
        """The tags that the benchmark names; data may hold others."""
        tag = self.spec.record.criteria.tag
        return list(tag.spellings) if tag else []

    @property
    def values(self) -> Path | None:
        """The table of economic values, or None."""
        return self.folder.find(self.spec.values) if self.spec.values else None


def load_benchmark(folder: BenchmarkFolder) -> Benchmark:
    """Read the ``benchmark.yaml`` of a folder.

    Raises:
        FaultsError: It is missing or wrong.
    """
    from pytest_rubrics.benchmark_file import BenchmarkFile
    from pytest_rubrics.yaml_files import load_yaml

    return Benchmark(folder.name, folder, load_yaml(folder.file, BenchmarkFile))


def find_benchmarks(workspace: Path, paths: Iterable[Path], package: Path) -> list[BenchmarkFolder]:
    """Return the benchmark folders below paths, sorted by name.

    A benchmark folder holds a test module and either a ``benchmark.yaml`` or lies directly in the workspace's
    ``benchmarks``; what it lacks comes from the package's benchmark of the same name.

    Args:
        workspace: Root of the workspace.
        paths: Files and folders, as given to pytest, without ``::`` and what follows.
        package: Folder of the package that holds its ``benchmarks``.

    Raises:
        FaultsError: A folder in ``benchmarks`` has no ``benchmark.yaml`` anywhere, or two benchmarks share a name.
    """
    found: dict[str, BenchmarkFolder] = {}
    faults: list[Fault] = []
    for module in (module for path in paths for module in _test_modules(path.resolve())):
        benchmark = _folder_of(module, workspace.resolve(), package)
        if benchmark is None:
            continue
        if not benchmark.is_complete():
            faults.append(_no_file(benchmark, package))
        elif found.setdefault(benchmark.name, benchmark) != benchmark:
            other = found[benchmark.name].folder
            faults.append(
                Fault(str(benchmark.folder), f"has the name of another benchmark, {other}.", fix="Rename one.")
            )
    if faults:
        raise FaultsError(list(dict.fromkeys(faults)))
    return [found[name] for name in sorted(found)]


def benchmark_for(test_module: Path, workspace: Path, package: Path) -> BenchmarkFolder | None:
    """Return the benchmark that a test module belongs to, or None.

    Args:
        test_module: Path of the module.
        workspace: Root of the workspace.
        package: Folder of the package that holds its ``benchmarks``.
    """
    benchmark = _folder_of(test_module.resolve(), workspace.resolve(), package)
    return benchmark if benchmark and benchmark.is_complete() else None


def marker_names(file: Path) -> list[str]:
    """Return the markers that a ``benchmark.yaml`` declares, in order; what cannot be read gives none.

    It is for ``pytest_configure``, where a broken file must not stop pytest: `load_benchmark` says later what is wrong.
    """
    import yaml

    try:
        content = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return []
    if not isinstance(content, dict):
        return []
    lists = [content.get(key) for key in ("subsets", "tracks", "domains")]
    names = [name for names in lists if isinstance(names, list) for name in names]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name.isidentifier()))


def _folder_of(module: Path, workspace: Path, package: Path) -> BenchmarkFolder | None:
    folder = module.parent
    if folder.parent != workspace / "benchmarks" and not (folder / BENCHMARK_FILE).is_file():
        return None
    shipped = package / "benchmarks" / folder.name
    is_other = shipped.is_dir() and shipped.resolve() != folder
    return BenchmarkFolder(folder.name, folder, shipped if is_other else None)


def _test_modules(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for parent, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _NOT_SEARCHED and not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if name.startswith("test_") and name.endswith(".py"))


def _no_file(benchmark: BenchmarkFolder, package: Path) -> Fault:
    shipped = sorted(path.parent.name for path in (package / "benchmarks").glob(f"*/{BENCHMARK_FILE}"))
    message = f"has test modules but no {BENCHMARK_FILE}, and the package has no benchmark {benchmark.name!r}."
    fix = did_you_mean(benchmark.name, shipped) or f"Write one; the package has {', '.join(shipped)}."
    return Fault(str(benchmark.folder), message, fix=fix)
