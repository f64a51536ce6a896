"""The subcommand that puts probes to a judge."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rubrics.cli.command import argument, command, complain, find_workspace, say
from pytest_rubrics.faults import Fault, FaultsError

if TYPE_CHECKING:
    from pytest_rubrics.auditing.running import Audit
    from pytest_rubrics.plan import BenchmarkPlan, Plan

DEFAULT_BENCHMARK = "one_million_bench"
DEFAULT_TASKS = 10


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected a whole number from 1")
    return number


def _amount(text: str) -> float:
    amount = float(text)
    if not 0 <= amount < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text}, expected an amount in USD")
    return amount


@command(
    "audit",
    "put probes with known answers to a judge before its verdicts are trusted",
    argument("judge", metavar="JUDGE", help="judges/NAME.yaml, a path, or a LiteLLM string"),
    argument("--benchmark", metavar="NAME", default=DEFAULT_BENCHMARK, help=f"default: {DEFAULT_BENCHMARK}"),
    argument("--source", metavar="VALUE", default="sample", help="sample, full, or a path (default: sample)"),
    argument("--tasks", metavar="N", type=_count, default=DEFAULT_TASKS, help=f"default: {DEFAULT_TASKS}"),
    argument("--model", metavar="NAME", help="whose answers are judged (default: that of a run started here)"),
    argument("--answers", metavar="FILE", type=Path, help="ready answers in place of a model's"),
    argument("--labels", metavar="FILE", type=Path, help="verdicts of people: CSV with task, criterion, label"),
    argument("--max-cost", metavar="USD", type=_amount, help="launch no call that could take it past this"),
    argument("--cache-dir", metavar="DIR", help="the cache (default: that of a run started here)"),
)
def audit(options: argparse.Namespace) -> int:
    """Run the probes, print the table, and write audit and fingerprint beside the judges; 1 where a probe failed."""
    from pytest_rubrics.auditing.labels import read_labels
    from pytest_rubrics.auditing.running import run_audit, spread_over_subsets
    from pytest_rubrics.calls.cache import StoreError
    from pytest_rubrics.reporting.audit import audit_lines

    plan = _plan(options)
    (entry,) = plan.benchmarks.values()
    labels = read_labels(options.labels, entry.data.tasks) if options.labels else {}
    answered = _answered(plan, entry)
    tasks = spread_over_subsets(answered, options.tasks)
    for note in plan.notes:
        say(note)
    try:
        made = run_audit(plan, tasks, {task_id for task_id, _ in labels}, warn=complain)
    except StoreError as error:
        raise FaultsError([Fault("cache", str(error))]) from error
    if made.warning:
        complain(made.warning)
    record = _record(plan, entry, made, labels)
    for line in audit_lines(record):
        say(line)
    say(f"written: {_write(plan, record)}")
    return 1 if record["mark"] in {"FAIL", "ERROR"} else 0


def _plan(options: argparse.Namespace) -> Plan:
    """One benchmark, one model and the judge, loaded and checked as for a run.

    Raises:
        FaultsError: Something that was named is missing or has faults.
    """
    from pytest_rubrics.answering.recorded import load_answers
    from pytest_rubrics.cli.command import find_benchmark
    from pytest_rubrics.config import Loaded, RecordedModel
    from pytest_rubrics.options import read_options
    from pytest_rubrics.plan import make_plan

    workspace, here = find_workspace(), Path.cwd()
    if options.model and options.answers:
        raise FaultsError([Fault("--answers", "and --model both say whose answers are judged.", fix="Leave one out.")])
    given = {"judge": options.judge, "source": [options.source], "max_cost": options.max_cost}
    given |= {"cache_dir": options.cache_dir, "model": [options.model] if options.model else None}
    config = read_options(given, os.environ, workspace.root, here)
    models = () if options.answers else config.model[:1]
    config = replace(config, model=models, gate=None, shard=None, limit=None, repeats=1, retry=None, estimate=False)
    folder = find_benchmark(options.benchmark, workspace).folder
    place = folder.folder if folder.folder.is_dir() else folder.shipped
    plan = make_plan(config, workspace, [place] if place else [], here)
    if plan is None:
        raise FaultsError([Fault(f"--benchmark {options.benchmark}", "has no test module.")])
    (entry,) = plan.benchmarks.values()
    if options.answers:
        path = here / options.answers
        plan.models = [Loaded("answers", RecordedModel(kind="recorded", answers=str(path)))]
        plan.answers = {"answers": load_answers(path, entry.data.tasks, workspace.root / ".cache" / "reports")}
    return plan


def _answered(plan: Plan, entry: BenchmarkPlan) -> list[Any]:
    """The tasks that have an answer, where answers are ready; else all."""
    (model,) = plan.models
    ready = plan.answers.get(model.name)
    if ready is None:
        return entry.data.tasks
    return [task for task in entry.data.tasks if (task.benchmark, task.id, 1) in ready.texts]


def _record(plan: Plan, entry: BenchmarkPlan, made: Audit, labels: Any) -> dict[str, Any]:
    from pytest_rubrics.auditing.findings import against_labels, findings, overall
    from pytest_rubrics.auditing.probes import BASE
    from pytest_rubrics.grades import now
    from pytest_rubrics.judging.fingerprint import fingerprint

    rows = findings(made.probed)
    served = {one.grade.served_model["judge"] for one in made.probed if one.probe is BASE}
    named = fingerprint(plan.judge.settings(), entry.prompts_sha256, {name for name in served if name})
    (model,) = plan.models
    return {
        "schema": 1,
        "judge": plan.judge.name,
        "benchmark": entry.benchmark.name,
        "source": entry.data.origin,
        "answers_of": model.name,
        "audited_at": now(),
        "mark": overall(rows),
        "fingerprint": {**named, "reply": made.form},
        "probes": rows,
        "labels": against_labels(made.probed, labels) if labels else None,
        "notes": made.notes,
        "calls": made.calls,
        "spent_usd": made.spent_usd,
    }


def _write(plan: Plan, record: dict[str, Any]) -> str:
    """Write the audit and the fingerprint, which holds one entry for each benchmark."""
    from pytest_rubrics.redaction import redact_json

    folder = plan.workspace.root / "judges"
    folder.mkdir(exist_ok=True)
    stored = folder / f"{plan.judge.name}.fingerprint.json"
    known = json.loads(stored.read_text(encoding="utf-8")) if stored.is_file() else {}
    entry = {**record["fingerprint"], "audited_at": record["audited_at"], "mark": record["mark"]}
    benchmarks = {**known.get("benchmarks", {}), record["benchmark"]: entry}
    audited = folder / f"{plan.judge.name}.audit.json"
    contents = {audited: record, stored: {"schema": 1, "judge": plan.judge.name, "benchmarks": benchmarks}}
    for path, value in contents.items():
        path.write_text(json.dumps(redact_json(value), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return ", ".join(plan.workspace.shown(path) for path in contents)
