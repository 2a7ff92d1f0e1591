"""Patterns that are short and compile to much: refused, charged and kept within limits; RE2 itself judges the sizes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from control.cel import BudgetExceeded, CompileError, Declarations, compile, patterns
from control.cel.pattern_size import pattern_size
from control.event_loop import inline
from kube import bounded_cache
from tests.support.cost import Lines

COMMON = [
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    r"^([a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?)$",
    r"^[A-Za-z0-9_.\-]{1,1000}$",
    r"^.{0,1000}$",
    r"^[\p{L}\p{N} ]{1,63}$",
    r"^(?i)(yes|no)[éà]*$",
    r"^(\d{1,3}\.){3}\d{1,3}/\d+$",
    r"^\Qa.b\E$",
    "",
]
HUGE = [r"\pL{400}", r"\pL" * 2700, r"(?i)[\pL\pN]{300}", r"(.{99}){99}", r"(?:\PL{31}){31}", r"[^\x{100}]{999}" * 9]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    bounded_cache.forget_all()
    yield
    bounded_cache.forget_all()


def program_size(pattern: str) -> int | None:
    """Return the instructions that RE2 compiles a pattern to; None for what it refuses."""
    options = re2.Options()
    options.log_errors, options.max_mem = False, 256 << 20
    try:
        found = re2.compile(pattern, options)._regexp
    except re2.error:
        return None
    finally:
        re2.purge()
    return int(max(found.ProgramSize(), found.ReverseProgramSize()))


ATOMS = st.sampled_from(
    r"a k S 0 - é ß Ā 한 😀 \d \w \s \D \W \S . \b ^ $ \. \x41 \x{100} \141 \n \Qa.é\E \A \z".split()
    + r"\pN \p{Greek} \p{^Lu} [a-z] [^a-z] []a] [^]a] [-k] [é-ü] [\x{100}-\x{2fff}] [\d\W] [[:alpha:][:^digit:]]".split()
    + [r"[\pN\.K]"]
)
REPEATS = st.sampled_from(["", "", "*", "+?", "?", "{2}", "{3,}", "{0,4}", "{1,9}"])


def _grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    opening = st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?P<n>"])
    group = st.builds(lambda start, body, times: f"{start}{body}){times}", opening, inner, REPEATS)
    return st.one_of(group, st.builds("{}|{}".format, inner, inner), st.builds("{}{}".format, inner, inner))


PATTERNS = st.builds(
    "{}{}".format,
    st.sampled_from(["", "(?i)", "(?is)"]),
    st.recursive(st.builds("{}{}".format, ATOMS, REPEATS), _grouped, max_leaves=8),
)


@settings(max_examples=300, deadline=None)
@given(PATTERNS)
def test_no_pattern_compiles_to_more_than_was_counted(pattern: str) -> None:
    size = program_size(pattern)
    assert size is None or size <= pattern_size(pattern)


@pytest.mark.parametrize("pattern", COMMON)
def test_common_patterns_are_accepted(pattern: str) -> None:
    size = program_size(pattern)
    assert size is not None and size <= pattern_size(pattern) <= patterns.MOST_INSTRUCTIONS
    patterns.compiled(pattern)


@pytest.mark.parametrize("pattern", HUGE)
def test_patterns_that_compile_to_too_much_are_refused_without_compiling_them(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "_compile", None)
    with pytest.raises(patterns.PatternError, match="expression too large"):
        patterns.compiled(pattern)
    with pytest.raises(CompileError, match="invalid matches argument"):
        compile(f"'a'.matches(r'{pattern}')", Declarations({}))


@pytest.mark.parametrize(
    "pattern", ["(", "[", "[^", "a{", "a{2", "\\", "\\Q", "\\p", "\\p{", "\\x{", "(?", "(?P<", ")", ")*", "*"]
)
def test_the_size_of_an_incorrect_pattern_is_counted_too(pattern: str) -> None:
    assert 0 < pattern_size(pattern * 100) < 1_000_000


def test_counting_is_linear_in_a_patterns_length() -> None:
    def lines(pattern: str) -> int:
        with Lines() as counted:
            pattern_size(pattern)
        return counted.count

    for unit in ("a", "(", "()", "[a", "[]", "a{9}", "\\Q", "\\p{", "[[:", "(?P<a"):
        assert lines(unit * 1000) <= 2.5 * lines(unit * 500) + 100, unit


def test_the_event_loop_compiles_only_what_is_small() -> None:
    assert inline.limited(patterns.found, "^[a-z]{1,63}$", "abc")
    with pytest.raises(inline.TooMuchHere):
        inline.limited(patterns.found, r"^[\p{L}\p{N}]{1,63}$", "abc")


def test_patterns_are_kept_up_to_a_total_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = patterns._compile

    def counting(pattern: str, memory: int) -> object:
        compiled.append(pattern)
        return real(pattern, memory)

    monkeypatch.setattr(patterns, "_compile", counting)
    large = [rf"\p{{Greek}}{{80}}{number}" for number in range(40)]
    for pattern in large:
        patterns.compiled(pattern)
    assert patterns._kept._bytes <= patterns.KEPT_MEMORY < 40 * 32 * pattern_size(large[0])
    patterns.compiled(large[-1])
    assert compiled == large
    patterns.compiled(large[0])
    assert compiled == [*large, large[0]]
    bounded_cache.forget_all()
    assert patterns._kept._bytes == 0
    patterns.compiled(large[0])
    assert len(compiled) == 42


def test_a_thread_that_compiles_pauses_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    clock = iter([10.0, 10.125, 20.0, 20.001, 30.0, 39.0, 40.0, 41.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", pauses.append)
    for pattern in ("long", "short", "longest"):
        thread = threading.Thread(target=patterns.compiled, args=(pattern,))
        thread.start()
        thread.join()
    patterns.compiled("on the main thread")
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize("call", ["matches('{}')", "find('{}') == ''", "findAll('{}') == []"])
def test_a_search_costs_what_the_pattern_compiles_to(call: str) -> None:
    declarations = Declarations({})
    short = compile("'" + "b" * 8000 + "'." + call.format("a" * 7), declarations).evaluate({})
    long = compile("'" + "b" * 8000 + "'." + call.format(".{1000}a"), declarations).evaluate({})
    assert short.cost < 3000 < 30_000 < long.cost
    several = compile("'" + "b" * 8000 + "'." + call.format(".{1000}" * 3 + "a"), declarations)
    with pytest.raises(BudgetExceeded):
        several.evaluate({}, 100_000)


def test_groups_are_not_recorded() -> None:
    assert patterns.compiled("(a*)(b*)" * 50).search("ab").groups() == ()
