"""The subcommand that makes a workspace."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from pytest_rubrics.cli.command import argument, command, say

_TEST = """\
def test_task(grade):
    grade.check()
"""
_FILES = {
    "conftest.py": """\
pytest_plugins = ["pytest_rubrics.plugin"]
""",
    "pyproject.toml": """\
[tool.pytest.ini_options]
testpaths = ["benchmarks"]
# Benchmarks may have test modules of the same name.
addopts = ["--import-mode=importlib"]
""",
    ".gitignore": """\
/.cache/
/reports/
.pytest_cache/
__pycache__/
""",
    "configs/defaults.yaml": """\
# Defaults of the command line: keys are the options without dashes, "_" for "-".
# The command line beats RUBRICS_* variables, which beat this file.
model: local
judge: local
source: sample
""",
    "configs/models/example.yaml": """\
# A model under test, for: pytest --model example
# Any LiteLLM model string: provider/model.
model: openai/gpt-5.4
# Only for a server of your own, or a proxy.
# api_base: http://127.0.0.1:8000/v1
# Read at the first call. Keys never stand in a file.
api_key: ${OPENAI_API_KEY}
# Sent as they are. Nothing is added, temperature neither.
params:
  max_tokens: 32768
# Seconds for one call.
timeout: 1800
# Calls in flight over all workers.
# max_concurrency: 16
# What the provider permits per minute, where it is known.
# rpm: 500
# tpm: 200000
# USD per million tokens, where LiteLLM's table has no price.
# price: {input: 1.25, output: 10}
""",
    "configs/gates/example.yaml": """\
# A rule that decides a release, for: pytest --gate example
# Its exit codes: 0 PASS, 1 FAIL, 10 INCONCLUSIVE, 11 LOW_COVERAGE, 12 NOT_COMPARABLE.
benchmark: one_million_bench
# Least share of the selected grades that must have been made.
coverage: 0.98
# whole: only a run of all tasks is decided; any: any selection.
selection: whole
""",
    "judges/example.yaml": """\
# A judge, for: pytest --judge example
# It has the keys of a model, and some of its own.
model: openai/gpt-5.4
api_key: ${OPENAI_API_KEY}
params:
  max_tokens: 16384
timeout: 1800
# Language of the instructions: match (the task's), en or zh.
language: match
# Asks of one question before a malformed reply excludes the grade.
attempts: 3
# judges/prompts/NAME.en.md and NAME.zh.md; the benchmark's own if not given.
# prompt: sheet
""",
}


@command("init", "make a workspace for your own models, judges, gates and tasks", argument("dir", metavar="DIR"))
def init(options: argparse.Namespace) -> None:
    """Write the files of a workspace; none of them may exist."""
    from pytest_rubrics.faults import Fault, FaultsError

    root = Path(options.dir)
    files = {root / name: text for name, text in (_FILES | _tests()).items()}
    if taken := [path for path in files if path.exists()]:
        raise FaultsError([Fault(str(path), "exists, and nothing is overwritten.") for path in taken])
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path}")
    say(f"""
Try:
  cd {shlex.quote(options.dir)}
  rubrics doctor
  pytest --limit 1
  pytest --estimate --source full --model example --judge example""")


def _tests() -> dict[str, str]:
    """A test module for each benchmark of the package, whose data and rules stay there."""
    from pytest_rubrics.benchmarks import BENCHMARK_FILE
    from pytest_rubrics.workspace import package_data

    names = sorted(path.parent.name for path in (package_data() / "benchmarks").glob(f"*/{BENCHMARK_FILE}"))
    return {f"benchmarks/{name}/test_{name}.py": _TEST for name in names}
