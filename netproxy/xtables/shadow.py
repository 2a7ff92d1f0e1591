"""Desired state of our chains, and the text for iptables-restore for each change.

A delta names only what changed: a chain of a port's own is flushed and refilled in the same transaction, an entry in a
shared chain is inserted or deleted by itself. iptables-restore takes each table in one transaction, so there is no
moment with half of a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from netproxy.settings import FixedChainSettings
from netproxy.xtables import chain_names
from netproxy.xtables.iptables_chains import IPTABLES
from netproxy.xtables.layout import Jump, Layout
from netproxy.xtables.layouts import LAYOUTS, known_chains
from netproxy.xtables.matches import Chain
from netproxy.xtables.restore_text import Batches, Tables

MANY_DELETED = 100
"""Rules of a shared chain from which on it is written again: iptables-nft searches the chain for each that it deletes, so that
5 000 of 5 000 take 40 s, and to write them again half a second."""


@dataclass(slots=True)
class Fragment:
    """The rules of some service ports: chains of their own, and entries in shared chains."""

    chains: dict[Chain, tuple[str, ...]] = field(default_factory=dict)
    entries: dict[tuple[str, str, str], None] = field(default_factory=dict)
    """(table, chain, rule) in order; a dict for its ordered uniqueness."""

    def add_entry(self, table: str, chain: str, rule: str) -> None:
        self.entries[table, chain, rule] = None


class Shadow:
    """The desired state: fixed chains, and a fragment a Service."""

    def __init__(self, settings: FixedChainSettings, layout: Layout = IPTABLES) -> None:
        self.settings, self._layout = settings, layout
        self._fragments: dict[str, Fragment] = {}
        self.rule_counts: Counter[str] = Counter()
        """Rules of Services by table; the fixed chains' few are not counted."""

    def __copy__(self) -> Shadow:
        made = Shadow(self.settings, self._layout)
        made._fragments, made.rule_counts = dict(self._fragments), Counter(self.rule_counts)
        return made

    def put(self, key: str, fragment: Fragment) -> None:
        """Store a Service's rules without writing them; a fragment without rules removes the Service."""
        old = self._fragments.pop(key, None)
        if old is not None:
            self.rule_counts.subtract(_count(old))
        if fragment.chains or fragment.entries:
            self._fragments[key] = fragment
            self.rule_counts.update(_count(fragment))

    def fragment(self, key: str) -> Fragment:
        """Return a Service's rules as last stored."""
        return self._fragments.get(key) or Fragment()

    # -- deltas ---------------------------------------------------------------------------------------------------
    def difference(self, changes: Mapping[str, Fragment]) -> str:
        """Return the text that brings the kernel to the new fragment of each Service named; empty where none changes.

        It changes nothing here: a thread may call it.
        """
        batches = Batches()
        gone: dict[Chain, None] = {}
        fresh: dict[Chain, tuple[str, ...]] = {}
        removed: dict[tuple[str, str, str], None] = {}
        added: dict[tuple[str, str, str], None] = {}
        for key, new in changes.items():
            old = self.fragment(key)
            for chain, rules in new.chains.items():
                if old.chains.get(chain) != rules:
                    fresh[chain] = rules
            gone.update(dict.fromkeys(chain for chain in old.chains if chain not in new.chains))
            removed.update(dict.fromkeys(entry for entry in old.entries if entry not in new.entries))
            added.update(dict.fromkeys(entry for entry in new.entries if entry not in old.entries))
        for chain, rules in fresh.items():
            batches.rewrite(chain, rules)
        for chain in gone:
            if chain not in fresh:
                batches.drop(chain)
        counts = Counter((table, name) for table, name, _ in removed)
        many = {chain for chain, count in counts.items() if count > MANY_DELETED}
        anew = self._shared(many, {**self._fragments, **changes}.values()) if many else {}
        for chain, rules in anew.items():
            batches.rewrite(chain, rules)
        for table, name, rule in removed:
            if (table, name) not in anew:
                batches[table].delete.append(f"-D {name} {rule}")
        for table, name, rule in added:
            if (table, name) not in anew:
                batches[table].insert.append(f"-I {name} 1 {rule}")
        return batches.render()

    def change_settings(self, settings: FixedChainSettings) -> str | None:
        """Store new settings and return the text for the fixed chains that change; None if shared ones do."""
        before, self.settings = self.settings, settings
        if self._layout.tail(before) != self._layout.tail(settings):
            return None
        batches, old = Batches(), self._layout.fixed(before)
        for chain, rules in self._layout.fixed(settings).items():
            if old.get(chain) != rules:
                batches.rewrite(chain, rules)
        return batches.render()

    # -- the whole ------------------------------------------------------------------------------------------------
    def desired(self) -> dict[Chain, tuple[str, ...]]:
        """Return every chain of ours with its rules."""
        chains = dict(self._layout.fixed(self.settings))
        for each in self._fragments.values():
            chains.update(each.chains)
        return chains | self._shared(self._layout.shared, self._fragments.values())

    def _shared(self, chains: Collection[Chain], fragments: Iterable[Fragment]) -> dict[Chain, tuple[str, ...]]:
        """Return some of the chains that Services share, with their rules."""
        shared: dict[Chain, list[str]] = {chain: [] for chain in chains}
        for each in fragments:
            for table, name, rule in each.entries:
                if (table, name) in shared:
                    shared[table, name].append(rule)
        last = self._layout.tail(self.settings)
        return {chain: (*dict.fromkeys(rules), *last.get(chain, ())) for chain, rules in shared.items()}

    def reconcile(self, actual: Tables) -> str:
        """Return the text that turns what the kernel holds into what it should hold; empty where it does already.

        Only chains of ours and our jumps in the kernel's chains are touched. Chains of the per-port kind that belong
        to no Service (left by an earlier process, or by another kube-proxy) and another mode's are removed.
        """
        batches = Batches()
        desired = self.desired()
        last = self._layout.tail(self.settings)
        for chain, rules in desired.items():
            table, name = chain
            present = actual.get(table, {}).get(name)
            if present is None:
                batches.rewrite(chain, rules)
            elif chain in self._layout.shared:
                self._reconcile_shared(batches, chain, rules, present, last.get(chain, ()))
            elif tuple(present) != rules:
                batches.rewrite(chain, rules)
        known = known_chains()
        gone = {
            (table, name)
            for table, held_chains in actual.items()
            for name in held_chains
            if (chain_names.is_per_port(name) or (table, name) in known) and (table, name) not in desired
        }
        for chain in gone:
            batches.drop(chain)
        for table, held_chains in actual.items():
            for name, held_rules in held_chains.items():
                if (table, name) not in desired and (table, name) not in gone:
                    batches[table].delete += [
                        f"-D {name} {rule}" for rule in held_rules if (table, _target(rule)) in gone
                    ]
        wanted = self._layout.jumps(self.settings.family)
        others = {jump for layout in LAYOUTS for jump in layout.jumps(self.settings.family)} - {*wanted}
        for jump in others:
            if (jump.table, jump.target) not in gone:  # those into chains that go are deleted already
                present = actual.get(jump.table, {}).get(jump.chain, [])
                batches[jump.table].delete += [f"-D {jump.chain} {jump.rule}"] * present.count(jump.rule)
        self._reconcile_jumps(batches, wanted, actual)
        return batches.render()

    @staticmethod
    def _reconcile_jumps(batches: Batches, wanted: list[Jump], actual: Tables) -> None:
        """Put our jumps back where one is missing, or they do not follow each other as they must: all of a chain's.

        The canonical text counts; another program's jump to the same chain, however written, is left alone.
        """
        by_chain: dict[Chain, list[str]] = {}
        for jump in wanted:
            by_chain.setdefault((jump.table, jump.chain), []).append(jump.rule)
        for (table, chain), rules in by_chain.items():
            present = [rule for rule in actual.get(table, {}).get(chain, []) if rule in rules]
            if present != rules[::-1]:
                batches[table].delete += [f"-D {chain} {rule}" for rule in present]
                batches[table].insert += [f"-I {chain} 1 {rule}" for rule in rules]

    def _reconcile_shared(
        self, batches: Batches, chain: Chain, rules: tuple[str, ...], present: list[str], last: tuple[str, ...]
    ) -> None:
        table, name = chain
        ends_right = not last or tuple(present[-len(last) :]) == last
        if not ends_right or len(set(present)) != len(present):
            batches.rewrite(chain, rules)
            return
        wanted, there = set(rules), set(present)
        if len(wanted ^ there) > 100 and len(wanted ^ there) * 4 > len(present):
            batches.rewrite(chain, rules)  # deleting one by one searches the chain each time
            return
        batches[table].delete += [f"-D {name} {rule}" for rule in present if rule not in wanted]
        batches[table].insert += [f"-I {name} 1 {rule}" for rule in rules if rule not in there]


def _count(fragment: Fragment) -> Counter[str]:
    counts = Counter(table for table, _, _ in fragment.entries)
    for (table, _), rules in fragment.chains.items():
        counts[table] += len(rules)
    return counts


def _target(rule: str) -> str:
    """Return the chain that a rule ends in a jump to, or ""."""
    words = rule.split()
    return words[-1] if words[-2:-1] == ["-j"] else ""


def cleanup_text(actual: Tables) -> str:
    """Return the text that removes everything of ours, of every mode, from what the kernel holds."""
    batches = Batches()
    ours = known_chains()
    targets = {name for _, name in ours}
    for table, chains in actual.items():
        for name, rules in chains.items():
            if (table, name) in ours or chain_names.is_per_port(name):
                batches.drop((table, name))
                continue
            for rule in rules:
                if _target(rule) in targets or chain_names.is_per_port(_target(rule)):
                    batches[table].delete.append(f"-D {name} {rule}")
    return batches.render()
