"""Run folders with many grades, written without a run: what the reports are tried on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.grades import Grade, State
from pytest_rubrics.rebuilding import open_run, rebuild_summary
from pytest_rubrics.records import RunWriter
from pytest_rubrics.tasks import Criterion, Task

BENCHMARK = "one_million_bench"
SUBSETS = [f"{track}_{domain}" for track in ("global", "cn") for domain in ("law", "industry", "natural_sciences")]
WEIGHTS = (10, 8, 7, 6, 5, 5, 4, 4, 3, 2, -5, -10)
TAGS = ("Analytical Reasoning", "Factual Information", "Instructions Following")
# What a model, a judge or a data set may try in a page, a table or a terminal.
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<!-- <script> --> <img src=x onerror='window.hacked = 3'>",
    "[link](javascript:window.hacked=4) ![image](https://tracker.example/pixel.png)",
    "<style>body{display:none}</style><iframe src=https://tracker.example></iframe>",
    "\u202eright to left\u202c \u2066isolate\u2069",
    "nul \0 bell \a escape \x1b[31mred\x1b[0m",
    '"><svg onload="window.hacked=5">',
    "| a | b |\n|---|---|\n| `x|y` | \\| |",
    "${window.hacked=6} {{constructor.constructor('window.hacked=7')()}}",
    "\ud800 lone surrogate \uffff",
]
_DOUBT = 0.15  # how often a judge marks a criterion otherwise than another one
_ENGLISH = (
    "The court held that the clause is void, because the notice was given after the period had run out. "
    "The client should therefore file the claim within thirty days and keep the original documents. "
)
_CHINESE = "根据《民法典》第五百六十三条，当事人一方迟延履行主要债务，经催告后仍未履行的，另一方可以解除合同。"


@dataclass(frozen=True, slots=True)
class Kind:
    """What texts a made-up run has.

    Attributes:
        texts: Texts that stand in every field; ordinary ones where empty.
        paragraphs: Length of an answer.
        unfinished: Share of the grades that have no line.
    """

    texts: Sequence[str] = ()
    paragraphs: int = 6
    unfinished: float = 0.0


def write_run(
    folder: Path,
    *,
    tasks: int = 12,
    models: Sequence[str] = ("alpha", "beta"),
    judge: str = "judge",
    repeats: int = 1,
    seed: int = 0,
    kind: Kind | None = None,
) -> Path:
    """Write a run folder with manifest, tasks, grades and summary."""
    kind = kind or Kind()
    made = [_task(number, kind) for number in range(tasks)]
    writer = RunWriter(folder)
    writer.write_manifest(_manifest(folder, made, models, judge, repeats))
    writer.write_tasks(made)
    chance = random.Random(seed)
    for grade in _grades(made, models, judge, repeats, kind, chance):
        if chance.random() >= kind.unfinished:
            writer.append(grade)
    writer.close()
    writer.write_summary(rebuild_summary(open_run(folder)))
    return folder


def _task(number: int, kind: Kind) -> Task:
    subset = SUBSETS[number % len(SUBSETS)]
    chinese = subset.startswith("cn")
    text = _pick(kind, number, f"案例{number}：" + _CHINESE if chinese else f"Case {number}. {_ENGLISH}")
    point = f"要点：{_CHINESE[:30]}" if chinese else f"A point of the case: {_ENGLISH[:70]}"
    criteria = tuple(
        Criterion(str(n), _pick(kind, number + n, f"{n}. {point}"), weight, TAGS[n % 3])
        for n, weight in enumerate(WEIGHTS, start=1)
    )
    return Task(
        benchmark=BENCHMARK,
        id=f"00000000-0000-4000-8000-{number:012}",
        key=str(1000 + number),
        subset=subset,
        language="zh" if chinese else "en",
        prompt=text,
        criteria=criteria,
        topics=("法律", "民法") if chinese else ("Law", "Contracts"),
        groups={"track": subset.split("_")[0], "domain": subset.partition("_")[2]},
        value=("CNY" if chinese else "USD", 100.0 + number),
    )


def _grades(
    tasks: Sequence[Task], models: Sequence[str], judge: str, repeats: int, kind: Kind, chance: random.Random
) -> Iterator[Grade]:
    for strength, model in enumerate(models):
        for number, task in enumerate(tasks):
            for repeat in range(1, repeats + 1):
                yield _grade(task, number, model, judge, repeat, max(0.1, 0.9 - 0.15 * strength), kind, chance)


def _grade(
    task: Task, number: int, model: str, judge: str, repeat: int, skill: float, kind: Kind, chance: random.Random
) -> Grade:
    own = random.Random(f"{task.id} {model} {repeat}")  # of the answer: two judges read the same one
    state, reason = _fate(own, chance)
    skill *= 0.5 + 0.6 * own.random()
    hits = {c.id: own.random() < (skill if c.weight > 0 else 0.15) for c in task.criteria}
    hits = {id_: hit != (chance.random() < _DOUBT) for id_, hit in hits.items()}
    possible = sum(c.weight for c in task.criteria if c.weight > 0)
    score = min(1.0, max(0.0, sum(c.weight for c in task.criteria if hits[c.id]) / possible))
    reasons = {"zh": "答案明确指出了这一点。", "en": "The answer names it in its second paragraph."}
    justification = _pick(kind, number + 3, reasons[task.language])
    answer = _pick(kind, number + 5, "")
    answer = answer * 3 if answer else _answer(task, number, kind.paragraphs, own)
    return Grade(
        benchmark=BENCHMARK,
        task_id=task.id,
        key=task.key,
        subset=task.subset,
        model=model,
        track="vanilla",
        judge=judge,
        repeat=repeat,
        state=state,
        reason=reason,
        error=_pick(kind, number + 7, "the judge's reply had 3 of 12 criteria") if state == "excluded" else None,
        finish_reason="stop",
        metrics={"expert_score": score if state == "scored" else 0.0} if state != "excluded" else None,
        passed=None if state == "excluded" else state == "scored" and score >= 0.7,
        verdicts=[
            {"id": c.id, "weight": c.weight, "tag": c.tag, "hit": hits[c.id], "justification": justification}
            for c in task.criteria
        ]
        if state == "scored"
        else [],
        answer=None if state == "failed" else answer,
        served_model={"answer": f"{model}-2026", "judge": judge},
        keys={"answer": [f"{number:064x}"], "judge": [f"{number + 1:064x}"]},
        usage={
            "answer": {"input_tokens": 800, "output_tokens": 2000 + number},
            "judge": {"input_tokens": 4000, "output_tokens": 900},
        },
        cost_usd={"answer": 0.02 * (skill + 0.2), "judge": 0.004},
        spent_usd=0.0,
        cached={"answer": True, "judge": True},
        seconds={"answer": 31.5, "judge": 8.25},
        finished_at="2026-11-30T12:00:00Z",
    )


def _fate(own: random.Random, chance: random.Random) -> tuple[State, str | None]:
    if own.random() < 0.03:
        return "failed", "empty"
    return ("excluded", "judge_malformed") if chance.random() < 0.03 else ("scored", None)


def _answer(task: Task, number: int, paragraphs: int, chance: random.Random) -> str:
    sentence = _CHINESE if task.language == "zh" else _ENGLISH
    parts = [f"## {'结论' if task.language == 'zh' else 'Conclusion'} {number}", ""]
    for n in range(paragraphs):
        parts += [f"{n + 1}. **{chance.random():.6f}** {sentence * (1 + n % 3)}", ""]
    parts += ["| item | value |", "|---|---:|", "| fee | 1,200 |", "| term | 30 days |", ""]
    parts += ["```python", "print('x < y')", "```"]
    return "\n".join(parts)


def _pick(kind: Kind, number: int, ordinary: str) -> str:
    return kind.texts[number % len(kind.texts)] if kind.texts else ordinary


def _manifest(folder: Path, tasks: Sequence[Task], models: Sequence[str], judge: str, repeats: int) -> dict[str, Any]:
    selected = [
        f"{model}-{task.subset}-{task.key}" + (f"-r{repeat}" if repeat > 1 else "")
        for model in models
        for task in tasks
        for repeat in range(1, repeats + 1)
    ]
    return {
        "schema": 1,
        "run": folder.name,
        "started_at": "2026-11-30T10:00:00Z",
        "finished_at": "2026-11-30T12:00:00Z",
        "versions": {"pytest-rubrics": "0.1.0", "python": "3.11.7"},
        "command": ["--model", *models],
        "options": {"repeats": repeats, "shard": None, "run_dir": str(folder), "gate": None, "limit": None},
        "models": {name: {"model": f"openai/{name}", "track": "vanilla"} for name in models},
        "judge": {judge: {"model": f"openai/{judge}"}},
        "benchmarks": {
            BENCHMARK: {
                "title": "$OneMillion-Bench",
                "source": "data/one_million_bench",
                "sha256": "0" * 64,
                "tasks": len(tasks),
                "scoring": {"metric": "expert_score", "clip": True, "pass_at": 0.7},
                "judging": {"method": "sheet"},
                "prompts_sha256": {},
                "subsets": SUBSETS,
                "selected": selected,
            }
        },
    }
