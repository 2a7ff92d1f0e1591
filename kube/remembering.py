"""Caches keyed by what clients send: bounded in their entries and in the length of each key.

A cache that is bounded by its entries alone is as large as its keys, and a client may send a megabyte for each. What is long
is computed anew: it is rare, and nobody's ordinary request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_clear: list[Callable[[], object]] = []
P = ParamSpec("P")
R = TypeVar("R")

LONGEST = 256
"""Characters of a key's text: more than the longest name of an object, and than the path of any ordinary request."""
LONGEST_USER = 2048
"""Characters of a user's name and groups together; some providers of identities give each user dozens of groups."""


def is_short(*texts: str, longest: int = LONGEST) -> bool:
    """Say whether these texts together may be a cache's key."""
    return sum(map(len, texts)) <= longest


def remembered(entries: int, longest: int = LONGEST) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache the results of a function for the latest arguments, those with a text longer than `longest` aside."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept: Callable[..., R] = functools.lru_cache(maxsize=entries)(function)

        @functools.wraps(function)
        def answer(*args: P.args, **kwargs: P.kwargs) -> R:
            for argument in args:
                if argument.__class__ is str and len(argument) > longest:
                    return function(*args, **kwargs)
            return kept(*args, **kwargs)

        answer.cache_info = kept.cache_info  # type: ignore[attr-defined]
        on_forget(kept.cache_clear)  # type: ignore[attr-defined]
        return answer

    return decorate


def on_forget(clear: Callable[[], object]) -> None:
    """Have a cache of this process, one for its whole life, cleared by `forget_all`."""
    _clear.append(clear)


def forget_all() -> None:
    """Clear the caches: after a load their entries are of no use, and each keeps memory around it from being given back."""
    for clear in _clear:
        clear()
