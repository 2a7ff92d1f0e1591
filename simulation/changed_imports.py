"""Puts a fault into the code: changes the text of one module as it is imported.

The change is to the text, so constants, patterns and tables change as functions do.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    """A fault: `old` stands once in the module, and becomes `new`."""

    name: str
    module: str
    old: str
    new: str

    def changed(self, source: str) -> str:
        """Return the module's text with the fault. Raise ValueError if the module has changed."""
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.module} has {self.old!r} {source.count(self.old)} times: correct the mutant {self.name}"
            )
        return source.replace(self.old, self.new)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutant.changed(self.get_data(self.path).decode())
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            return None
        found.loader = _Loader(fullname, found.origin, self._mutant)
        return found


def install(mutant: Mutant) -> None:
    """Change a module when it is imported. Raise RuntimeError if it has been already."""
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} was imported before it could be changed")
    sys.meta_path.insert(0, _Finder(mutant))
