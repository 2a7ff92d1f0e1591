"""Matches a part of a registry's host to a pattern, by the rules of Go's filepath.Match, which upstream uses for credentials.

`*` matches any characters, `?` one, `[a-c]` one of a set, `[^a-c]` one of the others, and `\\` escapes the next
character. A malformed pattern matches nothing. Patterns come from pull secrets of any user. They are not compiled, so
they are not cached (`fnmatch` caches 32 768 compiled patterns), and the time grows at most with the product of both
lengths, because only the last `*` backtracks.
"""

from __future__ import annotations

LONGEST = 63
"""Characters of a part that a pattern can match, which is the limit of a DNS label."""
_SPECIAL = frozenset("*?[\\")


def matches(part: str, pattern: str) -> bool:
    """Return whether a whole part of a host matches a pattern."""
    if _SPECIAL.isdisjoint(pattern):
        return part == pattern
    elements = _elements(pattern) if len(part) <= LONGEST else None
    if elements is None:
        return False
    at = position = 0
    star = resume = -1
    while at < len(part):
        element = elements[position] if position < len(elements) else None
        if isinstance(element, _Star):
            star, resume, position = position, at, position + 1
        elif element is not None and element.has(part[at]):
            at, position = at + 1, position + 1
        elif star >= 0:
            resume += 1
            at, position = resume, star + 1
        else:
            return False
    return all(isinstance(element, _Star) for element in elements[position:])


class _Set:
    """One character: an ordinary one, any, or one of ranges."""

    __slots__ = ("_negated", "_ranges")

    def __init__(self, ranges: list[tuple[str, str]], *, negated: bool = False) -> None:
        self._ranges, self._negated = ranges, negated

    def has(self, character: str) -> bool:
        """Return whether the set has a character."""
        return any(low <= character <= high for low, high in self._ranges) != self._negated


class _Star:
    """Any number of characters."""

    __slots__ = ()


_ANY, _STAR = _Set([], negated=True), _Star()


def _elements(pattern: str) -> list[_Set | _Star] | None:
    """Parse a pattern; None if it is malformed."""
    found: list[_Set | _Star] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "*":
            if not found or found[-1] is not _STAR:
                found.append(_STAR)
            at += 1
        elif character == "?":
            found.append(_ANY)
            at += 1
        elif character == "[":
            read = _set(pattern, at + 1)
            if read is None:
                return None
            one, at = read
            found.append(one)
        else:
            plain = _character(pattern, at)
            if plain is None:
                return None
            character, at = plain
            found.append(_Set([(character, character)]))
    return found


def _set(pattern: str, at: int) -> tuple[_Set, int] | None:
    """Parse a set behind its bracket; return it and the position after it."""
    negated = pattern.startswith("^", at)
    at += negated
    ranges: list[tuple[str, str]] = []
    while not (pattern.startswith("]", at) and ranges):
        if pattern.startswith(("-", "]"), at) or (first := _character(pattern, at)) is None:
            return None
        low, at = first
        high = low
        if pattern.startswith("-", at):
            if pattern.startswith(("-", "]"), at + 1) or (second := _character(pattern, at + 1)) is None:
                return None
            high, at = second
        ranges.append((low, high))
    return _Set(ranges, negated=negated), at + 1


def _character(pattern: str, at: int) -> tuple[str, int] | None:
    """Read a character, which a backslash may precede; return it and the position after it."""
    at += pattern.startswith("\\", at)
    return (pattern[at], at + 1) if at < len(pattern) else None
