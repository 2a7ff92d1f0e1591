"""A plugin of pytest that changes a module as it is imported: WHERRY_MUTANT names one of `tests.support.standing_mutants`.

The change is to the text of the module, so constants, patterns and tables change as functions do. Processes that a test starts
run the code as it is.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType

from tests.support.standing_mutants import STANDING, Standing


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutant: Standing) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutant.changed(self.get_data(self.path).decode())
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Standing) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None and found.origin is not None
        found.loader = _Loader(fullname, found.origin, self._mutant)
        return found


def _install(name: str) -> None:
    mutant = next(each for each in STANDING if each.name == name)
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} was imported before it could be changed")
    sys.meta_path.insert(0, _Finder(mutant))


if "WHERRY_MUTANT" in os.environ:
    _install(os.environ["WHERRY_MUTANT"])
