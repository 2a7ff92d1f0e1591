"""What our table should hold, and the text for `nft -f` that leads from one state to the next. No I/O.

Everything in one text is one transaction. Elements are compared one by one with what the kernel holds; chains are few
(none a Service, but for session affinity), so where they must be set right they are all written again in the same
transaction, which no packet can see.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from netproxy.iptables.settings import RuleSettings
from netproxy.iptables.static import StaticSettings
from netproxy.nftables import chains, commands
from netproxy.nftables.commands import Element, Held
from netproxy.nftables.elements import Fragment

V = TypeVar("V")


class Shadow:
    """The desired state: fixed chains, shared chains by use, and a fragment a Service."""

    def __init__(self, settings: StaticSettings, rules: RuleSettings) -> None:
        self.settings, self.rules = settings, rules
        self.elements: Held = {}
        self._also: defaultdict[Element, list[str]] = defaultdict(list)
        """Further claims to an element that has one: hairpin pairs of shared pods, external addresses given twice."""
        self._fragments: dict[str, Fragment] = {}
        self._shared: Counter[str] = Counter()

    @property
    def table(self) -> str:
        return f"{chains.word(self.settings.family)} {chains.TABLE}"

    def put(self, key: str, new: Fragment) -> None:
        """Take in a Service's state; one that is empty forgets the Service."""
        old = self._fragments.pop(key, None)
        if old is not None:
            self._shared.subtract(old.shared)
            for element, data in old.elements.items():
                self._release(element, data)
        if new:
            self._fragments[key] = new
            self._shared.update(new.shared)
            for element, data in new.elements.items():
                if element in self.elements:
                    self._also[element].append(data)
                else:
                    self.elements[element] = data

    def _release(self, element: Element, data: str) -> None:
        others = self._also.get(element)
        if not others:
            del self.elements[element]
            return
        if data in others:
            others.remove(data)
        else:
            self.elements[element] = others.pop(0)
        if not others:
            del self._also[element]

    def _shared_now(self) -> set[str]:
        return {name for name, count in self._shared.items() if count > 0}

    # -- deltas ---------------------------------------------------------------------------------------------------
    def delta(self, changes: Mapping[str, Fragment]) -> str:
        """Take in the new state of each Service named and return the text that brings the kernel along."""
        olds = {key: self._fragments.get(key) or Fragment() for key in changes}
        touched = {element for each in (*olds.values(), *changes.values()) for element in each.elements}
        before = {element: self.elements[element] for element in touched if element in self.elements}
        shared_before = self._shared_now()
        for key, new in changes.items():
            self.put(key, new)
        after = {element: self.elements[element] for element in touched if element in self.elements}
        shared = self._shared_now()

        old_chains, new_chains = (
            _merge(each.own_chains for each in olds.values()),
            _merge(each.own_chains for each in changes.values()),
        )
        old_sets, new_sets = (
            _merge(each.own_sets for each in olds.values()),
            _merge(each.own_sets for each in changes.values()),
        )
        lines = [
            f"add set {self.table} {name} {{ {new_sets[name]} }}"
            for name in new_sets
            if old_sets.get(name) != new_sets[name]
        ]
        lines += commands.write_chains(
            self.table,
            {name: chains.shared_rules(name, self.rules) for name in sorted(shared - shared_before)}
            | {name: rules for name, rules in new_chains.items() if old_chains.get(name) != rules},
            chains.HOOKS,
        )
        lines += commands.change_elements(self.table, before, after)
        lines += commands.delete_chains(
            self.table, [*(name for name in old_chains if name not in new_chains), *sorted(shared_before - shared)]
        )
        lines += [f"delete set {self.table} {name}" for name in old_sets if name not in new_sets]
        return "\n".join(lines) + "\n" if lines else ""

    def change_settings(self, settings: StaticSettings) -> str:
        """Take in new settings and return the text for the chains that change."""
        before, self.settings = chains.fixed(self.settings, self.rules), settings
        after = chains.fixed(settings, self.rules)
        changed = {name: rules for name, rules in after.items() if before.get(name) != rules}
        lines = commands.write_chains(self.table, changed, chains.HOOKS)
        return "\n".join(lines) + "\n" if lines else ""

    # -- the whole ------------------------------------------------------------------------------------------------
    def reconcile(self, held: Held, held_chains: Iterable[str], held_sets: Iterable[str]) -> str:
        """Return the text that turns what the kernel holds into what it should hold, chains written anew."""
        wanted_chains = chains.fixed(self.settings, self.rules)
        wanted_chains |= {name: chains.shared_rules(name, self.rules) for name in sorted(self._shared_now())}
        wanted_chains |= _merge(each.own_chains for each in self._fragments.values())
        own_sets = _merge(each.own_sets for each in self._fragments.values())
        declared = chains.declarations(self.settings.family)
        lines = [f"add table {self.table}"]
        # Declaring a map again that is there is an error to nft 1.0.6 where its key comes from several protocols.
        held_names = set(held_sets)
        missing = [text for name, text in declared.items() if name not in held_names]
        lines += [f"add {text.replace(' ', f' {self.table} ', 1)}" for text in missing]
        lines += [
            f"add set {self.table} {name} {{ {text} }}" for name, text in own_sets.items() if name not in held_names
        ]
        lines += commands.write_chains(self.table, wanted_chains, chains.HOOKS)
        lines += commands.change_elements(self.table, held, self.elements)
        lines += commands.delete_chains(self.table, [name for name in held_chains if name not in wanted_chains])
        lines += [
            f"delete set {self.table} {name}" for name in held_names if name not in own_sets and name not in declared
        ]
        return "\n".join(lines) + "\n"

    def chain_names(self) -> set[str]:
        """Return every chain that should exist."""
        own = _merge(each.own_chains for each in self._fragments.values())
        return {*chains.fixed(self.settings, self.rules), *self._shared_now(), *own}


def _merge(parts: Iterable[Mapping[str, V]]) -> dict[str, V]:
    return {name: value for part in parts for name, value in part.items()}
