"""Caches keyed by what clients send: bounded in their entries and in the length of each key.

A cache that is bounded by its entries alone is as large as its keys, and a client may send a megabyte for each. What is long
is computed again: it is rare, and nobody's ordinary request.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LONGEST = 256
"""Characters of a key's text: more than the longest name of an object, and than the path of any ordinary request."""
LONGEST_USER = 2048
"""Characters of a user's name and groups together; some providers of identities give each user dozens of groups."""


def is_short(*texts: str, longest: int = LONGEST) -> bool:
    """Return whether these texts together may be a cache's key."""
    return sum(map(len, texts)) <= longest


class _Uncached(Exception):
    """Carries a result past a cache, which keeps none of a call that raises."""


def bounded_cache(entries: int, longest: int = LONGEST) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache the results of a function for the latest arguments, those with a text longer than `longest` aside."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.lru_cache(maxsize=entries)
        def kept(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            # Here, where most calls do not come: what is in the cache is short.
            for argument in (*args, *kwargs.values()):
                if argument.__class__ is str and len(argument) > longest:
                    raise _Uncached(result)
            return result

        @functools.wraps(function)
        def answer(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return kept(*args, **kwargs)  # type: ignore[arg-type]
            except _Uncached as uncached:
                result: R = uncached.args[0]
                return result

        answer.cache_info = kept.cache_info  # type: ignore[attr-defined]
        on_forget(kept.cache_clear)
        return answer

    return decorate


class _Registry:
    """Functions that clear caches. A method's object is held weakly, and dropped together with other dead ones."""

    LEAST = 64

    def __init__(self) -> None:
        self._clear: list[tuple[weakref.ref[Any] | None, Callable[..., object]]] = []
        self._most = self.LEAST

    def add(self, clear: Callable[[], object]) -> None:
        if len(self._clear) >= self._most:
            self._drop_dead()
        if inspect.ismethod(clear):
            self._clear.append((weakref.ref(clear.__self__), clear.__func__))
        else:
            self._clear.append((None, clear))

    def _drop_dead(self) -> None:
        self._clear = [(owner, clear) for owner, clear in self._clear if owner is None or owner() is not None]
        self._most = max(self.LEAST, 2 * len(self._clear))

    def clear_all(self) -> None:
        self._drop_dead()
        for owner, clear in self._clear:
            if owner is None:
                clear()
            elif (found := owner()) is not None:
                clear(found)


_registry = _Registry()


def on_forget(clear: Callable[[], object]) -> None:
    """Have a cache cleared by `forget_all`. An object whose method is given is not kept alive by that."""
    _registry.add(clear)


def forget_all() -> None:
    """Clear the caches: after a load their entries are of no use, and each keeps memory around it from being given back."""
    _registry.clear_all()
