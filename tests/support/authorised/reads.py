"""Keys that a request's handlers read: of the watch cache and of the store, objects and folders.

A read is recorded with the module that needs it: the innermost one outside of the storage, the registry's reads and the lookups
of others.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from control.storage.resource_cache import ResourceCache

_BETWEEN = ("control.storage.", "control.registry.registry", "control.server.lookup", "control.custom.definitions")
_METHODS = ("get", "list", "indexed", "watch")


@dataclass(frozen=True)
class Read:
    """A key, or a folder of keys that ends in "/", and the module that read it."""

    key: str
    module: str


def reader() -> str:
    """Return the module that needs what is read now."""
    frame = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("control.") and not module.startswith(_BETWEEN):
            return module
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@contextlib.contextmanager
def reads_recorded(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note` with the key or folder of each read of a watch cache."""
    kept = [getattr(ResourceCache, name) for name in _METHODS]
    for name, method in zip(_METHODS, kept, strict=True):
        setattr(ResourceCache, name, _noted(method, note, folder_at=1 if name == "watch" else 0))
    try:
        yield
    finally:
        for name, method in zip(_METHODS, kept, strict=True):
            setattr(ResourceCache, name, method)


def _noted(method: Callable[..., Any], note: Callable[[str], None], folder_at: int) -> Callable[..., Any]:
    @functools.wraps(method)
    def noted(cache: ResourceCache, *arguments: Any, **named: Any) -> Any:
        key = arguments[folder_at] if len(arguments) > folder_at else named.get("prefix", "")
        note(key or cache.prefix)
        return method(cache, *arguments, **named)

    return noted
