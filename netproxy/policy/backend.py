"""Writes one family's policy table to the kernel: differences between rulesets, and repair of changes by others."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping

from kube.clock import SYSTEM, Clock
from netproxy import large_changes
from netproxy.errors import UnansweredError, WriteError
from netproxy.nft import commands
from netproxy.nft.commands import family_keyword
from netproxy.nft.reconciler import TableReconciler
from netproxy.nft.table import Contents, Elements
from netproxy.nft.writer import Writer
from netproxy.policy.base_chains import HOOKS
from netproxy.policy.element_set import different_parts
from netproxy.policy.ruleset import TABLE, Ruleset, flatten


class PolicyShadow:
    """The ruleset that the kernel should hold."""

    def __init__(self, family: int, current: Ruleset | None = None) -> None:
        self.table = f"{family_keyword(family)} {TABLE}"
        self.current = Ruleset() if current is None else current

    hooks = HOOKS

    @property
    def size(self) -> int:
        return sum(map(len, self.current.elements.values()))

    @property
    def declarations(self) -> Mapping[str, str]:
        return self.current.declarations

    @property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        return self.current.chains

    @property
    def elements(self) -> Elements:
        return dict(flatten(self.current))

    def difference(self, new: Ruleset, changed_parts: ChangedParts) -> str:
        """Return the text for nft that changes the ruleset into a new one."""
        old, (sets, chains) = self.current, changed_parts
        declared, gone_sets = old.declarations, [each for each in sets if each not in new.declarations]
        lines = [
            commands.declare(self.table, new.declarations[name])
            for name in sets
            if name in new.declarations and name not in declared
        ]
        changed = {name: new.chains[name] for name in chains if name in new.chains}
        changed = {name: rules for name, rules in changed.items() if old.chains.get(name) != rules}
        lines += commands.write_chains(self.table, changed, HOOKS)
        before: Elements = {}
        after: Elements = {}
        for name, gone, come in _different_elements(old, new, sets):
            if name in new.declarations:
                before |= {(name, key): data for key, data in gone.items() if come.get(key) != data}
            after |= {(name, key): data for key, data in come.items() if gone.get(key) != data}
        lines += commands.change_elements(self.table, before, after)
        lines += commands.delete_chains(self.table, [name for name in chains if name not in new.chains])
        lines += [f"delete set {self.table} {name}" for name in gone_sets]
        return "\n".join(lines) + "\n" if lines else ""


ChangedParts = tuple[dict[str, None], dict[str, None]]


def _changed(old: Ruleset, new: Ruleset) -> ChangedParts:
    """Return the sets and the chains of the parts that changed."""
    sets: dict[str, None] = {}
    chains: dict[str, None] = {}
    for key in {**old.parts, **new.parts}:
        was, now = old.parts.get(key), new.parts.get(key)
        if was is not now:
            for part in filter(None, (was, now)):
                sets.update(dict.fromkeys(part.declarations))
                chains.update(dict.fromkeys(part.chains))
    return sets, chains


def _different_elements(
    old: Ruleset, new: Ruleset, sets: Iterable[str]
) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """Yield the parts of the elements of some sets outside which nothing differs, with the names of the sets."""
    for name in sets:
        for gone, come in different_parts(old.elements.get(name, {}), new.elements.get(name, {})):
            yield name, gone, come


def _size(old: Ruleset, new: Ruleset, sets: Iterable[str]) -> int:
    """Return how many elements are compared, or any number above `LARGE` if they are as many."""
    size = 0
    for _, gone, come in _different_elements(old, new, sets):
        size += len(gone) + len(come)
        if size > large_changes.LARGE:
            break
    return size


class PolicyBackend(TableReconciler):
    """One family's table."""

    def __init__(self, writer: Writer, family: int, *, clock: Clock = SYSTEM) -> None:
        self._shadow = PolicyShadow(family)
        super().__init__(writer, self._shadow, clock)
        self._needs_comparison = True

    async def put(self, ruleset: Ruleset) -> None:
        """Write a ruleset. The first write compares it with what the kernel holds."""
        text = "" if self._needs_comparison else await self._difference(ruleset)
        self._shadow.current = ruleset
        await self.write(text)

    async def _difference(self, new: Ruleset) -> str:
        shadow = copy.copy(self._shadow)
        changed = _changed(shadow.current, new)
        size = _size(shadow.current, new, changed[0])
        return await large_changes.compute_sized(size, lambda: shadow.difference(new, changed))

    async def refuses(self, ruleset: Ruleset) -> bool:
        """Return whether the kernel would refuse a table with this ruleset. Raises UnansweredError if it does not answer."""
        shadow = PolicyShadow(self.family, ruleset)
        text = await self._compute(lambda: commands.reconcile(shadow, Contents()), Contents())
        try:
            await self._writer.check(f"add table {shadow.table}\ndelete table {shadow.table}\n{text}")
        except UnansweredError:
            raise
        except WriteError:
            return True
        return False

    def require_comparison(self) -> None:
        """Make the next `put` compare with what the kernel holds, after a write that failed."""
        self._needs_comparison = True

    async def verify(self) -> bool:
        """Repair what others changed, unless the last write failed; return whether anything had to be repaired."""
        return not self._needs_comparison and await super().verify()

    async def cleanup(self) -> None:
        """Remove the table; no pod is isolated then."""
        self._needs_comparison, self._shadow.current = True, Ruleset()
        self._drift.wanted_changed()
        try:
            await super().cleanup()
        finally:
            self._needs_comparison = True  # a repair that was under way has cleared it
