"""Regular expressions that users write into definitions: RE2's, as upstream's, which no input makes slow.

RE2 holds the interpreter's lock while it compiles, and keeps up to `max_mem` of states with each pattern. So patterns are
limited in what they compile to, and the latest are kept up to a total of the memory that they may take.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

from control.cel.pattern_size import pattern_size
from control.event_loop import inline
from kube.bounded_cache import bounded_cache, on_forget


class PatternError(ValueError):
    """A pattern that RE2 does not take; the message is its own."""


LONGEST = 8 * 1024
"""Characters of a pattern."""
MOST_INSTRUCTIONS = 110_000
"""The most that a pattern may compile to, which takes a tenth of a second; `[\\p{L}\\p{N}]{1,63}` has 85,000."""
_LEAST_MEMORY = 192 << 10
_MEMORY = 32
"""Bytes for an instruction; a pattern that the bytes do not suffice for is searched without keeping states, which is slower."""
KEPT_MEMORY = 64 << 20
INSTRUCTION_COST = 2
"""Units of cost (control/event_loop/inline.py) to compile an instruction."""
_INSTRUCTIONS_A_UNIT, _FREE_INSTRUCTIONS = 8, 128
"""Instructions that an expression compiles for a unit of its cost, and for none: ordinary patterns cost the same each time."""
_PAUSE, _LONGEST_PAUSE = 4, 1.0
"""A thread that has compiled a pattern pauses so many times as long, up to 1 s: others need the interpreter's lock."""
_SHORTEST = 0.002


class _Kept:
    """Compiled patterns, the latest used last, and what each may take."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patterns: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        on_forget(self.clear)

    def get(self, pattern: str) -> Any:
        with self._lock:
            found = self._patterns.get(pattern)
            if found is None:
                return None
            self._patterns.move_to_end(pattern)
            return found[0]

    def has(self, pattern: str) -> bool:
        return pattern in self._patterns

    def put(self, pattern: str, compiled: Any, memory: int) -> None:
        with self._lock:
            if pattern in self._patterns:
                return
            self._patterns[pattern] = compiled, memory
            self._bytes += memory
            while self._bytes > KEPT_MEMORY:
                _, (_, memory) = self._patterns.popitem(last=False)
                self._bytes -= memory

    def clear(self) -> None:
        with self._lock:
            self._patterns.clear()
            self._bytes = 0


_kept = _Kept()


def compiled(pattern: str) -> Any:
    """Return a compiled pattern; raises PatternError.

    Raises TooMuchHere if the work that this belongs to may cost less than that on the event loop.
    """
    found = _kept.get(pattern)
    if found is not None:
        return found
    size = pattern_size(pattern) if len(pattern) <= LONGEST else MOST_INSTRUCTIONS + 1
    if size > MOST_INSTRUCTIONS:
        raise PatternError(f"error parsing regexp: expression too large: `{pattern[:40]}...`")
    inline.spent(INSTRUCTION_COST * size)
    memory = max(_LEAST_MEMORY, _MEMORY * size)
    began = time.perf_counter()
    found = _compile(pattern, memory)
    elapsed = time.perf_counter() - began
    _kept.put(pattern, found, memory)
    if elapsed > _SHORTEST and threading.current_thread() is not threading.main_thread():
        time.sleep(min(_PAUSE * elapsed, _LONGEST_PAUSE))
    return found


def _compile(pattern: str, memory: int) -> Any:
    import re2  # 3 MB, for whom there is a pattern

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # nobody asks for groups, which cost memory and time for each
    options.max_mem = memory
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise PatternError(f"error parsing regexp: {reason.replace(': ', ': `', 1)}`") from error
    finally:
        re2.purge()  # its own cache is limited in the number of patterns alone


def search_cost(pattern: str, length: int) -> int:
    """Return the units of cost of a search in so many characters at worst: RE2 goes through all instructions at each."""
    return length * pattern_size(pattern) // 2000 if len(pattern) <= LONGEST else 0


def compilation_cost(pattern: str) -> int:
    """Return the units of cost to compile a pattern, 0 if that is done or the pattern is refused."""
    if len(pattern) > LONGEST or _kept.has(pattern):
        return 0
    size = pattern_size(pattern)
    return max(0, size - _FREE_INSTRUCTIONS) // _INSTRUCTIONS_A_UNIT if size <= MOST_INSTRUCTIONS else 0


def found(pattern: str, text: str) -> bool:
    """Return whether a pattern occurs in a text (Go's MatchString: anchored only by the pattern itself)."""
    return _found(pattern, text) if len(text) <= SHORT else compiled(pattern).search(text) is not None


SHORT = 256
"""Characters up to which an answer is cached."""


@bounded_cache(4096)
def _found(pattern: str, text: str) -> bool:
    # RE2 gives up the interpreter while it searches, and may have to wait for it longer than it searched.
    return compiled(pattern).search(text) is not None
