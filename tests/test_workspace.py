from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_rubrics.faults import FaultsError
from pytest_rubrics.workspace import Workspace, package_data


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    for name in (
        "configs/models/我的.yaml",
        "configs/models/openai.yaml",
        "judges/strict.yaml",
        "configs/gates/g.yaml",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("model: own/model\n", encoding="utf-8")
    return Workspace(root)


def test_names_are_found_in_the_workspace_first(workspace: Workspace) -> None:
    assert workspace.find_model("openai") == workspace.root / "configs/models/openai.yaml"
    assert workspace.find_model("我的") == workspace.root / "configs/models/我的.yaml"
    assert workspace.find_judge("strict") == workspace.root / "judges/strict.yaml"
    assert workspace.find_gate("g") == workspace.root / "configs/gates/g.yaml"


def test_names_are_found_in_the_package_next(workspace: Workspace) -> None:
    assert workspace.find_model("gemini") == package_data() / "configs/models/gemini.yaml"
    assert workspace.locate("configs/models/gemini.yaml") == package_data() / "configs/models/gemini.yaml"
    assert workspace.locate("configs/models/nothing.yaml") is None
    assert {"我的", "openai", "gemini"} <= set(workspace.names("configs/models"))


def test_a_path_is_relative_to_the_given_folder_else_to_the_root(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "here.yaml").write_text("", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/plain").write_text("", encoding="utf-8")
    assert workspace.find_model("here.yaml", cwd=tmp_path) == tmp_path / "here.yaml"
    assert workspace.find_model("sub/plain", cwd=tmp_path) == tmp_path / "sub/plain"
    assert workspace.find_model(str(tmp_path / "here.yaml")) == tmp_path / "here.yaml"
    assert workspace.find_model("judges/strict.yaml") == workspace.root / "judges/strict.yaml"
    with pytest.raises(FaultsError, match="no such file"):
        workspace.find_model("here.yaml")


def test_a_missing_name_is_told_with_near_and_known_ones(workspace: Workspace) -> None:
    with pytest.raises(FaultsError) as caught:
        workspace.find_model("opnai")
    text = str(caught.value)
    assert text.startswith("--model: there is no model named 'opnai'. Known: ")
    assert re.search(r"Known: .*gemini.*openai.*我的\. Did you mean openai\? ", text)
    assert text.endswith(
        "Write configs/models/opnai.yaml, or give a path, "
        "or a LiteLLM model string with its provider, such as openai/opnai."
    )


def test_a_missing_gate_offers_no_model_string(workspace: Workspace) -> None:
    with pytest.raises(FaultsError) as caught:
        workspace.find_gate("release", asked_by="configs/defaults.yaml")
    text = str(caught.value)
    assert text.startswith("configs/defaults.yaml: there is no gate named 'release'. Known: ")
    assert text.endswith("Write configs/gates/release.yaml, or give a path.")


def test_a_missing_path_is_told_with_near_files_and_names(workspace: Workspace) -> None:
    with pytest.raises(FaultsError) as caught:
        workspace.find_model("configs/models/opanai.yaml")
    assert str(caught.value) == "configs/models/opanai.yaml: no such file. Did you mean openai.yaml?"
    with pytest.raises(FaultsError) as caught:
        workspace.find_model("opanai.yaml")
    assert str(caught.value) == "opanai.yaml: no such file. Did you mean openai?"
    with pytest.raises(FaultsError, match=r"none/x\.yaml: no such file: the folder .*none does not exist\."):
        workspace.find_model("none/x.yaml")


def test_a_path_without_its_suffix_is_told_with_it(workspace: Workspace) -> None:
    with pytest.raises(FaultsError) as caught:
        workspace.find_judge("judges/strict")
    assert str(caught.value) == "--judge: there is no file judges/strict. Did you mean judges/strict.yaml?"


@pytest.mark.parametrize("name", ["", "..", "."])
def test_what_is_neither_name_nor_path_is_refused(name: str, workspace: Workspace) -> None:
    with pytest.raises(FaultsError, match="there is no model named"):
        workspace.find_model(name)


def test_paths_are_shown_relative_to_the_workspace(workspace: Workspace, tmp_path: Path) -> None:
    assert workspace.shown(workspace.root / "judges/strict.yaml") == "judges/strict.yaml"
    assert workspace.shown(tmp_path / "x.yaml") == str(tmp_path / "x.yaml")


def test_a_wheel_carries_its_own_workspace_beside_the_module(tmp_path: Path) -> None:
    package = tmp_path / "pytest_rubrics"
    (package / "workspace/judges").mkdir(parents=True)
    source = Path(__file__).parents[1] / "src/pytest_rubrics"
    for name in ("__init__.py", "workspace.py", "faults.py", "suggestions.py"):
        (package / name).write_bytes((source / name).read_bytes())
    code = "from pytest_rubrics.workspace import package_data; print(package_data())"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()) == package / "workspace"
