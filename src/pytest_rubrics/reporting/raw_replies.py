"""What a judge replied, word for word: it stands in the reply cache, as long as that is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.calls.cache import ReplyStore, StoreError
from pytest_rubrics.records import Run
from pytest_rubrics.reporting.rich_text import shortened


@dataclass(frozen=True, slots=True)
class RawReplies:
    """The replies behind the grades of a run.

    Attributes:
        store: The reply cache; None where it is gone.
    """

    store: ReplyStore | None

    def of_judge(self, row: Mapping[str, Any]) -> list[str]:
        """The judge's replies to one grade, in the order of the asks; none where they are not stored."""
        if self.store is None:
            return []
        rows = (self.store.get(key) for key in (row.get("keys") or {}).get("judge", ()))
        return [shortened(str(reply["content"] or ""))[0] for reply in rows if isinstance(reply, dict)]


@contextmanager
def raw_replies(run: Run) -> Iterator[RawReplies]:
    """The reply cache that a run used."""
    folder = Path(str(run.manifest.get("options", {}).get("cache_dir", "")))
    store = None
    if (folder / "cache.db").is_file():
        try:
            store = ReplyStore(folder, warn=lambda _: None)
        except StoreError:  # a report does without
            store = None
    try:
        yield RawReplies(store)
    finally:
        if store is not None:
            store.close()
