"""What a run will do: everything that was named is loaded and checked before anything is called."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rubrics.benchmarks import Benchmark, find_benchmarks, load_benchmark
from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.options import RunConfig
from pytest_rubrics.sources import FULL, SAMPLE, Loaded, Source, serves
from pytest_rubrics.suggestions import did_you_mean
from pytest_rubrics.tasks import Task
from pytest_rubrics.workspace import Workspace, package_data

if TYPE_CHECKING:
    from pytest_rubrics.answering.recorded import RecordedAnswers
    from pytest_rubrics.config import LoadedJudge, LoadedModel, Member
    from pytest_rubrics.gates import Gate


# Text of a judge prompt by kind (sheet, criterion, evidence, synthesis) and language of the task.
Templates = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One pytest item: one grade to make.

    Attributes:
        task, model, repeat: What is graded.
        id: The part of the item's id between brackets.
    """

    task: Task
    model: str
    repeat: int
    id: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        suffix = f"-r{self.repeat}" if self.repeat > 1 else ""
        object.__setattr__(self, "id", f"{self.model}-{self.task.subset}-{self.task.key}{suffix}")


@dataclass(slots=True, repr=False)
class BenchmarkPlan:
    """One benchmark of a run.

    Attributes:
        benchmark: Its file.
        data: Its tasks and where they came from.
        source: The value of ``--source`` that serves it; None when it is left out.
        cases: One for each model, task and repeat, by the id in brackets.
        templates: Judge prompts of each member of the judge, by kind and language.
    """

    benchmark: Benchmark
    data: Loaded
    source: str | None
    cases: dict[str, Case] = field(default_factory=dict)
    templates: Mapping[str, Templates] = field(default_factory=dict)

    @property
    def prompts_sha256(self) -> dict[str, str]:
        """Checksum of every judge prompt; where there are several judges, behind the name of each."""
        several = len(self.templates) > 1
        return {
            f"{f'{member}.' if several else ''}{kind}.{language}": hashlib.sha256(text.encode("utf-8")).hexdigest()
            for member, templates in self.templates.items()
            for kind, texts in templates.items()
            for language, text in texts.items()
        }


@dataclass(slots=True, repr=False)
class Plan:
    """A run, loaded and checked.

    Attributes:
        config: The options.
        workspace: Where names are looked up.
        models: Models under test.
        judge: The judge.
        gate: The gate, or None.
        benchmarks: By name.
        notes: What a user should know before it starts.
        answers: Ready answers, by the name of the model that has them.
    """

    config: RunConfig
    workspace: Workspace
    models: Sequence[LoadedModel]
    judge: LoadedJudge
    gate: Gate | None
    benchmarks: dict[str, BenchmarkPlan]
    notes: list[str] = field(default_factory=list)
    answers: Mapping[str, RecordedAnswers] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """Where published data sets are kept."""
        return self.workspace.root / ".cache" / "data"


def find_workspace(rootpath: Path, paths: Iterable[Path]) -> Path:
    """The root of the workspace: the folder above the ``benchmarks`` folder that a path lies in, else pytest's root."""
    for path in paths:
        for folder in (path, *path.parents):
            if folder.name == "benchmarks" and folder.is_relative_to(rootpath):
                return folder.parent
    return rootpath


def make_plan(
    config: RunConfig, workspace: Workspace, paths: Sequence[Path], cwd: Path, *, will_call: bool = True
) -> Plan | None:
    """Load what a run needs; None when no benchmark lies below the paths.

    Args:
        config: The options.
        workspace: Where names are looked up.
        paths: Files and folders given to pytest.
        cwd: What a path of the command line is relative to.
        will_call: Whether models will be called, so that their keys are needed.

    Raises:
        FaultsError: Every fault of every file, option and row.
    """
    from pytest_rubrics.config import load_judge, load_model
    from pytest_rubrics.gates import load_gate

    folders = find_benchmarks(workspace.root, paths, package_data())
    if not folders:
        return None
    faults: list[Fault] = []
    benchmarks: list[Benchmark] = []
    for folder in folders:
        with gather(faults):
            benchmarks.append(load_benchmark(folder))
    models: list[LoadedModel] = []
    for name in config.model:
        with gather(faults):
            models.append(load_model(name, workspace, cwd))
    faults += _same_names([model.name for model in models])
    judge: LoadedJudge | None = None
    with gather(faults):
        judge = load_judge(config.judge, workspace, cwd)
    gate: Gate | None = None
    with gather(faults):
        gate = load_gate(config.gate, workspace, cwd) if config.gate else None
    faults += _wrong_together(config)
    notes: list[str] = []
    plans: dict[str, BenchmarkPlan] = {}
    with gather(faults):
        plans = _load_data(config, workspace, benchmarks, notes)
    if gate is not None:
        specs = {name: plan.benchmark.spec for name, plan in plans.items()}
        faults += gate.wrong_for({name: [*spec.subsets, *spec.tracks] for name, spec in specs.items()})
    if judge is not None:
        for plan in plans.values():
            with gather(faults):
                plan.templates = judge_templates(plan.benchmark, judge, workspace)
            faults += judging_faults(plan.benchmark, judge)
    if config.engine == "ray":
        from pytest_rubrics.cluster.faults import cluster_faults

        faults += cluster_faults(models, judge.members if judge else ())
    answers = _load_answers(models, plans, workspace, faults)
    if will_call:
        faults += _missing_keys(config, models, judge)
    if faults or judge is None:
        raise FaultsError(faults)
    for plan in plans.values():
        plan.cases = make_cases(plan.data.tasks, [model.name for model in models], config)
    notes += [f"model {name}: {note}" for name, ready in answers.items() for note in ready.notes]
    if config.max_cost is not None:
        commands = [model.name for model in models if model.config.kind == "command"]
        notes += [f"--max-cost does not count what the command {name} spends" for name in commands]
    notes += _self_preference(models, judge)
    return Plan(config, workspace, models, judge, gate, plans, notes, answers)


def make_cases(tasks: Sequence[Task], models: Sequence[str], config: RunConfig) -> dict[str, Case]:
    """One case for each model, task and repeat, after ``--limit`` and ``--shard``, in a fixed order."""
    chosen = [task for task in first_of_each(tasks, config.limit) if in_shard(task, config.shard)]
    cases = [
        Case(task, model, repeat) for model in models for task in chosen for repeat in range(1, config.repeats + 1)
    ]
    return {case.id: case for case in cases}


def first_of_each(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """The first tasks of each subset."""
    if limit is None:
        return list(tasks)
    taken: dict[str, int] = {}
    chosen = []
    for task in tasks:
        taken[task.subset] = taken.get(task.subset, 0) + 1
        if taken[task.subset] <= limit:
            chosen.append(task)
    return chosen


def in_shard(task: Task, shard: tuple[int, int] | None) -> bool:
    """Whether a task belongs to a part; a hash of its id decides, so that adding tasks moves no other."""
    if shard is None:
        return True
    number, parts = shard
    digest = hashlib.sha256(task.id.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") % parts == number - 1


def judge_templates(benchmark: Benchmark, judge: LoadedJudge, workspace: Workspace) -> dict[str, Templates]:
    """The judge prompts of a benchmark for each member of a judge, by kind and by language of the task.

    Raises:
        FaultsError: A prompt is missing or lacks a place.
    """
    faults: list[Fault] = []
    found: dict[str, Templates] = {}
    for member in judge.members:
        with gather(faults):
            found[member.name] = _member_templates(benchmark, member, workspace)
    if faults:
        raise FaultsError(list(dict.fromkeys(faults)))
    return found


def _member_templates(benchmark: Benchmark, member: Member, workspace: Workspace) -> Templates:
    from pytest_rubrics.judging.prompts import PromptSource

    source = PromptSource([root / "judges" / "prompts" for root in workspace.roots], workspace.root)
    main = "criterion" if criteria_per_call(benchmark, member) == 1 else "sheet"
    names = {kind: kind for kind in (main, "criterion", "evidence", "synthesis")}
    names[main] = benchmark.spec.judging.prompt or main
    prompt = member.config.prompt or {}
    own = [(main, prompt)] if isinstance(prompt, str) else prompt.items()
    names.update({kind: name for kind, name in own if kind in names})
    chosen = member.config.language
    return {
        kind: {
            language: source.load(name, kind, language if chosen == "match" else chosen) for language in ("en", "zh")
        }
        for kind, name in names.items()
    }


def criteria_per_call(benchmark: Benchmark, member: Member) -> int | None:
    """Criteria in one call, None for all: what the judge says, else the benchmark's method."""
    chosen = member.config.criteria_per_call
    if chosen is None:
        return 1 if benchmark.spec.judging.method == "criterion" else None
    return None if chosen == "all" else chosen


def _load_answers(
    models: Sequence[LoadedModel], plans: Mapping[str, BenchmarkPlan], workspace: Workspace, faults: list[Fault]
) -> dict[str, RecordedAnswers]:
    """The answers of models that have them ready."""
    from pytest_rubrics.config import RecordedModel

    tasks = [task for plan in plans.values() for task in plan.data.tasks]
    found: dict[str, RecordedAnswers] = {}
    for model in models if tasks else ():
        if isinstance(model.config, RecordedModel):
            from pytest_rubrics.answering.recorded import load_answers

            with gather(faults):
                path = workspace.root / model.config.answers
                found[model.name] = load_answers(path, tasks, workspace.root / ".cache" / "reports")
    return found


def _missing_keys(config: RunConfig, models: Sequence[LoadedModel], judge: LoadedJudge | None) -> list[Fault]:
    from pytest_rubrics.config import EndpointConfig
    from pytest_rubrics.credentials import missing_keys

    named = [("--model", model.config) for model in models if isinstance(model.config, EndpointConfig)]
    members = judge.members if judge else ()
    return missing_keys([*named, *(("--judge", member.config) for member in members)], config)


def judging_faults(benchmark: Benchmark, judge: LoadedJudge) -> list[Fault]:
    """Settings that need a judge who is asked about one criterion at a time, where it is not."""
    faults = []
    for member in judge.members:
        config, file = member.config, str(member.file or member.name)
        chosen = {"scale": config.scale == "ternary", "verdict": config.verdict == "logprob"}
        if criteria_per_call(benchmark, member) != 1:
            message = (
                f"needs a judge that is asked about one criterion at a time, which it is not for {benchmark.name}."
            )
            fix = "Add criteria_per_call: 1."
            faults += [Fault(file, message, key=key, fix=fix) for key, is_chosen in chosen.items() if is_chosen]
        elif all(chosen.values()):
            message = "of a ternary scale has three values, so it has no one probability of a hit."
            faults.append(Fault(file, message, key="verdict", fix="Write scale: binary."))
    return faults


def _self_preference(models: Sequence[LoadedModel], judge: LoadedJudge) -> list[str]:
    from pytest_rubrics.config import settings_without_secrets
    from pytest_rubrics.judging.families import self_preference

    settings = {model.name: settings_without_secrets(model.config) for model in models}
    return self_preference(settings, judge.settings(), judge.name)


def _same_names(names: Sequence[str]) -> list[Fault]:
    twice = sorted({name for name in names if names.count(name) > 1})
    fix = "Rename one of the files: the name stands in ids and records."
    return [Fault("--model", f"two models have the name {name}.", fix=fix) for name in twice]


def _wrong_together(config: RunConfig) -> list[Fault]:
    if config.shard and config.gate:
        fix = "Run the shards without it, then: rubrics merge RUN... and rubrics gate RUN --gate NAME."
        return [Fault("--gate", "cannot decide a shard, which is a part of the selection.", fix=fix)]
    if config.cache_mode == "offline" and config.retry:
        return [Fault("--retry", "asks anew, which --cache-mode offline forbids.", fix="Leave one out.")]
    return []


def _load_data(
    config: RunConfig, workspace: Workspace, benchmarks: Sequence[Benchmark], notes: list[str]
) -> dict[str, BenchmarkPlan]:
    faults: list[Fault] = []
    sources = _sources(config.source, [benchmark.name for benchmark in benchmarks], faults)
    plans: dict[str, BenchmarkPlan] = {}
    served: set[str] = set()
    for benchmark in benchmarks:
        value = _source_for(benchmark, sources)
        if value is None:
            notes.append(f"{benchmark.name} is left out: no --source holds its files")
            plans[benchmark.name] = BenchmarkPlan(benchmark, Loaded([], {}, "left out"), None)
            continue
        served.add(value)
        with gather(faults):
            data = Source(value, workspace.root / ".cache" / "data").load(benchmark)
            plans[benchmark.name] = BenchmarkPlan(benchmark, data, value)
    for name, value in sources:
        if name is None and value not in served | {SAMPLE, FULL}:
            faults.append(_serves_none(value, benchmarks, plans))
    if faults:
        raise FaultsError(faults)
    return plans


def _sources(values: Sequence[str], names: Sequence[str], faults: list[Fault]) -> list[tuple[str | None, str]]:
    """The values of ``--source`` as pairs of benchmark (or None) and source."""
    pairs: list[tuple[str | None, str]] = []
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            pairs.append((None, text))
        elif name in names:
            pairs.append((name, value))
        else:
            fix = did_you_mean(name, names) or f"Benchmarks of this run: {', '.join(names)}."
            faults.append(Fault(f"--source {text}", f"there is no benchmark {name!r} in this run.", fix=fix))
    return pairs


def _source_for(benchmark: Benchmark, sources: Sequence[tuple[str | None, str]]) -> str | None:
    """The source of a benchmark: its own, else the first bare one that serves it."""
    own = [value for name, value in sources if name == benchmark.name]
    if own:
        return own[-1]
    bare = [value for name, value in sources if name is None]
    if not bare:
        return SAMPLE
    return next((value for value in bare if value in {SAMPLE, FULL} or serves(benchmark, Path(value))), None)


def _serves_none(value: str, benchmarks: Sequence[Benchmark], plans: Mapping[str, BenchmarkPlan]) -> Fault:
    if not Path(value).exists():
        fix = did_you_mean(value, [SAMPLE, FULL]) or "Give sample, full, or an existing file or folder."
        return Fault(f"--source {value}", "does not exist.", fix=fix)
    for benchmark in benchmarks:
        if serves(benchmark, Path(value)) and benchmark.name in plans:
            message = f"is not used: {benchmark.name} already comes from {plans[benchmark.name].source}."
            return Fault(f"--source {value}", message, fix="Give one source for each benchmark.")
    layouts = "; ".join(
        f"{benchmark.name}: {', '.join(benchmark.spec.sources.published) or 'one JSON or JSONL file'}"
        for benchmark in benchmarks
    )
    return Fault(f"--source {value}", f"holds no files of any benchmark in this run. Expected {layouts}.")
