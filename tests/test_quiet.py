from __future__ import annotations

import _warnings
import threading
import warnings
from collections.abc import Callable

import pytest

from pytest_rubrics.quiet import put_filter_first, without_warnings


def raised_in(name: str, warn: Callable[[str], object]) -> BaseException | None:
    """What a warning in a thread of this name raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            warn("old")
        except UserWarning as warning:
            raised.append(warning)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    return raised[0] if raised else None


# Code in Python calls the first by its name in the module; code in C comes to the second.
@pytest.mark.parametrize("warn", [lambda text: warnings.warn(text, stacklevel=1), _warnings.warn], ids=["Python", "C"])
class TestWarnings:
    def test_warnings_of_the_threads_are_dropped_and_others_are_not(self, warn: Callable[[str], object]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with without_warnings("engine"):
                assert raised_in("engine_3", warn) is None
                assert raised_in("other", warn)

    def test_filters_that_come_later_are_met_by_another_call(self, warn: Callable[[str], object]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with without_warnings("engine"), warnings.catch_warnings():
                warnings.simplefilter("error")
                put_filter_first("engine")
                assert raised_in("engine_3", warn) is None
                assert raised_in("other", warn)

    def test_at_the_end_all_is_as_before(self, warn: Callable[[str], object]) -> None:
        before = warnings.warn
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with warnings.catch_warnings(), without_warnings("engine"):
                pass
            assert raised_in("engine_3", warn)
        assert warnings.warn is before
