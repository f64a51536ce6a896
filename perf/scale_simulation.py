"""Cost, wall time and memory of a run of any size, by a discrete-event simulation that is compared with real runs.

    python perf/scale_simulation.py                      # tables for 10^3 to 10^7 judgments
    python perf/scale_simulation.py --validate           # real commands against the local server, and simulated

A judgment is one verdict on one criterion. What a call costs the CPU is measured first by ``--validate``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

import yaml
from harness import (
    health,
    machine,
    measure,
    median_of,
    plain_environment,
    print_table,
    provider,
    pytest_command,
    write_workspace,
)

ROOT = Path(__file__).resolve().parents[1]

STEADY = 20_000  # grades after which more of them only add time at the pace of the second half


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU that one process spends; as measured with LiteLLM on the machine of docs/scale.md.

    Attributes:
        start: From the command to the first call, and from the last reply to the end.
        item: More of that for each grade: collecting, the report.
        sheet_call: A call whose reply is an answer or a sheet, with its share of making the grade.
        criterion_call: A call whose reply is one verdict.
        spawn: More of the start for the workers of pytest-xdist.
    """

    start: float = 2.3
    item: float = 0.0006
    sheet_call: float = 0.0043
    criterion_call: float = 0.0039
    spawn: float = 0.25


@dataclass(frozen=True, slots=True)
class Setting:
    """A run.

    Attributes:
        tasks, criteria, repeats, judges: How much there is to do.
        one_by_one: Whether each criterion is a call of its own.
        concurrency: Calls in flight at the one address of model and judge.
        answer, judge: Median seconds of a call.
        spread: Sigma of the logarithm of an answer's seconds.
        processes: Workers of pytest-xdist; 1 is a run without.
        cores: What all processes share.
        rpm, tpm: Requests and tokens that the provider permits in a minute.
        answer_tokens, judge_tokens: Input and output of one call.
    """

    tasks: int
    criteria: float
    repeats: int = 1
    judges: int = 1
    one_by_one: bool = False
    concurrency: int = 32
    answer: float = 60.0
    judge: float = 15.0
    spread: float = 0.8
    processes: int = 1
    cores: int = 2
    rpm: float = math.inf
    tpm: float = math.inf
    answer_tokens: tuple[int, int] = (1_000, 3_000)
    judge_tokens: tuple[int, int] = (6_000, 2_000)

    @property
    def grades(self) -> int:
        """Answers that are judged."""
        return self.tasks * self.repeats

    @property
    def judge_calls(self) -> int:
        """Calls that judge one answer."""
        return self.judges * (round(self.criteria) if self.one_by_one else 1)

    @property
    def judgments(self) -> int:
        """Verdicts of the run."""
        return round(self.grades * self.criteria * self.judges)


@dataclass(slots=True)
class Process:
    """One process: slots in front of one CPU, which is what Python's lock makes of its threads.

    Attributes:
        setting: The run.
        cpu: What a call costs, already stretched where processes share cores.
        answers: Seconds of each answer.
        judge_calls: Number of the judge's calls of each.
    """

    setting: Setting
    cpu: Cpu
    answers: Sequence[float]
    judge_calls: Sequence[int]

    def span(self) -> tuple[float, float]:
        """Seconds from the first call to the half of the grades, and to all."""
        setting, count = self.setting, len(self.answers)
        share = setting.processes
        judge_cost = self.cpu.criterion_call if setting.one_by_one else self.cpu.sheet_call
        pace = (
            _pace(setting, setting.answer_tokens) * share,
            _pace(setting, setting.judge_tokens) * share,
        )
        cost = (self.cpu.sheet_call, judge_cost)
        free = max(1, setting.concurrency // share)
        left = list(self.judge_calls)  # calls of each grade that have not come back
        to_judge: deque[int] = deque()
        events: list[tuple[float, int, int, int]] = []  # when, what, judge or answer, grade
        begun = done = 0
        cpu_free = allowed = half = now = 0.0
        sent, replied, released = range(3)
        while True:
            while free and (to_judge or begun < count):
                free -= 1
                is_judge = bool(to_judge)  # a task that has been begun goes first
                index = to_judge.popleft() if is_judge else begun
                begun += not is_judge
                start = max(now, allowed)
                allowed = start + pace[is_judge]
                heapq.heappush(events, (start, sent, is_judge, index))
            if not events:
                return half, now
            now, what, kind, index = heapq.heappop(events)
            if what == sent:
                cpu_free = max(now, cpu_free) + cost[kind] / 2
                seconds = setting.judge if kind else self.answers[index]
                heapq.heappush(events, (cpu_free + seconds, replied, kind, index))
            elif what == replied:
                cpu_free = max(now, cpu_free) + cost[kind] / 2
                heapq.heappush(events, (cpu_free, released, kind, index))
            else:
                free += 1
                if not kind:
                    to_judge.extend([index] * left[index])
                    continue
                left[index] -= 1
                if not left[index]:
                    done += 1
                    if done == count // 2:
                        half = now


def _pace(setting: Setting, tokens: tuple[int, int]) -> float:
    """Seconds between two calls that the provider's limits ask for."""
    return max(60 / setting.rpm, 60 * sum(tokens) / setting.tpm)


def stretched(cpu: Cpu, setting: Setting) -> Cpu:
    """What a call costs where more processes than cores want to run; the local server or the controller is one more."""
    wanted = setting.processes if setting.processes == 1 else setting.processes + 1
    factor = max(1.0, wanted / setting.cores)
    return replace(cpu, sheet_call=cpu.sheet_call * factor, criterion_call=cpu.criterion_call * factor)


def wall_of(
    setting: Setting, cpu: Cpu, answers: Sequence[float] | None = None, calls: Sequence[int] | None = None
) -> float:
    """Seconds of a whole command.

    Args:
        setting: The run.
        cpu: What a call costs.
        answers: Seconds of each answer, where they are known; else they are drawn.
        calls: Number of the judge's calls of each, likewise.
    """
    parts = setting.processes
    count = setting.grades // parts
    shown = min(count, STEADY)
    if answers is None:
        rng = random.Random(0)
        median = math.log(setting.answer)
        answers = [rng.lognormvariate(median, setting.spread) for _ in range(shown * parts)]
    calls = calls or [setting.judge_calls] * len(answers)
    half, whole = Process(setting, stretched(cpu, setting), answers[::parts], calls[::parts]).span()
    more = (count - shown) * (whole - half) / max(1, shown - shown // 2)
    start = cpu.start + (cpu.spawn if parts > 1 else 0.0)
    return start + cpu.item * setting.grades + whole + more


def cpu_of(setting: Setting, cpu: Cpu) -> float:
    """CPU seconds of all processes."""
    judge_call = cpu.criterion_call if setting.one_by_one else cpu.sheet_call
    calls = cpu.sheet_call + setting.judge_calls * judge_call
    return setting.processes * cpu.start + setting.grades * (cpu.item + calls)


def cost_of(setting: Setting, model: str, judge: str) -> float:
    """USD, by the prices of configs/prices.yaml."""
    prices = yaml.safe_load((ROOT / "configs" / "prices.yaml").read_text(encoding="utf-8"))

    def price(name: str, tokens: tuple[int, int]) -> float:
        return float(prices[name]["input"] * tokens[0] + prices[name]["output"] * tokens[1]) / 1e6

    a_grade = price(model, setting.answer_tokens) + setting.judge_calls * price(judge, setting.judge_tokens)
    return setting.grades * a_grade


# Tables

MEMORY = (254.0, 0.028)  # MiB of a process, and for each task and grade; see memory.py and replay.py
MODEL, JUDGE = "openrouter/openai/gpt-5.2", "openrouter/z-ai/glm-5"
SHEETS = Setting(tasks=0, criteria=16, rpm=10_000, tpm=2_000_000)
ONE_BY_ONE = replace(SHEETS, criteria=25, one_by_one=True, judge=8.0, judge_tokens=(2_500, 200))


def scale_rows(base: Setting, cpu: Cpu) -> Iterator[list[object]]:
    """A row for each size and number of calls in flight."""
    for power in range(3, 8):
        tasks = round(10**power / base.criteria)
        for concurrency in (32, 512):
            setting = replace(base, tasks=tasks, concurrency=concurrency)
            free = replace(setting, rpm=math.inf, tpm=math.inf)
            yield [
                f"10^{power}",
                f"{tasks:,}",
                f"{tasks * (1 + setting.judge_calls):,}",
                concurrency,
                _duration(wall_of(setting, cpu)),
                _duration(wall_of(free, cpu)),
                _duration(cpu_of(setting, cpu)),
                f"{MEMORY[0] + MEMORY[1] * setting.grades:,.0f}",
                f"{cost_of(setting, MODEL, JUDGE):,.0f}",
                bottleneck(setting, cpu),
            ]


def bottleneck(setting: Setting, cpu: Cpu) -> str:
    """What bounds a long run: the largest of its lower bounds."""
    calls = setting.grades * (1 + setting.judge_calls)
    mean = setting.answer * math.exp(setting.spread**2 / 2)
    tokens = sum(setting.answer_tokens) + setting.judge_calls * sum(setting.judge_tokens)
    bounds = {
        "calls in flight": setting.grades * (mean + setting.judge_calls * setting.judge) / setting.concurrency,
        "tpm": 60 * setting.grades * tokens / setting.tpm,
        "rpm": 60 * calls / setting.rpm,
        "CPU": cpu_of(setting, cpu) / min(setting.cores, setting.processes),
        "longest task": setting.answer * math.exp(setting.spread * NormalDist().inv_cdf(1 - 0.5 / setting.grades)),
    }
    return max(bounds, key=lambda name: bounds[name])


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


def print_scale(cpu: Cpu) -> None:
    """The tables of docs/scale.md."""
    header = [
        "judgments", "tasks", "calls", "in flight", "wall", "wall without rpm, tpm", "CPU", "MiB", "USD", "bound by"
    ]  # fmt: skip
    for title, base in (("Sheets: all criteria of a task in one call", SHEETS), ("One call a criterion", ONE_BY_ONE)):
        print_table(title, header, list(scale_rows(base, cpu)))


# Measured runs


@dataclass(frozen=True, slots=True)
class Trial:
    """A command to measure.

    Attributes:
        name: What it is.
        setting: The same for the simulation; ``spread`` is that of the server's answers.
        arguments: For pytest.
    """

    name: str
    setting: Setting
    arguments: Sequence[str] = ()


QUICK = Setting(tasks=400, criteria=16, answer=0.2, judge=0.2, spread=0.0)
SINGLE = replace(QUICK, tasks=100, one_by_one=True)
TRIALS = [
    *(Trial(f"400 tasks, 200 ms, {count} in flight", replace(QUICK, concurrency=count)) for count in (8, 32, 128)),
    Trial(
        "100 tasks, answers lognormal (1 s, sigma 0.8), 32 in flight",
        replace(QUICK, tasks=100, answer=1.0, judge=1.0, spread=0.8),
        ["--limit", "10"],
    ),
    Trial("100 tasks, a call for each criterion, 200 ms, 32 in flight", SINGLE, ["--limit", "10"]),
    Trial("400 tasks, 200 ms, 32 in flight, -n 2", replace(QUICK, processes=2), ["-n", "2"]),
]
INSTANT = replace(QUICK, answer=0.0, judge=0.0)
AT_ONCE = [
    Trial("few", INSTANT, ["--limit", "2"]),
    Trial("many", INSTANT),
    Trial("single verdicts", replace(INSTANT, one_by_one=True), ["--limit", "4"]),
    Trial("workers", INSTANT, ["--limit", "2", "-n", "2"]),
]


@dataclass(frozen=True, slots=True)
class Seen:
    """One measured command: seconds in all, and from the first request to the last reply; and its tasks in order."""

    wall: float
    span: float
    peak: float
    answers: Sequence[float]
    calls: Sequence[int]


def run(trial: Trial, data: Path) -> Seen:
    """Run a command in a workspace of its own, on a server of its own."""
    from tests.support.provider import latency_factor

    setting = trial.setting
    server = ["--latency", str(setting.answer), "--latency-spread", str(setting.spread), "--data", str(data)]
    with tempfile.TemporaryDirectory() as folder, provider(*server) as url:
        root = write_workspace(Path(folder) / "workspace", url)
        if setting.one_by_one:
            with (root / "judges" / "judge.yaml").open("a", encoding="utf-8") as file:
                file.write("criteria_per_call: 1\n")
        options = ["--model", "model", "--judge", "judge", f"--source={data}", "--run-dir", "run"]
        options += ["--concurrency", str(setting.concurrency), *trial.arguments]
        seen = measure(pytest_command(sys.executable, *options), root, plain_environment())
        span = health(url)["span_seconds"]
        tasks = [json.loads(line) for line in (root / "run/tasks.jsonl").read_text(encoding="utf-8").splitlines()]
    answers = [setting.answer * latency_factor(task["prompt"], setting.spread) for task in tasks]
    return Seen(seen.wall, span, seen.peak, answers, [len(task["criteria"]) for task in tasks])


def calibrated(few: Sequence[Seen], many: Sequence[Seen], single: Sequence[Seen], workers: Sequence[Seen]) -> Cpu:
    """What the CPU needs, from the runs of `AT_ONCE`."""

    def rest(seen: Sequence[Seen]) -> float:
        return median_of([one.wall - one.span for one in seen])

    def span(seen: Sequence[Seen]) -> float:
        return median_of([one.span for one in seen])

    count = len(few[0].answers)
    more = len(many[0].answers) - count
    item = max(0.0, (rest(many) - rest(few)) / more)
    sheet_call = (span(many) - span(few)) / more / 2
    criterion_call = (span(single) - len(single[0].answers) * sheet_call) / sum(single[0].calls)
    return Cpu(rest(few) - item * count, item, sheet_call, criterion_call, max(0.0, rest(workers) - rest(few)))


def validate(data: Path, times: int) -> None:
    """Measure, simulate, and print how far the two are apart."""
    print(machine())
    every = [*AT_ONCE, *TRIALS]
    rounds: list[list[Seen]] = []
    for number in range(times):  # all in turn: the machine may have other users at another time
        rounds.append([run(trial, data) for trial in every])
        print(f"round {number + 1} of {times}: {', '.join(f'{seen.wall:.1f} s' for seen in rounds[-1])}", flush=True)
    seen = list(zip(*rounds, strict=True))
    cpu = calibrated(*seen[: len(AT_ONCE)])
    print(f"calibrated by runs whose server answers at once: {cpu}")
    rows = []
    for trial, outcomes in zip(TRIALS, seen[len(AT_ONCE) :], strict=True):
        measured = median_of([one.wall for one in outcomes])
        calls = outcomes[0].calls if trial.setting.one_by_one else None
        simulated = wall_of(trial.setting, cpu, outcomes[0].answers, calls)
        rows.append([trial.name, f"{measured:.1f}", f"{simulated:.1f}", f"{100 * (simulated / measured - 1):+.0f} %"])
    print_table(f"Measured (median of {times}) and simulated", ["run", "measured s", "simulated s", "error"], rows)


def main() -> None:
    """Print what was asked for."""
    sys.path.append(str(ROOT))
    from tests.support.shared import shared_data

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--validate", action="store_true", help="compare with real runs against the local server")
    parser.add_argument("--times", type=int, default=3, help="how often each real run is made; the median counts")
    parser.add_argument("--data", type=Path, help="$OneMillion-Bench as published; default ../shared/data/...")
    options = parser.parse_args()
    if options.validate:
        validate(options.data or shared_data() / "one_million_bench", options.times)
    else:
        print_scale(Cpu())


if __name__ == "__main__":
    main()
