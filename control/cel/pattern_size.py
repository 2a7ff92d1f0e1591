"""An upper bound of the instructions of a compiled pattern, found without compiling it.

RE2 holds the interpreter's lock while it compiles, up to 1 µs an instruction, and a pattern of eight characters, `\\pL{400}`,
has half a million. The weights are those of `RE2.ProgramSize`.
"""

from __future__ import annotations

import re

from kube.bounded_cache import bounded_cache

MOST = 1 << 40
"""The largest count."""
_LITERAL, _FOLDED, _ESCAPED, _NEGATED, _NAMED = 2, 6, 8, 32, 16
_UNICODE, _UNICODE_MORE = 1210, 400
"""The largest Unicode class, and what each further one adds to a class that has one."""
_BEYOND, _BEYOND_FOLDED = 24, 80
"""A character or an end of a range beyond ASCII; folded: in a pattern with the flag `i`, which adds letters to a range."""
_TOKEN = re.compile(
    r"""
    (?P<unicode> \\[pP] (?: \{[^}]{0,64}\} | .)?)
  | \\Q (?P<quoted> .*?) (?: \\E | $)
  | (?P<beyond> \\x (?: \{[^}]{0,64}\} | .{0,2}) | \\[0-7]{1,3} | [^\x00-\x7f])
  | (?P<negated> \\[DWS] | \.)
  | (?P<escaped> \\.)
  | (?P<open> \( (?: \?P?<\w+> | \?[a-zA-Z-]*:?)?)
  | (?P<close> \))
  | (?P<class> \[ (?P<not> \^?) \]?)
  | (?P<repeat> [*+?] | \{ (?P<least> [0-9]{1,5}) (?P<comma> ,?) (?P<most> [0-9]{0,5}) \})
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = re.compile(
    r"""
    (?P<unicode> \\[pP] (?: \{[^}]{0,64}\} | .)?)
  | (?P<named> \[:\^?\w+:\] | \\[DWSdws])
  | (?P<beyond> \\x (?: \{[^}]{0,64}\} | .{0,2}) | [^\x00-\x7f])
  | (?P<end> \])
  | \\?.
    """,
    re.VERBOSE | re.DOTALL,
)


@bounded_cache(512, longest=8192)
def pattern_size(pattern: str) -> int:
    """Return how many instructions a pattern has at most, about; also for an incorrect one."""
    return _Scan(pattern).total()


class _Scan:
    """Walks through a pattern once: `_total` is the size of the group so far, `_last` that of what a repetition repeats."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        folded = "(?" in pattern and "i" in pattern
        self._beyond, self._literal = (_BEYOND_FOLDED, _FOLDED) if folded else (_BEYOND, _LITERAL)
        self._outer: list[int] = []
        self._total = self._last = 0

    def total(self) -> int:
        while self._at < len(self._pattern) and self._total + self._last < MOST:
            found = _TOKEN.match(self._pattern, self._at)
            self._at = self._at + 1 if found is None else found.end()
            if found is not None and found["repeat"]:
                self._repeat(found)
            else:
                self._total, self._last = self._total + self._last, 0
                self._last = self._literal if found is None else self._atom(found)
        return min(self._total + self._last + sum(self._outer) + 8, MOST)

    def _repeat(self, found: re.Match[str]) -> None:
        times = 1
        if found["least"]:
            times = max(int(found["least"]) + bool(found["comma"]), int(found["most"] or 0), 1)
        self._last = (self._last + 2) * times

    def _atom(self, found: re.Match[str]) -> int:
        """Return the size of what was found; a group's when it ends."""
        match found.lastgroup:
            case "unicode":
                return _UNICODE
            case "quoted":
                return self._literal * len(found["quoted"]) + self._beyond * (not found["quoted"].isascii())
            case "beyond":
                return self._beyond
            case "negated":
                return _NEGATED
            case "open":
                self._outer.append(self._total)
                self._total = 0
                return 2
            case "close":
                size, self._total = self._total + 2, self._outer.pop() if self._outer else 0
                return size
            case "class" | "not":
                return self._class() + _NEGATED
        return _ESCAPED

    def _class(self) -> int:
        size, more = _LITERAL, 0
        while found := _IN_CLASS.match(self._pattern, self._at):
            self._at = found.end()
            match found.lastgroup:
                case "end":
                    break
                case "unicode":
                    size, more = size + (more or _UNICODE), _UNICODE_MORE
                case "named":
                    size += _NAMED
                case "beyond":
                    size += self._beyond
                case _:
                    size += self._literal // 2
        return size
