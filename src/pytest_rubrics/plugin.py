"""Pytest hooks and the ``grade`` fixture. Turned on by one line in the root ``conftest.py``.

Nothing heavy is imported here: a session without a benchmark must not pay for what it does not use.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rubrics.options import OPTIONS, add_options

if TYPE_CHECKING:
    from pytest_rubrics.grades import Grade
    from pytest_rubrics.plan import BenchmarkPlan, Case, Plan
    from pytest_rubrics.progress import ProgressLine
    from pytest_rubrics.recorder import Recorder, Selected
    from pytest_rubrics.wiring import Wiring
    from pytest_rubrics.workers import Workers

WORKER_INPUT = "rubrics"


@dataclass(slots=True)
class Session:
    """What the plugin knows of one pytest session.

    Attributes:
        plan: What the run does.
        recorder: The controller's book; None in a worker.
        wiring: The running parts of this process; None until the run loop starts.
        indices: Job of each item, by node id.
        progress: The progress line; None in a worker.
        verdict: The gate's sentence, printed last.
        hidden: What is not shown of the failures.
        report: Where the report is.
        summary: What is printed as a table.
        workers: The workers of this controller, if there are any.
    """

    plan: Plan
    recorder: Recorder | None = None
    workers: Workers | None = None
    wiring: Wiring | None = None
    indices: dict[str, int] = field(default_factory=dict)
    progress: ProgressLine | None = None
    verdict: str = ""
    summary: Mapping[str, Any] | None = None
    hidden: str = ""
    report: str = ""


SESSION = pytest.StashKey[Session]()
GRADE = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Keep an estimate in one process, also under ``-n``."""
    if _is_estimate(config) and hasattr(config.option, "numprocesses"):
        config.option.numprocesses = None
        config.option.dist = "no"
        config.option.tx = []


def pytest_configure(config: pytest.Config) -> None:
    """Register subsets, tracks and domains as markers, in every process alike."""
    from pytest_rubrics.benchmarks import find_benchmarks, marker_names
    from pytest_rubrics.faults import FaultsError
    from pytest_rubrics.workspace import package_data

    root = _workspace_root(config)
    try:
        folders = find_benchmarks(root, [root / "benchmarks", *_given_paths(config)], package_data())
    except FaultsError:
        return  # the start of the session says what is wrong
    for folder in folders:
        for name in marker_names(folder.file):
            config.addinivalue_line("markers", f"{name}: tasks of {folder.name}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Load and check everything; what is wrong comes as one usage error, before anything is called."""
    from pytest_rubrics.faults import FaultsError

    try:
        plan = _load_plan(session.config)
    except FaultsError as error:
        raise pytest.UsageError(_fault_text(error)) from error
    if plan is None:
        return
    state = session.config.stash[SESSION] = Session(plan)
    if not _is_worker(session.config):
        from pytest_rubrics.recorder import Recorder
        from pytest_rubrics.records import RunWriter

        state.recorder = Recorder(plan, RunWriter(plan.config.run_dir))
    _treat_as_ctrl_c(session.config)
    session.config.pluginmanager.register(InterruptHook(state), "rubrics-interrupt")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what will run."""
    state = config.stash.get(SESSION, None)
    if state is None:
        return []
    from pytest_rubrics.reporting.header import header_lines

    return header_lines(state.plan)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each model, task and repeat."""
    if "grade" not in metafunc.fixturenames:
        return
    entry = _entry_for(metafunc.config, metafunc.definition.path)
    parameters = [
        pytest.param(case, id=id_, marks=[getattr(pytest.mark, marker) for marker in case.task.markers])
        for id_, case in entry.cases.items()
    ]
    metafunc.parametrize("grade", parameters, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let ``-k`` match the topics as they stand in the data."""
    case = _case_of(item)
    if case is not None:
        item.extra_keyword_matches.update(case.task.topics)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the run folder once the selection is known; under xdist the controller hears of it from its workers."""
    state = session.config.stash.get(SESSION, None)
    if state and state.recorder and session.items and _will_run(session.config) and not state.plan.config.estimate:
        _select(session.config, state, [item.nodeid for item in session.items])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Take the selection from the first worker; xdist itself checks that all agree."""
    state = node.config.stash.get(SESSION, None)
    if state and state.recorder and not state.recorder.selected and _will_run(node.config):
        _select(node.config, state, ids)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which run it belongs to."""
    state = node.config.stash.get(SESSION, None)
    if state is None:
        return
    if state.workers is None:
        from pytest_rubrics.workers import Workers

        state.workers = Workers()
    config = state.plan.config
    node.workerinput[WORKER_INPUT] = {
        "run": config.run,
        "started_at": config.started_at,
        "run_dir": str(config.run_dir),
        "seat": state.workers.sit(node.gateway.id),
        "sign": str(state.workers.sign) if node.gateway.spec.popen else None,  # a worker elsewhere cannot see it
    }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Free the seat of a worker that is gone; xdist may start another in its place."""
    state = node.config.stash.get(SESSION, None)
    if state and state.workers:
        state.workers.leave(node.gateway.id)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Start the engine on the selected items, or print the estimate in place of running them."""
    config = session.config
    state = config.stash.get(SESSION, None)
    if state is None or not session.items or not _will_run(config):
        return None
    if state.plan.config.estimate:
        from pytest_rubrics.estimating import estimate

        _write_lines(config, estimate(state.plan, [_selected_of(item) for item in session.items if _case_of(item)]))
        return True
    items = [item for item in session.items if _case_of(item)]
    if items:
        _start_engine(session, state, items)
    return None


@pytest.fixture
def grade(request: pytest.FixtureRequest) -> CheckedGrade:
    """The grade of one task; an excluded one ends here, as an error, and is never a score."""
    state = request.config.stash[SESSION]
    case: Case = request.param
    assert state.wiring is not None
    nodeid = request.node.nodeid
    made = state.wiring.engine.grade(state.indices[nodeid], tick=lambda: _tick(request.config, state))
    request.node.stash[GRADE] = made.to_record()
    for name in ("state", "passed"):
        request.node.user_properties.append((name, getattr(made, name)))
    for name, value in (made.metrics or {}).items():
        request.node.user_properties.append((name, value))
    request.node.user_properties.append(("spent_usd", made.spent_usd))
    if made.state == "excluded":
        pytest.fail(f"excluded ({made.reason}): {made.error}", pytrace=False)
    entry = _entry_for(request.config, request.node.path)
    return CheckedGrade(made, case, entry.benchmark.scoring.pass_at)


@dataclass(frozen=True, slots=True)
class CheckedGrade:
    """What a test gets: the grade of its task.

    Attributes:
        grade: The grade, scored or failed.
        case: Task, model and repeat.
        pass_at: The pass mark, or None.
    """

    grade: Grade
    case: Case
    pass_at: float | None

    @property
    def score(self) -> float:
        """The metric's value; 0 for a failed grade of a clipped metric."""
        return self.grade.score or 0.0

    @property
    def passed(self) -> bool:
        """Whether the pass mark was reached; without one, whether there is a score."""
        return self.grade.state == "scored" and self.grade.passed is not False

    def check(self) -> None:
        """Fail the test, in a few lines, unless the grade passes."""
        if self.passed:
            return
        from pytest_rubrics.grades import explain

        texts = {criterion.id: criterion.text for criterion in self.case.task.criteria}
        pytest.fail(explain(self.grade, texts, self.pass_at), pytrace=False)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keep warnings of the engine's threads out of the filters that pytest has just set for this item."""
    state = item.config.stash.get(SESSION, None)
    if state is not None and state.wiring is not None:
        from pytest_rubrics.engine import THREADS
        from pytest_rubrics.quiet import put_filter_first

        put_filter_first(THREADS)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the grade travel on the report, which xdist carries to the controller."""
    report = yield
    state = item.config.stash.get(SESSION, None)
    if state is None or _case_of(item) is None:
        return report
    plain: dict[str, Any] = {}
    if report.when == "setup" and GRADE in item.stash:
        plain["grade"] = item.stash[GRADE]
    if report.when == "teardown" and state.wiring is not None:
        plain["progress"] = state.wiring.snapshot().to_plain()
    report.__dict__["rubrics"] = plain
    return report


@dataclass(frozen=True, slots=True)
class InterruptHook:
    """Stops launching as soon as a run is interrupted, before pytest says anything.

    Attributes:
        state: The session.
    """

    state: Session

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Launch nothing more, in any process of the run."""
        if self.state.wiring is not None:
            self.state.wiring.engine.stop_launching()
        if self.state.workers is not None:
            self.state.workers.stop()


@dataclass(frozen=True, slots=True)
class ControllerHooks:
    """Hooks of the controller that are given neither session nor config; registered once items are selected.

    Attributes:
        recorder: The book of the run.
        progress: The progress line.
    """

    recorder: Recorder
    progress: ProgressLine

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand a report to the book."""
        from pytest_rubrics.reports import take_report

        if report.nodeid not in self.recorder.selected:
            return
        take_report(self.recorder, report)
        plain = getattr(report, "rubrics", {}).get("progress")
        if plain:
            node = getattr(report, "node", None)
            self.progress.update_plain(node.gateway.id if node else "main", plain)
        self.progress.done = len(self.recorder.written)
        self.progress.tick()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Leave out the dots where the live line stands."""
        if not self.progress.live or report.nodeid not in self.recorder.selected:
            return None
        if report.when == "call" or report.outcome == "failed":
            return ("error" if report.failed and report.when != "call" else report.outcome), "", ""
        return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Stop the engine, close the book, set the exit code, and let the gate have the last word."""
    state = session.config.stash.get(SESSION, None)
    if state is not None:
        _end(session, state)
    yield
    if state is not None and state.verdict:
        _write_lines(session.config, [state.verdict], **_colour_of(state.verdict))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one table for each benchmark, model and judge."""
    state = config.stash.get(SESSION, None)
    if state is None or state.summary is None:
        return
    from pytest_rubrics.reporting.terminal import summary_lines

    if state.hidden:
        terminalreporter.write_line(state.hidden)
    is_terminal = bool(terminalreporter.isatty)
    width = terminalreporter._tw.fullwidth if is_terminal else 120
    for title, lines in summary_lines(state.plan, state.summary, width, wraps=is_terminal):
        terminalreporter.write_sep("=", title)
        for line in lines:
            terminalreporter.write_line(line)
    terminalreporter.write_line(state.report)


def _load_plan(config: pytest.Config) -> Plan | None:
    paths = _given_paths(config)
    root = _workspace_root(config)
    from pytest_rubrics.benchmarks import find_benchmarks
    from pytest_rubrics.workspace import package_data

    if not find_benchmarks(root, paths, package_data()):
        return None
    from dataclasses import replace

    from pytest_rubrics.options import read_options
    from pytest_rubrics.plan import make_plan
    from pytest_rubrics.workspace import Workspace

    given = {option.key: getattr(config.option, option.dest) for option in OPTIONS}
    cwd = config.invocation_params.dir
    settled = read_options(given, os.environ, root, cwd)
    told = getattr(config, "workerinput", {}).get(WORKER_INPUT)
    if told:
        settled = replace(settled, run=told["run"], started_at=told["started_at"], run_dir=Path(told["run_dir"]))
        if settled.cache_mode == "off":
            settled = replace(settled, cache_dir=settled.run_dir / "replies")
    will_call = _will_run(config) and not settled.estimate and not _is_worker(config)
    return make_plan(settled, Workspace(root), paths, cwd, will_call=will_call)


def _given_paths(config: pytest.Config) -> list[Path]:
    """The paths of the command line, without node ids; testpaths where none are given."""
    base = config.invocation_params.dir
    paths = [base / argument.split("::")[0] for argument in config.args]
    return [path for path in paths if path.exists()]


def _workspace_root(config: pytest.Config) -> Path:
    from pytest_rubrics.plan import find_workspace

    return find_workspace(config.rootpath, _given_paths(config))


def _entry_for(config: pytest.Config, module: Path) -> BenchmarkPlan:
    state = config.stash.get(SESSION, None)
    from pytest_rubrics.benchmarks import benchmark_for
    from pytest_rubrics.workspace import package_data

    folder = benchmark_for(module, _workspace_root(config), package_data())
    if state is None or folder is None or folder.name not in state.plan.benchmarks:
        raise pytest.UsageError(
            f"{module}: the fixture grade belongs to a benchmark, and there is no benchmark.yaml beside this file."
        )
    return state.plan.benchmarks[folder.name]


def _case_of(item: pytest.Item) -> Case | None:
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("grade") if callspec else None
    from pytest_rubrics.plan import Case

    return case if isinstance(case, Case) else None


def _selected_of(item: pytest.Item) -> Selected:
    from pytest_rubrics.recorder import Selected

    case = _case_of(item)
    assert case is not None
    return Selected(item.config.stash[SESSION].plan.benchmarks[case.task.benchmark], case)


def _select(config: pytest.Config, state: Session, nodeids: list[str]) -> None:
    """Find the case of each node id: what stands in its brackets is the id of a case."""
    from pytest_rubrics.progress import ProgressLine
    from pytest_rubrics.recorder import Selected

    assert state.recorder is not None
    selected = {}
    for nodeid in nodeids:
        path, _, rest = nodeid.partition("::")
        entry = _entry_by_path(config, state, path)
        case = entry.cases.get(rest[rest.find("[") + 1 : -1]) if entry and rest.endswith("]") else None
        if entry and case:
            selected[nodeid] = Selected(entry, case)
    if not selected:
        return
    state.recorder.select(selected)
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    live = bool(reporter and reporter.isatty and reporter.verbosity == 0)

    def rewrite(line: str) -> None:
        reporter.rewrite(line[: reporter._tw.fullwidth - 1], erase=True)

    state.progress = ProgressLine(len(selected), live, rewrite, lambda line: _write_lines(config, [f"rubrics: {line}"]))
    config.pluginmanager.register(ControllerHooks(state.recorder, state.progress), "rubrics-controller")


def _entry_by_path(config: pytest.Config, state: Session, path: str) -> BenchmarkPlan | None:
    folder = (config.rootpath / path).parent
    return next((p for p in state.plan.benchmarks.values() if p.benchmark.folder.folder == folder), None)


def _start_engine(session: pytest.Session, state: Session, items: list[pytest.Item]) -> None:
    from pytest_rubrics.calls.cache import StoreError
    from pytest_rubrics.wiring import Seat, wire

    config = session.config
    state.indices = {item.nodeid: index for index, item in enumerate(items)}
    skipped = {index for index, item in enumerate(items) if _may_be_skipped(item)}
    stops_early = bool(config.getoption("maxfail", 0)) or bool(config.getoption("stepwise", False))
    selected = [_selected_of(item) for item in items]
    try:
        state.wiring = wire(
            state.plan,
            [(one.plan, one.case) for one in selected],
            _seat(config, Seat),
            held_back=skipped,
            stops_early=stops_early,
            warn=lambda message: _write_lines(config, [f"rubrics: {message}"]),
        )
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def _may_be_skipped(item: pytest.Item) -> bool:
    """Whether marks may keep an item from running; a condition that is a text is pytest's to evaluate."""
    if any(item.iter_markers("skip")) or any(mark.kwargs.get("run") is False for mark in item.iter_markers("xfail")):
        return True
    conditions = [
        (mark.kwargs["condition"],) if "condition" in mark.kwargs else mark.args for mark in item.iter_markers("skipif")
    ]
    return any(not given or any(isinstance(one, str) or one for one in given) for given in conditions)


def _seat(config: pytest.Config, seat: Any) -> Any:
    workerinput = getattr(config, "workerinput", None)
    if workerinput is None:
        return seat()
    told = workerinput[WORKER_INPUT]
    if told["sign"] is None:
        return seat(told["seat"], workerinput["workercount"])
    from pytest_rubrics.workers import goes_on

    sign = Path(told["sign"])
    return seat(told["seat"], workerinput["workercount"], lambda: goes_on(sign))


def _tick(config: pytest.Config, state: Session) -> None:
    if state.wiring is not None and not state.wiring.seat.may_launch():
        raise KeyboardInterrupt("the controller has stopped the run")
    if state.progress is None or state.wiring is None:
        return
    state.progress.update("main", state.wiring.snapshot())
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is None:
        state.progress.tick()
        return
    with capture.global_and_fixture_disabled():
        state.progress.tick()


def _end(session: pytest.Session, state: Session) -> None:
    if state.workers is not None:
        state.workers.stop()
    message = state.wiring.close() if state.wiring is not None else None
    if message:
        _write_lines(session.config, [f"rubrics: {message}"])
    recorder = state.recorder
    if recorder is None or not recorder.selected:
        return
    from pytest_rubrics.ending import end_run

    if state.progress and state.progress.live:
        state.progress.rewrite("")
    end_run(session, state)


def _write_lines(config: pytest.Config, lines: list[str], **markup: bool) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        for line in lines:
            reporter.write_line(line, **markup)


def _colour_of(verdict: str) -> dict[str, bool]:
    """The colour of a gate's sentence, which says the same in words."""
    word = verdict.partition(": ")[2].partition(" ")[0]
    return {{"PASS": "green", "FAIL": "red"}.get(word, "yellow"): True, "bold": True}


def _fault_text(error: Exception) -> str:
    faults = getattr(error, "faults", ())
    shown = [f"  {fault}" for fault in faults[:50]]
    more = [f"  and {len(faults) - 50} more"] if len(faults) > 50 else []
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return "\n".join([f"{count}, nothing was called:", *shown, *more])


def _will_run(config: pytest.Config) -> bool:
    return not (config.option.collectonly or config.option.setupplan)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _is_estimate(config: pytest.Config) -> bool:
    return bool(getattr(config.option, "rubrics_estimate", None) or os.environ.get("RUBRICS_ESTIMATE"))


def _reset(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)


def _treat_as_ctrl_c(config: pytest.Config) -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: the book is closed and the table printed."""
    if threading.current_thread() is not threading.main_thread():
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)
            config.add_cleanup(partial(_reset, number))
