"""Detection of interpreters that never free interned strings, compared with what this one keeps of them."""

import logging
import sys
import tracemalloc

import pytest

from kube import interned_strings

OF_3_12 = (1 << 32) - 1
OF_3_14 = 3 << 30
OF_32_BITS = (1 << 30) - 1


def test_an_interpreter_that_keeps_interned_strings_is_a_problem_and_no_other_one() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            sys.intern(f"{number:0100000d}-of-this-test")  # noqa: TID251
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert bool(interned_strings.problem()) == (kept > 5_000_000)


@pytest.mark.parametrize("references", [OF_3_12, OF_3_14, OF_32_BITS])
def test_immortal_strings_are_found_whatever_number_stands_for_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, references: int
) -> None:
    monkeypatch.setattr(sys, "getrefcount", lambda each: references)
    assert "never frees interned strings" in interned_strings.problem()
    interned_strings.warn(logging.getLogger("daemon"))
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.getMessage().endswith(interned_strings.FIX)


def test_other_interpreters_are_not_mentioned_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "getrefcount", lambda each: 3)
    interned_strings.warn(logging.getLogger("daemon"))
    assert caplog.records == []
