"""One changed line of the server's code at a time, in place while a test runs.

A function keeps its identity and gets other code, so that whoever holds it runs the change. A text that is not there exactly
once is an error: the mutant has to follow the code.
"""

from __future__ import annotations
import __future__

import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """`place` is "module:function" or "module:Class.method"; `forms` are the requests that it is looked for with.

    Of these, only those are sent whose path contains `path`.
    """

    name: str
    place: str
    old: str
    new: str
    forms: tuple[str, ...]
    path: str = ""


class Outdated(Exception):
    """The code that a mutant changes is not there any more."""


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the code with a mutant's change; raises Outdated."""
    found = _find(mutant.place)
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType)
    code = function.__code__
    function.__code__ = _changed(mutant, function).__code__
    _forget(found)
    try:
        yield
    finally:
        function.__code__ = code
        _forget(found)


def _find(place: str) -> Any:
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise Outdated(f"there is no {place}")
    return found


def _changed(mutant: Mutant, function: FunctionType) -> FunctionType:
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise Outdated(f"{mutant.name}: {mutant.place} has {source.count(mutant.old)} times {mutant.old!r}")
    changed = source.replace(mutant.old, mutant.new)
    names: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile(changed, mutant.place, "exec", flags, dont_inherit=True), dict(function.__globals__), names)
    made = inspect.unwrap(names[function.__name__])
    assert isinstance(made, FunctionType)
    return made


def _forget(found: Any) -> None:
    """Clear the cache of a function, or of one that it wraps."""
    clear = getattr(found, "cache_clear", None)
    if clear is not None:
        clear()
    for cell in getattr(found, "__closure__", None) or ():
        if callable(cell.cell_contents):
            _forget(cell.cell_contents)
