"""One pytest session: what is loaded for it, and the cases of its items."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rubrics.options import OPTIONS

if TYPE_CHECKING:
    from pytest_rubrics.kept_reports import KeptReports
    from pytest_rubrics.options import RunConfig
    from pytest_rubrics.plan import BenchmarkPlan, Case, Plan
    from pytest_rubrics.progress import ProgressLine
    from pytest_rubrics.recorder import Recorder, Selected
    from pytest_rubrics.wiring import Wiring
    from pytest_rubrics.workers import Workers

WORKER_INPUT = "rubrics"


@dataclass(slots=True, repr=False)
class Session:
    """What the plugin knows of one pytest session.

    Attributes:
        plan: What the run does.
        recorder: The controller's book; None in a worker.
        wiring: The running parts of this process; None until the run loop starts.
        indices: Job of each item, by node id.
        progress: The progress line; None in a worker.
        kept: What the terminal keeps of the reports; None in a worker.
        verdict: The gate's sentence, printed last.
        hidden: What is not shown of the failures.
        report: Where the report is.
        summary: What is printed as a table.
        workers: The workers of this controller, if there are any.
        messages: What cannot be written yet: a worker has no terminal and hands them over when it ends, and what a
            thread writes while a test runs would be taken for the test's output.
    """

    plan: Plan
    recorder: Recorder | None = None
    workers: Workers | None = None
    wiring: Wiring | None = None
    indices: dict[str, int] = field(default_factory=dict)
    progress: ProgressLine | None = None
    kept: KeptReports | None = None
    verdict: str = ""
    summary: Mapping[str, Any] | None = None
    hidden: str = ""
    report: str = ""
    messages: list[str] = field(default_factory=list)

    def say(self, config: pytest.Config, message: str) -> None:
        """Write a message to the terminal, of a worker to the controller's. Any thread may call."""
        if is_worker(config) or threading.current_thread() is not threading.main_thread():
            self.messages.append(message)
        else:
            write_lines(config, [f"rubrics: {message}"])

    def say_the_rest(self, config: pytest.Config) -> None:
        """Write what other threads had to say; called where no test's output is captured."""
        if not is_worker(config):
            said, self.messages[:] = list(self.messages), []
            write_lines(config, [f"rubrics: {message}" for message in said])


SESSION = pytest.StashKey[Session]()


def load_plan(config: pytest.Config) -> Plan | None:
    """The plan of a session; None when no benchmark lies below the given paths.

    Raises:
        FaultsError: Something that was named is wrong.
    """
    from pytest_rubrics.benchmarks import find_benchmarks
    from pytest_rubrics.workspace import Workspace, package_data

    paths, root = given_paths(config), workspace_root(config)
    if not find_benchmarks(root, paths, package_data()):
        return None
    from pytest_rubrics.faults import FaultsError
    from pytest_rubrics.options import read_options
    from pytest_rubrics.plan import make_plan

    given = {option.key: getattr(config.option, option.dest) for option in OPTIONS}
    cwd = config.invocation_params.dir
    environment = {**told(config).get("environment", {}), **os.environ}
    settled = _as_told(read_options(given, environment, root, cwd), config, root)
    if settled.engine == "ray" and (is_worker(config) or config.getoption("tx", None)):
        from pytest_rubrics.cluster.faults import WITH_WORKERS

        raise FaultsError([WITH_WORKERS])
    will_call = will_run(config) and not settled.estimate and not is_worker(config) and not _calls_elsewhere(config)
    return make_plan(settled, Workspace(root), paths, cwd, will_call=will_call)


def _calls_elsewhere(config: pytest.Config) -> bool:
    """Whether only workers on other hosts call, which have keys of their own."""
    specs = getattr(config.option, "tx", None) or []
    return bool(specs) and not any("popen" in spec.rpartition("*")[2].split("//") for spec in specs)


def told(config: pytest.Config) -> Mapping[str, Any]:
    """What the controller has told this worker; nothing in a process that is none."""
    said: Mapping[str, Any] = getattr(config, "workerinput", {}).get(WORKER_INPUT, {})
    return said


def _as_told(settled: RunConfig, config: pytest.Config, root: Path) -> RunConfig:
    """The options of a worker, which belongs to the run of its controller."""
    said = told(config)
    if not said:
        return settled
    run_dir = Path(said["run_dir"])
    if said["elsewhere"]:
        run_dir = root / "reports" / run_dir.name
    cache_dir = run_dir / "replies" if settled.cache_mode == "off" else settled.cache_dir
    return replace(settled, run=said["run"], started_at=said["started_at"], run_dir=run_dir, cache_dir=cache_dir)


def given_paths(config: pytest.Config) -> list[Path]:
    """The paths of the command line, without node ids; testpaths where none are given."""
    base = config.invocation_params.dir
    paths = [base / argument.split("::")[0] for argument in config.args]
    return [path for path in paths if path.exists()]


def workspace_root(config: pytest.Config) -> Path:
    """The root of the workspace that the given paths belong to."""
    from pytest_rubrics.plan import find_workspace

    return find_workspace(config.rootpath, given_paths(config))


def entry_for(config: pytest.Config, module: Path) -> BenchmarkPlan:
    """The benchmark of a test module.

    Raises:
        UsageError: It has none.
    """
    state = config.stash.get(SESSION, None)
    from pytest_rubrics.benchmarks import benchmark_for
    from pytest_rubrics.workspace import package_data

    folder = benchmark_for(module, workspace_root(config), package_data())
    if state is None or folder is None or folder.name not in state.plan.benchmarks:
        raise pytest.UsageError(
            f"{module}: the fixture grade belongs to a benchmark, and there is no benchmark.yaml beside this file."
        )
    return state.plan.benchmarks[folder.name]


def case_of(item: pytest.Item) -> Case | None:
    """The case of an item; None for items of other tests."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("grade") if callspec else None
    from pytest_rubrics.plan import Case

    return case if isinstance(case, Case) else None


def selected_of(item: pytest.Item) -> Selected:
    """The case of an item, with its benchmark."""
    from pytest_rubrics.recorder import Selected

    case = case_of(item)
    assert case is not None
    return Selected(item.config.stash[SESSION].plan.benchmarks[case.task.benchmark], case)


def will_run(config: pytest.Config) -> bool:
    """Whether items will run, and not only be listed."""
    return not (config.option.collectonly or config.option.setupplan)


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def is_estimate(config: pytest.Config) -> bool:
    """Whether only an estimate was asked for; known before the options are read."""
    return bool(getattr(config.option, "rubrics_estimate", None) or os.environ.get("RUBRICS_ESTIMATE"))


def fault_text(error: Exception) -> str:
    """All faults as one message."""
    faults = getattr(error, "faults", ())
    shown = [f"  {fault}" for fault in faults[:50]]
    more = [f"  and {len(faults) - 50} more"] if len(faults) > 50 else []
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return "\n".join([f"{count}, nothing was called:", *shown, *more])


def write_lines(config: pytest.Config, lines: list[str], **markup: bool) -> None:
    """Write lines to the terminal, each on a line of its own."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and lines:
        reporter.ensure_newline()
        if reporter._tw.width_of_current_line:  # with -q pytest does not know of the dots that stand there
            reporter._tw.line()
        for line in lines:
            reporter.write_line(line, **markup)
