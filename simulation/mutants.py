"""Faults to put into production code, each of which the rules have to find: proof that they can fail.

A mutant changes the text of one module as it is imported.
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


SURVIVING = frozenset({"former-leaders-write"})
"""Mutants that are not found: a former leader's write fails if its object has changed since, and a pod is bound once."""
MUTANTS = (
    Mutant(
        "informers-miss-deletions",
        "kube.informer",
        "self._remove(key_of(event.object), event.object)",
        "pass",
    ),
    Mutant(
        "failed-keys-are-not-retried",
        "kube.workqueue",
        "self.add_after(key, min(BASE_DELAY * 2 ** min(failures, 30), MAX_DELAY))",
        "pass",
    ),
    Mutant(
        "former-leaders-write",
        "kube.leases",
        'if method != "GET" and not self._elector.in_time:',
        "if False:",
    ),
    Mutant(
        "created-pods-are-never-observed",
        "control.controllers.expectations",
        "found.creations -= count",
        "found.since = self._clock.monotonic()",
    ),
    Mutant(
        "quotas-are-not-enforced",
        "control.admission.resource_quota",
        "used[key] + value > hard[key]",
        "False",
    ),
    Mutant(
        "the-watch-cache-loses-changes",
        "control.storage.resource_cache",
        "        if event.revision <= self.recent.floor:\n",
        "        if event.revision <= self.recent.floor or event.revision % 40 == 0:\n",
    ),
)


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


def install(name: str) -> None:
    """Change a module when it is imported, which it must not have been yet."""
    mutant = next(each for each in MUTANTS if each.name == name)
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} was imported before it could be changed")
    sys.meta_path.insert(0, _Finder(mutant))
