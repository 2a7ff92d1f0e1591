"""Desired state of the table `kube-proxy`, and the text for `nft -f` for each change. No I/O.

Everything in one text is one transaction. Elements are compared one by one with what the kernel holds; chains are few
(none a Service, but for session affinity), so where they must be set right they are all written again in the same
transaction, which no packet can see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from netproxy.nft import commands
from netproxy.nft.commands import family_keyword
from netproxy.nft.table import Element, Elements
from netproxy.nftables import chains
from netproxy.nftables.elements import Fragment
from netproxy.settings import FixedChainSettings, RuleSettings

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Claims:
    """States of some Services, and the elements that they or their other states name, as all Services then claim them."""

    fragments: Mapping[str, Fragment]
    elements: Elements
    none: list[Element]
    """Elements without an owner."""
    also: dict[Element, list[str]]
    """Further claims to elements that have one, or may have had some."""
    shared: Counter[str]
    """Uses of shared chains and sets, of all Services."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A change of Services: the shadow can store either side."""

    old: Claims
    new: Claims


class Shadow:
    """The desired state: fixed chains, shared chains and sets by use, and a fragment a Service."""

    def __init__(self, settings: FixedChainSettings, rules: RuleSettings) -> None:
        self.settings, self.rules, self.hooks = settings, rules, chains.HOOKS
        self.elements: Elements = {}
        self._also: dict[Element, list[str]] = {}
        """Further claims to an element that has one: hairpin pairs of shared pods, external addresses given twice."""
        self._fragments: dict[str, Fragment] = {}
        self._shared: Counter[str] = Counter()

    def __copy__(self) -> Shadow:
        made = Shadow(self.settings, self.rules)
        made.elements, made._also = dict(self.elements), dict(self._also)
        made._fragments, made._shared = dict(self._fragments), Counter(self._shared)
        return made

    @property
    def size(self) -> int:
        return len(self.elements)

    @property
    def table(self) -> str:
        return f"{family_keyword(self.settings.family)} {chains.TABLE}"

    def size_of(self, keys: Iterable[str]) -> int:
        """Return how many elements some Services have."""
        return sum(len(self._fragments[key].elements) for key in keys if key in self._fragments)

    def _claims(self, element: Element) -> list[str]:
        """Return the data that Services claim for an element, that in force first."""
        return [self.elements[element], *self._also.get(element, ())] if element in self.elements else []

    # -- deltas ---------------------------------------------------------------------------------------------------
    def difference(self, changes: Mapping[str, Fragment]) -> Difference:
        """Return what new states of Services change; a state that is empty forgets its Service.

        It changes nothing here: a thread may call it.
        """
        olds = {key: self._fragments.get(key) or Fragment() for key in changes}
        gone = {key: _without(old.elements, changes[key].elements) for key, old in olds.items()}
        come = {key: _without(new.elements, olds[key].elements) for key, new in changes.items()}
        touched = {element: None for each in (*gone.values(), *come.values()) for element in each}
        before = {element: self._claims(element) for element in touched}
        after = {element: list(claims) for element, claims in before.items()}
        shared = Counter(self._shared)
        for key, new in changes.items():
            shared.subtract(olds[key].shared)
            for element, data in gone[key].items():
                claims = after[element]
                # The one in force stays in force as long as another claims the same.
                claims.pop(claims.index(data, 1) if data in claims[1:] else 0)
            shared.update(new.shared if new else ())
            for element, data in come[key].items():
                after[element].append(data)
        many = [element for element in touched if len(before[element]) > 1 or len(after[element]) > 1]

        def side(fragments: Mapping[str, Fragment], found: Mapping[Element, list[str]], uses: Counter[str]) -> Claims:
            return Claims(
                fragments,
                {element: claims[0] for element, claims in found.items() if claims},
                [element for element, claims in found.items() if not claims],
                {element: found[element][1:] for element in many},
                uses,
            )

        return Difference(side(olds, before, self._shared), side(changes, after, +shared))

    def store(self, claims: Claims) -> None:
        """Store one side of a difference, without writing anything."""
        for key, fragment in claims.fragments.items():
            self._fragments.pop(key, None)
            if fragment:
                self._fragments[key] = fragment
        self._shared = claims.shared
        self.elements.update(claims.elements)
        for element in claims.none:
            self.elements.pop(element, None)
        for element, also in claims.also.items():
            if also:
                self._also[element] = also
            else:
                self._also.pop(element, None)

    def text(self, difference: Difference) -> str:
        """Return the text that brings the kernel along with a difference. It changes nothing here either."""
        old, new = difference.old, difference.new
        old_shared, shared = set(old.shared), set(new.shared)
        come, gone = _divide(shared - old_shared), _divide(old_shared - shared)
        old_chains = _merge(each.own_chains for each in old.fragments.values())
        new_chains = _merge(each.own_chains for each in new.fragments.values())
        old_sets = _merge(each.own_sets for each in old.fragments.values())
        new_sets = _merge(each.own_sets for each in new.fragments.values())
        lines = [
            f"add set {self.table} {name} {{ {new_sets[name]} }}"
            for name in new_sets
            if old_sets.get(name) != new_sets[name]
        ]
        lines += [f"add set {self.table} {name} {{ {self._shared_set(name)} }}" for name in come.sets]
        lines += commands.write_chains(
            self.table,
            {name: chains.shared_rules(name, self.rules) for name in come.chains}
            | {name: rules for name, rules in new_chains.items() if old_chains.get(name) != rules},
            chains.HOOKS,
        )
        lines += commands.change_elements(self.table, old.elements, new.elements)
        lines += commands.delete_chains(
            self.table, [*(name for name in old_chains if name not in new_chains), *gone.chains]
        )
        gone_sets = [*(name for name in old_sets if name not in new_sets), *gone.sets]
        lines += [f"delete set {self.table} {name}" for name in gone_sets]
        return "\n".join(lines) + "\n" if lines else ""

    def change_settings(self, settings: FixedChainSettings) -> str:
        """Store new settings and return the text for the chains that change."""
        before, self.settings = chains.fixed(self.settings, self.rules), settings
        after = chains.fixed(settings, self.rules)
        changed = {name: rules for name, rules in after.items() if before.get(name) != rules}
        lines = commands.write_chains(self.table, changed, chains.HOOKS)
        return "\n".join(lines) + "\n" if lines else ""

    # -- the whole ------------------------------------------------------------------------------------------------
    @property
    def declarations(self) -> dict[str, str]:
        own = _merge(each.own_sets for each in self._fragments.values())
        own |= {name: self._shared_set(name) for name in _divide(self._shared).sets}
        declared = chains.declarations(self.settings.family)
        return declared | {name: f"set {name} {{ {text} }}" for name, text in own.items()}

    def _shared_set(self, name: str) -> str:
        return chains.shared_set(name, self.settings.family)

    @property
    def chains(self) -> dict[str, tuple[str, ...]]:
        wanted = chains.fixed(self.settings, self.rules)
        wanted |= {name: chains.shared_rules(name, self.rules) for name in _divide(self._shared).chains}
        return wanted | _merge(each.own_chains for each in self._fragments.values())


class _Shared(NamedTuple):
    chains: list[str]
    sets: list[str]


def _divide(names: Iterable[str]) -> _Shared:
    """Return which of the names are of chains and of sets."""
    shared = _Shared([], [])
    for name in sorted(names):
        (shared.sets if chains.is_set(name) else shared.chains).append(name)
    return shared


def _without(elements: Elements, others: Elements) -> Elements:
    """Return the elements that others lack, or have with other data: a Service keeps its claims to those that stay."""
    return {element: data for element, data in elements.items() if others.get(element) != data}


def _merge(parts: Iterable[Mapping[str, V]]) -> dict[str, V]:
    return {name: value for part in parts for name, value in part.items()}
