"""Where benchmarks, judges, models and gates are found: in the workspace first, then in the package."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.suggestions import did_you_mean

_FILE = "Write {folder}/{name}.yaml, or give a path"
_FIXES = {
    "model": f"{_FILE}, or a LiteLLM model string with its provider, such as openai/{{name}}.",
    "judge": f"{_FILE}, or a LiteLLM model string with its provider, such as openai/{{name}}.",
    "gate": f"{_FILE}.",
}


def package_data() -> Path:
    """The workspace that the package carries.

    A wheel holds it beside this module; an editable install runs from the repository, which is a workspace itself.
    """
    carried = Path(__file__).parent / "workspace"
    return carried if carried.is_dir() else Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder with ``benchmarks/``, ``judges/`` and ``configs/``, each of which may be absent.

    Attributes:
        root: The folder; paths inside YAML files are relative to it.
    """

    root: Path

    @property
    def roots(self) -> list[Path]:
        """Where names are looked up, in this order."""
        return [self.root, package_data()]

    def find_model(self, name: str, *, cwd: Path | None = None, asked_by: str | None = None) -> Path:
        """The file of a model: ``configs/models/NAME.yaml``, or a path.

        Args:
            name: A name, or a path: it ends in ``.yaml`` or ``.yml``, or holds a separator and exists.
            cwd: What a path is relative to: the current folder for the command line; the root if not given.
            asked_by: Where the name stands, for the message: an option, or a file; ``--model`` if not given.

        Raises:
            FaultsError: There is none.
        """
        return self._find("model", "configs/models", name, cwd, asked_by)

    def find_judge(self, name: str, *, cwd: Path | None = None, asked_by: str | None = None) -> Path:
        """The file of a judge: ``judges/NAME.yaml``, or a path, as for `find_model`."""
        return self._find("judge", "judges", name, cwd, asked_by)

    def find_gate(self, name: str, *, cwd: Path | None = None, asked_by: str | None = None) -> Path:
        """The file of a gate: ``configs/gates/NAME.yaml``, or a path, as for `find_model`."""
        return self._find("gate", "configs/gates", name, cwd, asked_by)

    def locate(self, relative: str) -> Path | None:
        """A file or folder of the workspace, else the package's of the same relative path, else None."""
        return next((path for root in self.roots if (path := root / relative).exists()), None)

    def names(self, folder: str) -> list[str]:
        """Names of the YAML files in a folder such as ``configs/models``, the package's among them, sorted."""
        return sorted({path.stem for root in self.roots for path in (root / folder).glob("*.yaml")})

    def shown(self, path: Path) -> str:
        """A path as messages show it: relative to the workspace where it lies inside."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def _find(self, kind: str, folder: str, name: str, cwd: Path | None, asked_by: str | None) -> Path:
        if has_separator(name) or is_yaml_path(name):
            path = (cwd or self.root) / name
            found = path if path.exists() else None
        else:
            found = self.locate(f"{folder}/{name}.yaml") if name else None
        if found is None:
            raise FaultsError([self._not_found(kind, folder, name, cwd, asked_by)])
        return found

    def _not_found(self, kind: str, folder: str, name: str, cwd: Path | None, asked_by: str | None) -> Fault:
        path = (cwd or self.root) / name
        known = self.names(folder)
        if is_yaml_path(name):
            return missing_file(path, name, known)
        if has_separator(name):
            is_short = path.with_name(f"{path.name}.yaml").exists()
            message = f"there is no file {name}."
            fix = f"Did you mean {name}.yaml?" if is_short else None
        else:
            message = f"there is no {kind} named {name!r}. Known: {', '.join(known) or 'none'}."
            fixes = [did_you_mean(name, known), _FIXES[kind].format(name=name, folder=folder)]
            fix = " ".join(filter(None, fixes))
        return Fault(asked_by or f"--{kind}", message, fix=fix)


def is_yaml_path(name: str) -> bool:
    """Whether a name is meant as the path of a YAML file, whether or not it exists."""
    return name.lower().endswith((".yaml", ".yml"))


def has_separator(name: str) -> bool:
    """Whether a name has several parts, as paths and ``provider/model`` have."""
    return "/" in name or os.sep in name


def missing_file(path: Path, shown: str, known: Iterable[str] = ()) -> Fault:
    """The fault for a file that is not there, with files beside it, or else known names, that are spelled like it."""
    if not path.parent.is_dir():
        return Fault(shown, f"no such file: the folder {path.parent} does not exist.")
    beside = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return Fault(shown, "no such file.", fix=did_you_mean(path.name, beside) or did_you_mean(path.stem, known))
