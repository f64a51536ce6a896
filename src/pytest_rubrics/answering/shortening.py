"""Long texts cut in the middle: beginnings and ends say most."""

from __future__ import annotations


def shorten(text: str, limit: int) -> str:
    r"""Cut a text to about so many characters, and say in the gap how many were left out.

    >>> shorten("0123456789", 4)
    '01\n[... 6 characters left out ...]\n89'
    """
    if len(text) <= limit:
        return text
    head = limit - limit // 2
    tail = limit // 2
    gap = f"\n[... {len(text) - head - tail:,} characters left out ...]\n"
    return text[:head] + gap + (text[-tail:] if tail else "")


class CappedBytes:
    """The first and the last bytes of a stream, half of the limit each; what lies between is counted only."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """What was kept, as UTF-8 as far as it is that."""
        tail = self._tail[-self._half :]
        left_out = self._total - len(self._head) - len(tail)
        gap = f"\n[... {left_out:,} bytes left out ...]\n" if left_out else ""
        if not gap:
            return (self._head + tail).decode("utf-8", "replace")
        return self._head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")
