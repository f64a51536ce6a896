"""The end of a run: the last lines, the summary, the gate's verdict and the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rubrics.gates import Decision, Gate
from pytest_rubrics.rebuilding import gate_entry, gate_sentence
from pytest_rubrics.recorder import Recorder
from pytest_rubrics.reporting.files import write_reports_of
from pytest_rubrics.reporting.report_data import RunView

if TYPE_CHECKING:
    from pytest_rubrics.session import Session


def end_run(session: pytest.Session, state: Session) -> None:
    """Close the book of a run and set the exit code of the session."""
    recorder = state.recorder
    assert recorder is not None
    missing = recorder.unreported()
    recorder.finish_rest(*_why_unreported(session))
    decision = recorder.decide()
    entry = None
    if recorder.plan.gate is not None and decision is not None:
        obstacle = _obstacle(session, recorder, missing)
        entry = _entry(recorder.plan.gate, decision, obstacle)
        state.verdict = gate_sentence(entry)
        if obstacle is None:
            session.exitstatus = decision.verdict.value
    state.summary = recorder.close(entry)
    state.report = write_reports_of(recorder.writer.folder, partial(_view, recorder, state.summary))
    state.hidden = state.kept.end() if state.kept else ""


def _view(recorder: Recorder, summary: Mapping[str, Any]) -> RunView:
    run, evidence = recorder.outcome()
    return RunView(run, summary, evidence)


def _why_unreported(session: pytest.Session) -> tuple[str, str]:
    if session.exitstatus == pytest.ExitCode.INTERRUPTED or session.shouldstop or session.shouldfail:
        return "interrupted", "the run ended before this item"
    return "error", "the item was never run"


def _obstacle(session: pytest.Session, recorder: Recorder, missing: int) -> str | None:
    """Why pytest's own exit code stands, or None where the gate may decide."""
    if session.exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return f"pytest ended with {pytest.ExitCode(session.exitstatus).name.lower().replace('_', ' ')}"
    if missing:
        return f"{missing} of {len(recorder.selected)} selected items were never reported"
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return None
    gate = recorder.plan.gate
    for report in [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]:
        item = recorder.selected.get(report.nodeid)
        if item is None:
            return f"{report.nodeid} failed, and it is no grade"
        if gate is not None and not gate.is_for(item.case.task.benchmark):
            return f"{report.nodeid} failed, and it is not of the gated benchmark"
    return None


def _entry(gate: Gate, decision: Decision, obstacle: str | None) -> dict[str, Any]:
    if obstacle is None:
        return gate_entry(gate, decision)
    return {"name": gate.name, "verdict": None, "exit_code": None, "reason": f"not decided, because {obstacle}"}
