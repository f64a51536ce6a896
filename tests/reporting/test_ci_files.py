"""The files for CI are valid, and their commands do what they say, in a fresh checkout with a test's provider."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.provider import Provider

ROOT = Path(__file__).parents[2]
CI = ROOT / "docs" / "ci"
GITHUB, GITLAB = "vendor.github-workflows", "vendor.gitlab-ci"
INPUTS = {"benchmark": "one_million_bench", "source": "sample", "model": "candidate", "judge": "judge-ci"}


def snippets() -> dict[str, list[str]]:
    """The blocks of docs/ci.md by language."""
    found: dict[str, list[str]] = {}
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        found.setdefault(language, []).append(block)
    return found


def whole_file(name: str) -> str:
    """The block of docs/ci.md that is this file."""
    return next(block for block in snippets()["yaml"] if block.startswith(f"# {name}"))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (GITHUB, (CI / "rubrics.yml").read_text(encoding="utf-8")),
        (GITHUB, whole_file(".github/workflows/gate.yml")),
        (GITLAB, (CI / "rubrics.gitlab-ci.yml").read_text(encoding="utf-8")),
        (GITLAB, whole_file(".gitlab-ci.yml")),
    ],
    ids=["github", "github caller", "gitlab", "gitlab caller"],
)
def test_it_is_valid(tmp_path: Path, schema: str, text: str) -> None:
    path = tmp_path / "file.yml"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    found = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert found.returncode == 0, found.stdout


def test_the_callers_give_what_is_asked_for() -> None:
    workflow = load(CI / "rubrics.yml")[True]["workflow_call"]  # YAML takes "on" for true
    (job,) = yaml.safe_load(whole_file(".github/workflows/gate.yml"))["jobs"].values()
    assert {name for name, one in workflow["inputs"].items() if one.get("required")} <= set(job["with"])
    assert set(job["with"]) <= set(workflow["inputs"])
    hidden = load(CI / "rubrics.gitlab-ci.yml")[".rubrics"]
    caller = yaml.safe_load(whole_file(".gitlab-ci.yml"))["gate"]
    used = set(re.findall(r"\$(\w+)", " ".join(hidden["script"])))
    assert used <= set(hidden["variables"]) | set(caller["variables"])


class Checkout:
    """The files of this repository as a CI job finds them, with a model and a judge of its own."""

    def __init__(self, root: Path, server: Provider) -> None:
        self.root = root
        if shutil.which("git") is None or not (ROOT / ".git").exists():
            pytest.skip("needs git, and the repository")
        listed = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
        for name in filter(None, subprocess.check_output(listed, cwd=ROOT, encoding="utf-8").split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, root / name)
        for path in ("configs/models/candidate.yaml", "judges/judge-ci.yaml"):
            settings = {
                "model": f"openai/{Path(path).stem}",
                "api_base": server.url,
                "client": "openai",
                "price": {"input": 1, "output": 2},
            }
            settings |= {"api_key": "${OPENAI_API_KEY}"}
            (root / path).write_text(yaml.safe_dump(settings), encoding="utf-8")

    def run(self, script: str, variables: Mapping[str, str], shell: str = "bash") -> int:
        """Run commands as a runner does, with the installed package in place of installing it."""
        return subprocess.run(
            [shell, "-e", "-c", script],
            cwd=self.root,
            env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.root), **variables},
            stdout=subprocess.DEVNULL,
            timeout=300,
            check=False,
        ).returncode


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def substituted(value: str, inputs: Mapping[str, str]) -> str:
    """A value of a workflow with its expressions replaced, as the runner does."""
    values = {f"inputs.{name}": one for name, one in inputs.items()}
    values |= {"secrets.OPENAI_API_KEY": "sk-secret", "github.run_id": "1", "github.run_attempt": "1"}
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda match: values.get(match[1], ""), value)


class TestGitHub:
    def test_its_commands_run_and_the_next_job_pays_nothing(self, tmp_path: Path, server: Provider) -> None:
        workflow = load(CI / "rubrics.yml")
        inputs = {name: one.get("default", "") for name, one in workflow[True]["workflow_call"]["inputs"].items()}
        inputs |= INPUTS
        (job,) = workflow["jobs"].values()
        steps = {step.get("uses", step.get("name", step.get("run"))): step for step in job["steps"]}
        assert next(step["run"] for step in steps.values() if "run" in step) == "pip install -e ."
        gate = steps["Run the gate"]
        restore, save = (steps[f"actions/cache/{verb}@v4"] for verb in ("restore", "save"))
        assert restore["with"]["path"] == save["with"]["path"]
        assert restore["with"]["key"] == save["with"]["key"]
        assert save["with"]["key"].startswith(restore["with"]["restore-keys"])
        assert save["if"] == "always()"
        variables = {name: substituted(value, inputs) for name, value in gate["env"].items()}
        summary = tmp_path / "summary.md"

        first = Checkout(tmp_path / "first", server)
        assert first.run(gate["run"], {**variables, "GITHUB_STEP_SUMMARY": str(summary)}) == 0
        assert summary.read_text(encoding="utf-8").startswith("## PASS")
        for path in steps["actions/upload-artifact@v4"]["with"]["path"].split():
            assert (first.root / path).exists()
        made = server.count()
        assert made > 0
        second = Checkout(tmp_path / "second", server)
        shutil.copytree(first.root / save["with"]["path"], second.root / restore["with"]["path"])
        assert second.run(gate["run"], variables) == 0
        assert server.count() == made
        assert "sk-secret" not in (second.root / "reports" / "run" / "report.html").read_text(encoding="utf-8")

    def test_an_input_is_no_command(self, tmp_path: Path, server: Provider) -> None:
        (job,) = load(CI / "rubrics.yml")["jobs"].values()
        gate = next(step for step in job["steps"] if step.get("name") == "Run the gate")
        assert "${{" not in gate["run"]
        checkout = Checkout(tmp_path / "clone", server)
        hostile = dict.fromkeys(gate["env"], '"; touch broken; "')
        assert checkout.run(gate["run"], hostile) != 0
        assert not (checkout.root / "broken").exists()


class TestGitLab:
    def test_its_commands_run(self, tmp_path: Path, server: Provider) -> None:
        job = load(CI / "rubrics.gitlab-ci.yml")[".rubrics"]
        install, *script = job["script"]
        assert install == "pip install -e ."
        checkout = Checkout(tmp_path / "clone", server)
        given = {"SOURCE": "sample", "MODEL": "candidate", "JUDGE": "judge-ci", "OPENAI_API_KEY": "sk-secret"}
        assert checkout.run("\n".join(script), {**job["variables"], **given}) == 0
        kept = [*job["cache"][0]["paths"], *job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
        assert all((checkout.root / path).exists() for path in kept)


def test_shards_are_joined_and_decided(tmp_path: Path, server: Provider) -> None:
    checkout = Checkout(tmp_path / "clone", server)
    of_a_shard, joined = (block for block in snippets()["sh"] if "part-" in block)
    variables = {"OPENAI_API_KEY": "sk-secret", "RUBRICS_MODEL": "candidate", "RUBRICS_JUDGE": "judge-ci"}
    for shard in range(1, 5):
        assert checkout.run(of_a_shard, {**variables, "SHARD": str(shard)}) == 0
    assert checkout.run(joined.replace("release", "complete"), variables) == 0
    report = (checkout.root / "reports" / "run" / "report.md").read_text(encoding="utf-8")
    assert report.startswith("## PASS")
