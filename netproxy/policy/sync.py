"""Writes one family's policy table to the kernel: differences between rulesets, and repair of changes by others."""

from __future__ import annotations

from collections.abc import Iterable

from kube.clock import SYSTEM, Clock
from netproxy.errors import UnansweredError, WriteError
from netproxy.nftables import commands
from netproxy.nftables.chains import word
from netproxy.nftables.commands import Held
from netproxy.nftables.keeper import TableKeeper
from netproxy.nftables.writer import Writer
from netproxy.policy.base_chains import HOOKS
from netproxy.policy.ruleset import TABLE, Ruleset, flat


class PolicyShadow:
    """The ruleset that the kernel should hold."""

    def __init__(self, family: int) -> None:
        self.table = f"{word(family)} {TABLE}"
        self.current = Ruleset()

    @property
    def elements(self) -> Held:
        return dict(flat(self.current))

    def change(self, new: Ruleset) -> str:
        """Store a new ruleset; return the text for nft that changes the last one into it."""
        old, self.current = self.current, new
        sets, chains = _changed(old, new)
        declared, gone_sets = old.declarations, [each for each in sets if each not in new.declarations]
        lines = [
            self._declare(new.declarations[name]) for name in sets if name in new.declarations and name not in declared
        ]
        changed = {name: new.chains[name] for name in chains if name in new.chains}
        changed = {name: rules for name, rules in changed.items() if old.chains.get(name) != rules}
        lines += commands.write_chains(self.table, changed, HOOKS)
        before: Held = {}
        after: Held = {}
        for name in sets:
            gone, come = old.elements.get(name, {}), new.elements.get(name, {})
            if gone is not come and gone != come:
                before |= {(name, key): data for key, data in gone.items() if name in new.declarations}
                after |= {(name, key): data for key, data in come.items()}
        lines += commands.change_elements(self.table, before, after)
        lines += commands.delete_chains(self.table, [name for name in chains if name not in new.chains])
        lines += [f"delete set {self.table} {name}" for name in gone_sets]
        return "\n".join(lines) + "\n" if lines else ""

    def reconcile(self, held: Held, held_chains: Iterable[str], held_sets: Iterable[str]) -> str:
        """Return the text for nft that changes what the kernel holds into the ruleset. All chains are rewritten."""
        new, names = self.current, set(held_sets)
        lines = [f"add table {self.table}"]
        lines += [self._declare(text) for name, text in new.declarations.items() if name not in names]
        lines += commands.write_chains(self.table, new.chains, HOOKS)
        kept = {element: data for element, data in held.items() if element[0] in new.declarations}
        lines += commands.change_elements(self.table, kept, self.elements)
        lines += commands.delete_chains(self.table, [name for name in held_chains if name not in new.chains])
        lines += [f"delete set {self.table} {name}" for name in names if name not in new.declarations]
        return "\n".join(lines) + "\n"

    def _declare(self, text: str) -> str:
        return f"add {text.replace(' ', f' {self.table} ', 1)}"


def _changed(old: Ruleset, new: Ruleset) -> tuple[dict[str, None], dict[str, None]]:
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


class PolicyBackend:
    """One family's table."""

    def __init__(self, writer: Writer, family: int, *, clock: Clock = SYSTEM) -> None:
        self.family, self._writer = family, writer
        self._shadow = PolicyShadow(family)
        self._keeper = TableKeeper(writer, self._shadow, clock)
        self._there = False

    async def put(self, ruleset: Ruleset) -> None:
        """Write a ruleset. The first write compares it with what the kernel holds."""
        if not self._there:
            self._shadow.current = ruleset
            await self._keeper.take_over()
            self._there = True
            return
        await self._keeper.write(self._shadow.change(ruleset))

    async def refuses(self, ruleset: Ruleset) -> bool:
        """Return whether the kernel would refuse a table with this ruleset. UnansweredError where it does not say."""
        shadow = PolicyShadow(self.family)
        shadow.current = ruleset
        try:
            await self._writer.check(
                f"add table {shadow.table}\ndelete table {shadow.table}\n{shadow.reconcile({}, (), ())}"
            )
        except UnansweredError:
            raise
        except WriteError:
            return True
        return False

    def distrust(self) -> None:
        """Have the next `put` compare with what the kernel holds, after a write that failed."""
        self._there = False

    async def verify(self) -> bool:
        """Repair changes by others; return whether there were any."""
        return self._there and await self._keeper.verify()

    async def cleanup(self) -> None:
        """Remove the table: nobody is isolated."""
        self._there, self._shadow.current = False, Ruleset()
        await self._keeper.remove()
