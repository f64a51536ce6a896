"""The least that a script with LiteLLM needs for the calls of a run: no cache, no verdicts read, no report.

Run by ``throughput.py`` as ``python perf/plain_litellm.py DATA URL CONCURRENCY PART PARTS``: a share of the tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdicts",
        "strict": True,
        "schema": {"type": "object", "properties": {"verdicts": {"type": "array", "items": {"type": "object"}}}},
    },
}


async def call(url: str, model: str, text: str, **more: Any) -> str:
    """One call, and its text."""
    messages = [{"role": "user", "content": text}]
    response = await litellm.acompletion(
        model=f"openai/{model}", messages=messages, api_base=url, api_key="none", max_retries=0, **more
    )
    return str(response.choices[0].message.content)


async def work(rows: Iterator[Mapping[str, Any]], url: str) -> None:
    """Answer and judge rows until there are none."""
    for row in rows:
        answer = await call(url, "answer", row["question"])
        criteria = json.dumps(row["rubrics"], ensure_ascii=False)
        await call(url, "judge", f"{row['question']}\n\n{answer}\n\n{criteria}", temperature=0, response_format=SCHEMA)


async def main(rows: list[Mapping[str, Any]], url: str, concurrency: int) -> None:
    """As many tasks at once as calls may be in flight."""
    left = iter(rows)
    await asyncio.gather(*(work(left, url) for _ in range(concurrency)))


if __name__ == "__main__":
    folder, url, *numbers = sys.argv[1:]
    concurrency, part, parts = map(int, numbers)
    paths = sorted(Path(folder).glob("*/test.json"))
    tasks = [row for path in paths for row in json.loads(path.read_text("utf-8"))]
    asyncio.run(main(tasks[part::parts], url, concurrency))
