"""What the test provider says: requests read, answers written, and the completion around a message."""

from __future__ import annotations

import hashlib
import json
import re
import time
from itertools import count
from typing import Any

Body = dict[str, Any]
Message = dict[str, Any]

HIT_WORDS = ("yes", "是", "Satisfied", "true", "hit", "1")
MISS_WORDS = ("no", "否", "Not Satisfied", "false", "miss", "0")


def text_of(body: Body) -> str:
    """Return all message texts of a request, one after the other."""
    return "\n".join(_content(message) for message in body.get("messages", ()))


def question_of(body: Body) -> str:
    """Return the first user message: the task, in a chat and in an agent's conversation."""
    return next((_content(m) for m in body.get("messages", ()) if m.get("role") == "user"), "")


def _content(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def is_chinese(text: str) -> bool:
    """Tell whether a text is mostly Chinese: one Chinese character weighs as much as three Latin letters."""
    return 3 * len(re.findall(r"[\u4e00-\u9fff]", text)) > len(re.findall(r"[A-Za-z]", text))


def default_answer(question: str, size: int) -> str:
    """Return a text of about ``size`` bytes in the question's language that holds the hash of the question."""
    digest = hashlib.sha256(question.strip().encode()).hexdigest()[:16]
    if is_chinese(question):
        head, filler = f"关于问题 {digest} 的报告。\n\n", "本段说明依据、步骤与结论，并给出数字以便核对。\n"
    else:
        head, filler = (
            f"Report on question {digest}.\n\n",
            "This paragraph gives grounds, steps and a result to check.\n",
        )
    copies = max(0, size - len(head.encode())) // len(filler.encode()) + 1
    return (head + filler * copies).encode()[: max(size, len(head.encode()))].decode(errors="ignore")


def tool_calls(*calls: tuple[str, dict[str, Any]]) -> Message:
    """Return an assistant message that calls tools, given as pairs of name and arguments."""
    return {
        "content": None,
        "tool_calls": [
            {
                "id": "call_" + hashlib.sha256(f"{n} {name} {arguments}".encode()).hexdigest()[:12],
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for n, (name, arguments) in enumerate(calls)
        ],
    }


_NUMBERS = count(1)


def completion(body: Body, message: Message, *, reasoning: str | None = None, logprobs: bool = True) -> dict[str, Any]:
    """Return an OpenAI chat completion that carries the message."""
    content = message.get("content") or ""
    prompt_tokens, answer_tokens = max(1, len(text_of(body)) // 4), max(1, len(content) // 4)
    thought = {"reasoning_content": reasoning} if reasoning is not None else {}
    reasoning_tokens = len(reasoning or "") // 4
    return {
        "id": f"chatcmpl-{next(_NUMBERS)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": f"{body.get('model')}-2026-01-01",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **thought, **message},
                "logprobs": _logprobs(content, body.get("top_logprobs", 0))
                if logprobs and body.get("logprobs")
                else None,
                "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": answer_tokens + reasoning_tokens,
            "total_tokens": prompt_tokens + answer_tokens + reasoning_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
        },
    }


def _logprobs(content: str, alternatives: int) -> dict[str, Any]:
    """Give every word of the content a probability of 0.9; its opposite, where it has one, gets most of the rest."""

    def entry(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    opposites = dict(zip((*HIT_WORDS, *MISS_WORDS), (*MISS_WORDS, *HIT_WORDS), strict=True))
    opposites["Not"] = "Satisfied"  # the first word of "Not Satisfied"
    tokens = []
    for token in re.findall(r"\w+|\W+", content):
        top = [entry(token, -0.105), entry(opposites.get(token, "…"), -2.4)]
        tokens.append({**entry(token, -0.105), "top_logprobs": top[:alternatives]})
    return {"content": tokens}
