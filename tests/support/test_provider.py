from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from pytest_rubrics.tasks import Criterion, Task
from tests.support import faults
from tests.support.faults import Fault, FixedWindow, RateLimit, TokenBucket
from tests.support.judge import TextIndex
from tests.support.provider import (
    Provider,
    criteria_truth_of,
    expert_score,
    latency_factor,
    published_tasks,
    separate_provider,
    tool_calls,
    truth_of,
)
from tests.support.shared import shared_data

TASK = Task(
    benchmark="sample",
    id="a",
    key="1",
    subset="all",
    language="en",
    prompt="Which risks does a lender take on when it refinances a shop, and how would you price them in a memo?",
    criteria=(
        Criterion("1", "Names the interest rate risk.", 10),
        Criterion("3", "Prices the default risk.", 5),
        Criterion("7", "Invents a figure.", -8),
    ),
)
VERDICTS = {"1": True, "3": False, "7": True}
TRUTH = {TASK.prompt: VERDICTS}


def chat(model: str = "model", text: str = "Why?", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def post(server: Provider, body: dict[str, Any], timeout: float = 10, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}/chat/completions", json=body, headers=headers, timeout=timeout)


def content(server: Provider, body: dict[str, Any]) -> str:
    response = post(server, body)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def with_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "sheet", "strict": True, "schema": schema}}


def sheet_prompt(task: Task = TASK, instructions: str = "Reply in JSON, by rubric_id.") -> str:
    return f"{instructions}\n<q>\n{task.prompt}\n</q>\n<a>\nAn answer.\n</a>\n"


@contextmanager
def posting(server: Provider, *bodies: dict[str, Any]) -> Iterator[list[Future[httpx.Response]]]:
    with ThreadPoolExecutor(len(bodies)) as pool:
        yield [pool.submit(post, server, body) for body in bodies]


# Answers


@pytest.mark.parametrize(("question", "word"), [("What is a bond?", "Report"), ("什么是债券？", "报告")])
def test_default_answer_is_in_the_questions_language_and_always_the_same(question: str, word: str) -> None:
    with Provider(answer_bytes=2000) as server:
        first, second = content(server, chat(text=question)), content(server, chat(text=question))
        other = content(server, chat(text=question + "!"))
    assert first == second != other
    assert word in first
    assert 1996 < len(first.encode()) <= 2000


def test_completion_has_the_fields_of_openai() -> None:
    with Provider(answers=lambda body: "four", reasoning="2 and 2") as server:
        reply = post(server, chat("org/model:tag", "2 + 2, in one word?")).json()
    assert reply["model"] == "org/model:tag-2026-01-01"
    assert reply["choices"][0]["message"] == {"role": "assistant", "reasoning_content": "2 and 2", "content": "four"}
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["prompt_tokens"] == 4
    assert reply["usage"]["completion_tokens"] == 2
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}


def test_logprobs_come_only_when_asked_for_and_switched_on() -> None:
    with Provider(answers=lambda body: "yes") as server:
        asked = post(server, chat(logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]
        assert post(server, chat()).json()["choices"][0]["logprobs"] is None
    assert [entry["token"] for entry in asked["content"][0]["top_logprobs"]] == ["yes", "no"]
    with Provider(logprobs=False) as server:
        assert post(server, chat(logprobs=True)).json()["choices"][0]["logprobs"] is None


def test_script_follows_the_conversation_and_repeats_its_last_reply() -> None:
    search = tool_calls(("search", {"query": "债券"}), ("search", {"query": "rates"}))
    with Provider(script=[search, "The report."]) as server:
        body = chat(tools=[{"type": "function", "function": {"name": "search"}}])
        first = post(server, body).json()["choices"][0]
        assert first["finish_reason"] == "tool_calls"
        calls = first["message"]["tool_calls"]
        assert json.loads(calls[0]["function"]["arguments"]) == {"query": "债券"}
        assert calls[0]["id"] != calls[1]["id"]
        body["messages"].append(first["message"])
        assert content(server, body) == "The report."
        body["messages"].append({"role": "assistant", "content": "The report."})
        assert content(server, body) == "The report."


def test_script_may_differ_by_question() -> None:
    with Provider(script={"bond": ["B"], "share": ["S"]}, answers=lambda body: "none") as server:
        assert [content(server, chat(text=f"What is a {name}?")) for name in ("share", "bond", "loan")] == [
            "S",
            "B",
            "none",
        ]


# The judge


def test_sheet_without_schema_gives_the_true_verdicts() -> None:
    with Provider(truth=TRUTH) as server:
        rows = json.loads(content(server, chat("openai/judge-a", sheet_prompt())))["results"]
    assert [(row["rubric_id"], row["status"]) for row in rows] == [("1", "yes"), ("3", "no"), ("7", "yes")]


def test_sheet_of_a_chinese_prompt_has_chinese_statuses() -> None:
    with Provider(truth=TRUTH) as server:
        instructions = "请逐条判断每个条目所描述的情形，在回答中是否出现。" * 4 + "只输出 JSON，键为 rubric_id。"
        body = chat("judge", sheet_prompt(instructions=instructions))
        rows = json.loads(content(server, body))["results"]
    assert [row["status"] for row in rows] == ["是", "否", "是"]


def validate(reply: Any, schema: dict[str, Any]) -> None:
    pytest.importorskip("jsonschema").validate(reply, schema)  # comes with LiteLLM


def _element(rubric_id: dict[str, Any], statuses: tuple[str, str] = ("yes", "no")) -> dict[str, Any]:
    properties = {
        "rubric_id": rubric_id,
        "status": {"type": "string", "enum": list(statuses)},
        "justification": {"type": "string", "maxLength": 20},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _holder(key: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {key: value}, "required": [key], "additionalProperties": False, **more}


def _array(**fields: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 3, "maxItems": 3, **fields}


SHEETS = {
    "one schema for all rows": _holder("verdicts", _array(items=_element({"type": "string", "enum": ["1", "3", "7"]}))),
    "free ids": _holder("verdicts", _array(items=_element({"type": "string"}))),
    "numbers as ids": _holder("verdicts", _array(items=_element({"type": "integer"}))),
    "fixed rows": _holder("verdicts", _array(prefixItems=[_element({"const": name}) for name in ("1", "3", "7")])),
    "fixed rows, free ids": _holder("verdicts", _array(prefixItems=[_element({"type": "string"})] * 3)),
    "alternatives": _holder(
        "verdicts", _array(items={"anyOf": [_element({"enum": [name]}) for name in ("1", "3", "7")]})
    ),
    "references": _holder(
        "verdicts",
        _array(items={"$ref": "#/$defs/row"}),
        **{"$defs": {"row": _element({"$ref": "#/$defs/id"}), "id": {"enum": ["1", "3", "7"]}}},
    ),
    "Chinese": _holder("verdicts", _array(items=_element({"enum": ["1", "3", "7"]}, ("是", "否")))),
    "root array": _array(items=_element({"enum": ["1", "3", "7"]})),
    "a row for each key": _holder(
        "verdicts",
        {
            "type": "object",
            "properties": {
                n: _holder("status", {"type": ["string", "null"], "enum": ["yes", "no"]}) for n in ("1", "3", "7")
            },
            "required": ["1", "3", "7"],
        },
    ),
    "a word for each key": {
        "type": "object",
        "properties": {name: {"enum": ["no", "yes"]} for name in ("1", "3", "7")},
        "required": ["1", "3", "7"],
    },
}


def _read(reply: Any) -> dict[str, bool]:
    """Read any of the shapes above."""
    reply = reply.get("verdicts", reply) if isinstance(reply, dict) else reply
    pairs = reply.items() if isinstance(reply, dict) else ((row["rubric_id"], row) for row in reply)
    return {str(name): (row["status"] if isinstance(row, dict) else row) in {"yes", "是"} for name, row in pairs}


@pytest.mark.parametrize("shape", SHEETS)
def test_sheet_fits_the_schema_asked_for(shape: str) -> None:
    with Provider(truth=TRUTH) as server:
        body = chat("judge", sheet_prompt(), response_format=with_schema(SHEETS[shape]))
        reply = json.loads(content(server, body))
    validate(reply, SHEETS[shape])
    assert _read(reply) == VERDICTS


VERDICT = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["Satisfied", "Not Satisfied"]},
        "score": {"type": "integer", "enum": [0, 1]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "reasoning": {"type": "string", "minLength": 60},
        "evidence_quotes": {"type": "array", "items": {"type": "string"}},
        "certain": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["verdict", "score", "confidence", "reasoning", "evidence_quotes", "certain"],
}


@pytest.mark.parametrize("schema", [VERDICT, None])
@pytest.mark.parametrize(("criterion", "hit"), list(zip(TASK.criteria, VERDICTS.values(), strict=True)))
def test_one_criterion_is_found_by_its_text(schema: dict[str, Any] | None, criterion: Criterion, hit: bool) -> None:
    with Provider(criteria_truth=criteria_truth_of([TASK], TRUTH)) as server:
        prompt = f'Reply {{"verdict": ..., "score": ..., "reasoning": ...}}\n{TASK.prompt}\n{criterion.text}'
        form = {"response_format": with_schema(schema)} if schema else {}
        reply = json.loads(content(server, chat("judge", prompt, **form)))
    validate(reply, schema or {})
    assert (reply["verdict"], reply["score"]) == (("Satisfied", 1) if hit else ("Not Satisfied", 0))


def test_chunk_prompt_gets_evidence() -> None:
    with Provider() as server:
        reply = json.loads(content(server, chat("judge", 'Reply {"relevant_evidence": [...]} for this part.')))
    assert [type(quote) for quote in reply["relevant_evidence"]] == [str]


def test_default_truth_is_that_of_the_question_asked_before() -> None:
    ids = {"type": "string", "enum": ["1", "3", "7"]}
    with Provider() as server:
        content(server, chat(text=TASK.prompt))
        body = chat(
            "judge", sheet_prompt(), response_format=with_schema(_holder("verdicts", _array(items=_element(ids))))
        )
        assert _read(json.loads(content(server, body))) == truth_of([TASK])[TASK.prompt]


def test_truth_may_depend_on_the_judge() -> None:
    with Provider(truth=lambda body: {"1": body["model"] == "judge-kind"}) as server:
        replies = [json.loads(content(server, chat(model, "rubric_id"))) for model in ("judge-kind", "judge-stern")]
    assert [reply["results"][0]["status"] for reply in replies] == ["yes", "no"]


@pytest.mark.parametrize(
    ("prompt", "ids", "reason"),
    [("Another question.", ["1"], "none of the questions"), (sheet_prompt(), ["1", "4"], "asks for ['1', '4']")],
)
def test_judging_the_unknown_is_refused_with_the_reason(prompt: str, ids: list[str], reason: str) -> None:
    schema = _holder("verdicts", {"type": "array", "items": _element({"enum": ids})})
    with Provider(truth=TRUTH) as server:
        response = post(server, chat("judge", prompt, response_format=with_schema(schema)))
    assert response.status_code == 400
    assert reason in response.json()["error"]["message"]


def test_index_finds_each_published_question_wherever_it_stands() -> None:
    tasks = published_tasks(shared_data() / "one_million_bench")
    index = TextIndex(task.prompt for task in tasks)
    assert len(tasks) == 400
    for shift, task in enumerate(tasks):
        assert index.find("x" * shift + task.prompt.strip() + "\nAnswer: " + "y" * shift) == task.prompt


def test_index_prefers_the_longer_of_two_texts_and_finds_short_ones() -> None:
    index = TextIndex(["a bond", "a bond of the state"])
    assert index.find("What is a bond of the state?") == "a bond of the state"
    assert index.find("What is a bond?") == "a bond"
    assert index.find("What is a share?") is None


# Truth and scores


def test_expert_score_by_hand() -> None:
    assert expert_score(TASK, VERDICTS) == 2 / 15
    assert expert_score(TASK, {"1": False, "3": False, "7": True}) == 0.0
    assert expert_score(TASK, {"1": True, "3": True, "7": False}) == 1.0


def test_truth_of_many_tasks_spreads_the_scores() -> None:
    tasks = published_tasks(shared_data() / "one_million_bench")
    truth = truth_of(tasks)
    scores = [expert_score(task, truth[task.prompt]) for task in tasks]
    assert truth == truth_of(tasks) != truth_of(tasks, seed=1)
    assert 50 < sum(score >= 0.7 for score in scores) < 200
    assert len(set(scores)) > 200


def test_criteria_with_one_text_and_two_verdicts_are_refused() -> None:
    twice = Task("sample", "b", "2", "all", "en", "Q", (Criterion("1", "Same.", 1), Criterion("2", "Same.", 1)))
    with pytest.raises(ValueError, match=r"'Same\.'"):
        criteria_truth_of([twice], {"Q": {"1": True, "2": False}})


def test_published_research_tasks_are_read() -> None:
    tasks = published_tasks(shared_data() / "researchrubrics" / "processed_data.jsonl")
    assert len(tasks) == 3
    assert all(task.prompt and len(task.criteria) > 1 for task in tasks)


# What is accepted


@pytest.mark.parametrize(
    ("accepts", "asked", "status"),
    [
        ("json_schema", "json_schema", 200),
        ("json_object", "json_schema", 400),
        ("json_object", "json_object", 200),
        ("text", "json_object", 400),
        ("text", "text", 200),
    ],
)
def test_stronger_format_than_accepted_is_refused(accepts: Any, asked: str, status: int) -> None:
    form = with_schema(SHEETS["root array"]) if asked == "json_schema" else {"type": asked}
    with Provider(truth=TRUTH, accepts=accepts) as server:
        response = post(server, chat("judge", sheet_prompt(), response_format=form))
        assert response.status_code == status
        if status == 400:
            assert asked in response.json()["error"]["message"]


def test_stronger_format_may_be_ignored() -> None:
    with Provider(truth=TRUTH, accepts="text", ignore_format=True) as server:
        body = chat("judge", sheet_prompt(), response_format=with_schema(SHEETS["root array"]))
        assert set(json.loads(content(server, body))) == {"results"}


def test_json_object_needs_the_word_json_in_the_prompt() -> None:
    with Provider(truth=TRUTH) as server:
        body = chat("judge", sheet_prompt(instructions="By rubric_id."), response_format={"type": "json_object"})
        assert post(server, body).status_code == 400


def test_tools_can_be_switched_off() -> None:
    with Provider(tools=False) as server:
        assert post(server, chat(tools=[{"type": "function"}])).status_code == 400
        assert post(server, chat(tools=[])).status_code == 200


def test_wrong_key_is_refused() -> None:
    with Provider(api_key="right") as server:
        assert post(server, chat(), Authorization="Bearer wrong").status_code == 401
        assert post(server, chat(), Authorization="Bearer right").status_code == 200


def test_latencies_spread_over_questions_around_the_median() -> None:
    factors = [latency_factor(f"Question {number}?", 0.8) for number in range(2_000)]
    assert factors == [latency_factor(f"Question {number}?", 0.8) for number in range(2_000)]
    logs = [math.log(factor) for factor in factors]
    assert statistics.fmean(logs) == pytest.approx(0, abs=0.06)
    assert statistics.stdev(logs) == pytest.approx(0.8, abs=0.05)


def test_the_answer_to_a_question_has_its_own_latency_and_the_judges_has_the_median() -> None:
    slowest = max((f"Question {number}?" for number in range(100)), key=lambda text: latency_factor(text, 2))
    with Provider(latency=0.02, latency_spread=2) as server:
        assert post(server, chat(text=slowest)).elapsed.total_seconds() >= 0.02 * latency_factor(slowest, 2) > 0.2
        assert post(server, chat("judge", slowest)).elapsed.total_seconds() >= 0.02


# Faults


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529])
def test_refusal_has_its_status_and_body(status: int) -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.error(status)))
        assert str(status) in post(server, chat()).json()["error"]["message"]
        server.faults.clear()
        server.faults.add(Fault(faults.error(status, "busy")))
        assert post(server, chat()).text == "busy"
        assert [request.status for request in server.requests] == [status, status]


def test_retry_after_is_seconds_or_a_date() -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.error(429, retry_after=0.25), times=1))
        server.faults.add(Fault(faults.error(503, retry_after=60, http_date=True)))
        assert post(server, chat()).headers["Retry-After"] == "0.25"
        date = parsedate_to_datetime(post(server, chat()).headers["Retry-After"])
    assert 50 < date.timestamp() - time.time() < 61


@pytest.mark.parametrize(
    ("effect", "status", "code"),
    [
        (faults.insufficient_quota(), 429, "insufficient_quota"),
        (faults.context_length(), 400, "context_length_exceeded"),
        (faults.filter_refusal(), 400, "content_filter"),
    ],
)
def test_named_refusals_have_the_providers_code(effect: faults.Effect, status: int, code: str) -> None:
    with Provider() as server:
        server.faults.add(Fault(effect))
        response = post(server, chat())
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_secret_is_echoed() -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.echo_secret()))
        assert "sk-secret" in post(server, chat(), Authorization="Bearer sk-secret").json()["error"]["message"]


def test_fault_befalls_only_what_it_names() -> None:
    with Provider(truth=TRUTH) as server:
        server.faults.add(Fault(faults.error(500), kind="judge", match="lender", start=2, times=2))
        assert post(server, chat("judge", "rubric_id of no lender?")).status_code == 400
        statuses = [post(server, chat("judge", sheet_prompt())).status_code for _ in range(3)]
        assert statuses == [500, 500, 200]
        assert post(server, chat(text=TASK.prompt)).status_code == 200


def test_the_fault_added_first_wins_and_all_count() -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.error(500), times=1), Fault(faults.error(503), times=2))
        assert [post(server, chat()).status_code for _ in range(3)] == [500, 503, 200]


def test_hang_ends_with_the_client() -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.hang(), times=1))
        with pytest.raises(httpx.TimeoutException):
            post(server, chat(), timeout=0.2)
        assert post(server, chat()).status_code == 200
        assert [request.status for request in server.requests] == [None, 200]


def test_slow_reply_is_a_good_one() -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.slow(0.3), times=1))
        with pytest.raises(httpx.TimeoutException):
            post(server, chat(), timeout=0.1)
        server.faults.add(Fault(faults.slow(0.05)))
        assert post(server, chat()).status_code == 200


def test_drip_outlasts_the_read_timeout() -> None:
    with Provider() as server, httpx.Client(timeout=0.5) as client:
        server.faults.add(Fault(faults.drip(0.01)))
        with client.stream("POST", f"{server.url}/chat/completions", json=chat()) as response:
            blanks = response.iter_bytes()
            start = time.monotonic()
            assert not b"".join(next(blanks) for _ in range(80)).strip()
            assert time.monotonic() - start > 0.5


def test_reset_comes_before_headers() -> None:
    with Provider() as server:
        server.faults.add(Fault(faults.reset()))
        with pytest.raises(httpx.ReadError):
            post(server, chat())


def test_cut_comes_in_the_middle_of_the_body() -> None:
    with Provider() as server, httpx.Client() as client:
        server.faults.add(Fault(faults.cut()))
        with client.stream("POST", f"{server.url}/chat/completions", json=chat()) as response:
            assert response.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
                response.read()


@pytest.mark.parametrize(
    ("effect", "body"),
    [
        (faults.text(""), ""),
        (faults.text("[]"), "[]"),
        (faults.invalid_json(), '{"id": "chatcmpl-1"'),
        (faults.html(), "<"),
    ],
)
def test_useless_200(effect: faults.Effect, body: str) -> None:
    with Provider() as server:
        server.faults.add(Fault(effect))
        response = post(server, chat())
    assert response.status_code == 200
    assert response.text[: len(body) or None] == body


@pytest.mark.parametrize(
    ("effect", "choices"),
    [(faults.no_choices(), "missing"), (faults.choices([]), []), (faults.choices(None), None)],
)
def test_200_without_a_choice(effect: faults.Effect, choices: Any) -> None:
    with Provider() as server:
        server.faults.add(Fault(effect))
        assert post(server, chat()).json().get("choices", "missing") == choices


@pytest.mark.parametrize(
    ("effect", "text", "reason"),
    [
        (faults.content(None), None, "stop"),
        (faults.content(""), "", "stop"),
        (faults.content("   "), "   ", "stop"),
        (faults.content("A begin", "length"), "A begin", "length"),
        (faults.content("", "length"), "", "length"),
        (faults.filtered(), "", "content_filter"),
    ],
)
def test_content_replaced(effect: faults.Effect, text: str | None, reason: str) -> None:
    with Provider() as server:
        server.faults.add(Fault(effect))
        choice = post(server, chat()).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, reason)


@pytest.mark.parametrize("shape", ["fixed rows", "a row for each key"])
def test_missing_id_leaves_the_others(shape: str) -> None:
    with Provider(truth=TRUTH) as server:
        server.faults.add(Fault(faults.missing_id("3")))
        body = chat("judge", sheet_prompt(), response_format=with_schema(SHEETS[shape]))
        assert _read(json.loads(content(server, body))) == {"1": True, "7": True}


# Rate limit


def test_rate_limit_window() -> None:
    limit = RateLimit(2, 10)
    taken = [limit.take(now)[1] for now in (0.0, 4.0, 5.5, 10.0, 11.0)]
    assert [headers.get("Retry-After") for headers in taken] == [None, None, "5", None, "3"]
    assert taken[2]["retry-after-ms"] == "4500"
    assert [headers["x-ratelimit-remaining-requests"] for headers in taken] == ["1", "0", "0", "0", "0"]


@pytest.mark.parametrize(
    ("limit", "wait"), [(RateLimit(4, 10), "7"), (TokenBucket(4, 10), "2"), (FixedWindow(4, 10), "6")]
)
def test_limits_of_each_kind(limit: RateLimit, wait: str) -> None:
    taken = [limit.take(now, 2) for now in (1.0, 3.0, 4.2, 11.0, 13.0)]
    assert [is_free for is_free, _ in taken] == [True, True, False, True, True]
    assert [headers.get("Retry-After") for _, headers in taken] == [None, None, wait, None, None]


def test_requests_over_the_rate_are_refused() -> None:
    with Provider(rate=(2, 600)) as server:
        responses = [post(server, chat()) for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert 1 <= int(responses[2].headers["Retry-After"]) <= 600
    assert responses[0].headers["x-ratelimit-limit-requests"] == "2"


# Records, and the server itself


def test_requests_are_recorded_with_their_kind() -> None:
    with Provider(truth=TRUTH) as server:
        post(server, chat("org/judge-1", sheet_prompt()), Authorization="Bearer k")
        post(server, chat("prejudge"))
        assert [(request.kind, request.status) for request in server.requests] == [("judge", 200), ("answer", 200)]
        assert server.requests[0].headers["authorization"] == "Bearer k"
        assert server.requests[1].body == chat("prejudge")
        assert (server.count("judge"), server.count("answer"), server.count()) == (1, 1, 2)
        assert server.requests[0].at <= server.requests[1].at <= time.monotonic()


def test_other_paths_are_recorded_and_answered() -> None:
    with Provider(other=lambda request: (200, {"path": request.path, "method": request.method})) as server:
        base = server.url.removesuffix("/v1")
        reply = httpx.put(f"{base}/v1beta/models/x:generate?key=k", content="plain")
        assert reply.json() == {"path": "/v1beta/models/x:generate?key=k", "method": "PUT"}
        assert (server.requests[0].kind, server.requests[0].body) == ("other", "plain")


def test_models_and_health_answer() -> None:
    with Provider() as server:
        assert httpx.get(f"{server.url}/models").json()["object"] == "list"
        assert httpx.get(f"{server.url}/nothing").status_code == 404
        post(server, chat())
        health = httpx.get(server.url.removesuffix("/v1") + "/health").json()
        assert (health["answer"], health["judge"], health["other"], health["max_in_flight"]) == (1, 0, 2, 1)


def test_long_bodies_pass() -> None:
    with Provider(answers=lambda body: str(len(body["messages"][0]["content"]))) as server:
        assert content(server, chat(text="x" * 3_000_000)) == "3000000"


def test_paused_requests_arrive_and_wait() -> None:
    with Provider() as server:
        server.pause()
        with posting(server, chat(), chat("judge", 'One "verdict" please.'), chat()) as replies:
            server.wait_for(3)
            server.wait_for(1, "judge")
            assert not any(reply.done() for reply in replies)
            assert {request.status for request in server.requests} == {None}
            server.resume()
        assert [reply.result().status_code for reply in replies] == [200, 200, 200]
        assert server.max_in_flight == 3


def test_waiting_in_vain_names_what_came() -> None:
    with Provider() as server:
        post(server, chat())
        with pytest.raises(TimeoutError, match=r"0 of 1 requests \(kind judge\)"):
            server.wait_for(1, "judge", timeout=0.01)


def test_killed_client_leaves_its_requests_without_status() -> None:
    script = "import httpx, sys; httpx.post(sys.argv[1], json={'model': 'm', 'messages': []}, timeout=60)"
    with Provider() as server:
        server.pause()
        client = subprocess.Popen([sys.executable, "-c", script, f"{server.url}/chat/completions"])
        server.wait_for(1)
        client.kill()
        client.wait()
        server.resume()
        assert post(server, chat()).status_code == 200
        assert [request.status for request in server.requests] == [None, 200]


def test_error_inside_is_raised_at_the_end() -> None:
    def answers(body: dict[str, Any]) -> str:
        raise KeyError("a fault of the test")

    with pytest.raises(KeyError, match="a fault of the test"), Provider(answers=answers) as server:
        assert post(server, chat()).status_code == 500


def test_taken_port_is_an_error() -> None:
    with Provider() as server:
        port = httpx.URL(server.url).port
        assert port
        with pytest.raises(OSError, match="in use"), Provider(port=port):
            pass


async def _hold(url: str, n: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one() -> None:
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{url}/chat/completions", json=chat())

        await asyncio.gather(*(one() for _ in range(n)))


@pytest.mark.parametrize("effect", [faults.hang(), faults.slow(600), None])
def test_server_ends_with_requests_in_flight_and_leaves_nothing_open(effect: faults.Effect | None) -> None:
    with Provider() as server:
        server.faults.add(*[Fault(effect)] if effect else [])
        if effect is None:
            server.pause()
        clients = threading.Thread(target=lambda: asyncio.run(_hold(server.url, 50)))
        clients.start()
        server.wait_for(50)
    clients.join(timeout=10)
    assert not clients.is_alive()
    assert server.max_in_flight == 50
    gc.collect()  # sockets left open would warn here, and warnings are errors


def test_process_of_its_own_prints_its_url_and_judges_published_tasks() -> None:
    data = shared_data() / "one_million_bench" / "law"
    task = published_tasks(data)[0]
    with separate_provider("--data", str(data), "--answer-bytes", "100") as url:
        body = chat("judge", sheet_prompt(task))
        reply = httpx.post(f"{url}/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        answer = httpx.post(f"{url}/chat/completions", json=chat()).json()["choices"][0]["message"]["content"]
    assert _read({"verdicts": json.loads(reply)["results"]}) == truth_of([task])[task.prompt]
    assert len(answer) == 100


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_process_of_its_own_ends_quietly_when_terminated() -> None:
    command = [sys.executable, str(Path(faults.__file__).with_name("provider.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")
