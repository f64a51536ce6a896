"""Pytest hooks and the ``grade`` fixture. Turned on by one line in the root ``conftest.py``.

Nothing heavy is imported here: a session without a benchmark must not pay for what it does not use.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rubrics.launching import keep_quiet, start_engine, tick
from pytest_rubrics.long_lived import long_lived
from pytest_rubrics.options import add_options
from pytest_rubrics.session import (
    SESSION,
    WORKER_INPUT,
    Session,
    case_of,
    entry_for,
    fault_text,
    given_paths,
    is_estimate,
    is_worker,
    load_plan,
    selected_of,
    told,
    will_run,
    workspace_root,
    write_lines,
)
from pytest_rubrics.signals import treat_as_ctrl_c

if TYPE_CHECKING:
    from pytest_rubrics.grades import Grade
    from pytest_rubrics.kept_reports import KeptReports
    from pytest_rubrics.plan import BenchmarkPlan, Case
    from pytest_rubrics.progress import ProgressLine
    from pytest_rubrics.recorder import Recorder

GRADE = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Keep an estimate in one process, also under ``-n``."""
    if is_estimate(config) and hasattr(config.option, "numprocesses"):
        config.option.numprocesses = None
        config.option.dist = "no"
        config.option.tx = []


def pytest_configure(config: pytest.Config) -> None:
    """Register subsets, tracks and domains as markers, in every process alike."""
    from pytest_rubrics.benchmarks import find_benchmarks, marker_names
    from pytest_rubrics.faults import FaultsError
    from pytest_rubrics.workspace import package_data

    root = workspace_root(config)
    try:
        folders = find_benchmarks(root, [root / "benchmarks", *given_paths(config)], package_data())
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
        with long_lived():
            plan = load_plan(session.config)
    except FaultsError as error:
        raise pytest.UsageError(fault_text(error)) from error
    if plan is None:
        return
    state = session.config.stash[SESSION] = Session(plan)
    if is_worker(session.config):
        if told(session.config)["settings"]:
            from pytest_rubrics.distributing import check_settings

            check_settings(told(session.config), plan)
        from pytest_rubrics.kept_reports import KeptReports

        kept = KeptReports(session.config.pluginmanager.get_plugin("terminalreporter"), session.config.option)
        session.config.pluginmanager.register(WorkerHooks(state, kept), "rubrics-worker")
    else:
        from pytest_rubrics.recorder import Recorder
        from pytest_rubrics.records import RunWriter

        state.recorder = Recorder(plan, RunWriter(plan.config.run_dir))
    treat_as_ctrl_c(session.config)
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
    entry = entry_for(metafunc.config, metafunc.definition.path)
    names = {name for case in entry.cases.values() for name in case.task.markers}
    marks = {name: getattr(pytest.mark, name) for name in names}  # one object for all items: there are many
    parameters = [
        pytest.param(case, id=id_, marks=[marks[name] for name in case.task.markers])
        for id_, case in entry.cases.items()
    ]
    metafunc.parametrize("grade", parameters, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let ``-k`` match the topics as they stand in the data."""
    case = case_of(item)
    if case is not None:
        item.extra_keyword_matches.update(case.task.topics)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Items stay to the end."""
    if SESSION not in session.config.stash:
        return (yield)
    with long_lived():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the run folder once the selection is known; under xdist the controller hears of it from its workers."""
    state = session.config.stash.get(SESSION, None)
    if state and state.recorder and session.items and will_run(session.config) and not state.plan.config.estimate:
        _select(session.config, state, [item.nodeid for item in session.items])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Take the selection from the first worker; xdist itself checks that all agree."""
    state = node.config.stash.get(SESSION, None)
    if state and state.recorder and not state.recorder.selected and will_run(node.config):
        _select(node.config, state, ids)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Learn which workers there will be."""
    state = config.stash.get(SESSION, None)
    if state is not None:
        from pytest_rubrics.distributing import workers_of

        state.workers = workers_of(config, state.plan, specs)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which run it belongs to."""
    state = node.config.stash.get(SESSION, None)
    if state is not None:
        from pytest_rubrics.distributing import told_to

        node.workerinput[WORKER_INPUT] = told_to(node, state)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> object | None:
    """Hand out items by the seats of the workers; other ways of distribution than the usual one are xdist's own."""
    state = config.stash.get(SESSION, None)
    if state is None or state.workers is None or config.getoption("dist") != "load":
        return None
    from pytest_rubrics.distributing import scheduler

    return scheduler(config, state)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Free the seat of a worker that is gone, for xdist may start another in its place, and pass on what it said."""
    state = node.config.stash.get(SESSION, None)
    if state and state.workers:
        from pytest_rubrics.distributing import move_from_dead_host, raise_usage_error

        raise_usage_error(node, error)
        state.workers.leave(node.gateway.id)
        moved = move_from_dead_host(node, state.workers) if error else None
        if moved:
            state.say(node.config, moved)
        for message in getattr(node, "workeroutput", {}).get(WORKER_INPUT, ()):
            state.say(node.config, message)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Start the engine on the selected items and run them, or print the estimate in place of that."""
    config = session.config
    state = config.stash.get(SESSION, None)
    if state is None or not session.items or not will_run(config):
        return None
    if state.plan.config.estimate:
        from pytest_rubrics.estimating import estimate

        write_lines(config, estimate(state.plan, [selected_of(item) for item in session.items if case_of(item)]))
        return True
    items = [item for item in session.items if case_of(item)]
    return start_engine(session, state, items) if items else None


@pytest.fixture
def grade(request: pytest.FixtureRequest) -> CheckedGrade:
    """The grade of one task; an excluded one ends here, as an error, and is never a score."""
    state = request.config.stash[SESSION]
    case: Case = request.param
    assert state.wiring is not None
    nodeid = request.node.nodeid
    made = state.wiring.engine.grade(state.indices[nodeid], tick=lambda: tick(request.config, state))
    request.node.stash[GRADE] = made.to_record()
    request.node.user_properties += _properties(made)
    if made.state == "excluded":
        pytest.fail(f"excluded ({made.reason}): {made.error}", pytrace=False)
    return CheckedGrade(made, case, state.plan.benchmarks[case.task.benchmark].benchmark.scoring.pass_at)


def _properties(grade: Grade) -> list[tuple[str, object]]:
    """Numbers and words for JUnit; what is unknown has none."""
    costs = list(grade.cost_usd.values())
    known = [cost for cost in costs if cost is not None]
    words = {"state": grade.state, "reason": grade.reason, "passed": grade.passed}
    numbers = {
        **(grade.metrics or {}),
        "cost_usd": sum(known) if len(known) == len(costs) else None,
        "spent_usd": grade.spent_usd,
    }
    return [
        *(_word(name, value) for name, value in words.items() if value is not None),
        *((name, value) for name, value in numbers.items() if value is not None),
    ]


@cache
def _word(name: str, value: object) -> tuple[str, object]:
    """One object for all tests, which pytest keeps."""
    return name, value


def _seconds_called(grade: Mapping[str, Any]) -> float:
    """What the calls of a grade took in this run: the test itself may not have waited for them."""
    called: list[float] = [seconds for part, seconds in grade["seconds"].items() if not grade["cached"].get(part)]
    return sum(called)


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
        keep_quiet()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the grade travel on the report, which xdist carries to the controller."""
    state = item.config.stash.get(SESSION, None)
    if state is None or case_of(item) is None:
        return (yield)
    if _shows_no_frames(item, call):
        assert call.excinfo is not None
        call.excinfo.traceback = call.excinfo.traceback[-2:]  # pytest would look for the file of every frame
    report = yield
    plain: dict[str, Any] = {}
    if report.when == "setup" and GRADE in item.stash:
        record = item.stash[GRADE]
        del item.stash[GRADE]  # items stay to the end, and answers are long
        report.duration = max(report.duration, _seconds_called(record))
        # Text goes through xdist at a tenth of the cost of nested data.
        plain["grade"] = json.dumps(record) if is_worker(item.config) else record
    if report.when == "teardown" and state.wiring is not None:
        plain["progress"] = state.wiring.snapshot().to_plain()
    report.__dict__["rubrics"] = plain
    return report


def _shows_no_frames(item: pytest.Item, call: pytest.CallInfo[None]) -> bool:
    failure = call.excinfo.value if call.excinfo else None
    return isinstance(failure, pytest.fail.Exception) and not failure.pytrace and not item.config.option.fulltrace


@dataclass(frozen=True, slots=True, repr=False)
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
            self.state.wiring.engine.interrupt()
        if self.state.workers is not None:
            self.state.workers.stop()


@dataclass(frozen=True, slots=True, repr=False)
class WorkerHooks:
    """Hooks of a worker.

    Attributes:
        state: The session.
        kept: What the worker's terminal keeps of the reports, though it shows nothing.
    """

    state: Session
    kept: KeptReports

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """Make a report small once it is on its way to the controller."""
        result = yield
        if report.nodeid in self.state.indices:
            self.kept.take(report, 0.0)
        return result


@dataclass(frozen=True, slots=True, repr=False)
class ControllerHooks:
    """Hooks of the controller that are given neither session nor config; registered once items are selected.

    Attributes:
        recorder: The book of the run.
        progress: The progress line.
        kept: What the terminal keeps of the reports.
    """

    recorder: Recorder
    progress: ProgressLine
    kept: KeptReports

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """Hand a report to the book; once all have seen it, it is made small, for pytest keeps all reports."""
        if report.nodeid not in self.recorder.selected:
            return (yield)
        self._take(report)
        grade = self.recorder.open.get(report.nodeid)
        result = yield
        self.kept.take(report, (grade and grade.score) or 0.0)
        return result

    def _take(self, report: pytest.TestReport) -> None:
        from pytest_rubrics.reports import take_report

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
        write_lines(session.config, [state.verdict], **_colour_of(state.verdict))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one table for each benchmark, model and judge."""
    state = config.stash.get(SESSION, None)
    if state is None or state.summary is None:
        return
    from pytest_rubrics.reporting.terminal import summary_lines

    if state.kept and state.hidden:
        terminalreporter.write_line(state.hidden)
        state.kept.put_back()
    is_terminal = bool(terminalreporter.isatty)
    width = terminalreporter._tw.fullwidth if is_terminal else 120
    for title, lines in summary_lines(state.plan, state.summary, width, wraps=is_terminal):
        terminalreporter.write_sep("=", title)
        for line in lines:
            terminalreporter.write_line(line)
    terminalreporter.write_line(state.report)


def _select(config: pytest.Config, state: Session, nodeids: list[str]) -> None:
    """Find the case of each node id: what stands in its brackets is the id of a case."""
    from pytest_rubrics.kept_reports import KeptReports
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
    from pytest_rubrics.launching import check_cache

    check_cache(config, state)
    state.recorder.select(selected)
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    live = bool(reporter and reporter.isatty and reporter.verbosity == 0)

    def rewrite(line: str) -> None:
        reporter.rewrite(line[: reporter._tw.fullwidth - 1], erase=True)

    state.progress = ProgressLine(len(selected), live, rewrite, lambda line: write_lines(config, [f"rubrics: {line}"]))
    state.kept = KeptReports(reporter, config.option)
    hooks = ControllerHooks(state.recorder, state.progress, state.kept)
    config.pluginmanager.register(hooks, "rubrics-controller")


def _entry_by_path(config: pytest.Config, state: Session, path: str) -> BenchmarkPlan | None:
    folder = (config.rootpath / path).parent
    return next((p for p in state.plan.benchmarks.values() if p.benchmark.folder.folder == folder), None)


def _end(session: pytest.Session, state: Session) -> None:
    if state.workers is not None:
        state.workers.stop()
    message = state.wiring.close(partial(_say_that_it_waits, session, state)) if state.wiring is not None else None
    state.wiring, state.indices = None, {}  # makes room for what the reports need
    if message:
        state.say(session.config, message)
    state.say_the_rest(session.config)
    if is_worker(session.config):
        session.config.workeroutput[WORKER_INPUT] = state.messages  # type: ignore[attr-defined]
    recorder = state.recorder
    if recorder is None or not recorder.selected:
        return
    from pytest_rubrics.ending import end_run

    if state.progress and state.progress.live:
        state.progress.rewrite("")
    end_run(session, state)


def _say_that_it_waits(session: pytest.Session, state: Session, in_flight: int) -> None:
    if not is_worker(session.config):  # what a worker says comes when it has ended
        calls = "1 call is" if in_flight == 1 else f"{in_flight} calls are"
        state.say(session.config, f"{calls} in flight and waited for; Ctrl-C gives up what does not arrive at once")


def _colour_of(verdict: str) -> dict[str, bool]:
    """The colour of a gate's sentence, which says the same in words."""
    word = verdict.partition(": ")[2].partition(" ")[0]
    return {{"PASS": "green", "FAIL": "red"}.get(word, "yellow"): True, "bold": True}
