"""Elements that the members of a selection give to sets of nftables, updated by the members that change. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from netproxy.policy.element_set import ElementSet
from netproxy.policy.pod_facts import PodFacts

REBUILT = 16
"""Sets are recreated if more than one of this many members changed: a new tree takes less than as many changed copies."""
ElementKind = tuple[str, str]
"""The name and protocol of a port: pairs of an address and this port."""
ADDRESSES: ElementKind = ("", "")
"""The kind of plain addresses."""


class MemberElements:
    """The elements of one family, by kind. Changes are stored and are applied when sets are needed."""

    def __init__(self, family: int) -> None:
        self._family = family
        self._sets: dict[ElementKind, ElementSet] = {}
        self._repeated: dict[ElementKind, Counter[str]] = {}
        """Further times that elements occur: two pods may have an address."""
        self._changes: list[tuple[PodFacts | None, PodFacts | None]] | None = []
        """Members as they were and are, since the sets were made; None if these must be made of all."""

    def change(self, old: PodFacts | None, new: PodFacts | None, members: int) -> None:
        """Store a change of a member, None where it is none; `members` is their number."""
        if self._changes is None or (old and new and (old.ips, old.ports) == (new.ips, new.ports)):
            return
        self._changes.append((old, new))
        if len(self._changes) * REBUILT > members + REBUILT * REBUILT:
            self._changes = None

    def cost(self, kinds: Iterable[ElementKind], members: int) -> int:
        """Return how many members `current` reads, at least."""
        missing = self._changes is None or any(kind not in self._sets for kind in kinds)
        return members if missing else len(self._changes or ())

    def current(self, kinds: Iterable[ElementKind], members: Collection[PodFacts]) -> Mapping[ElementKind, ElementSet]:
        """Return sets for what the members are now; each is the same object as long as no element of it changes."""
        if self._changes is None:
            kinds = {**self._sets, **dict.fromkeys(kinds)}
            self._sets = {}
        for old, new in self._changes or ():
            self._apply(old, new)
        self._changes = []
        if missing := [kind for kind in kinds if kind not in self._sets]:
            self._make(missing, members)
        return self._sets

    def forget(self, kind: ElementKind) -> bool:
        """Keep a kind no longer; return whether any is left."""
        self._sets.pop(kind, None)
        return bool(self._sets)

    def _make(self, kinds: Collection[ElementKind], members: Collection[PodFacts]) -> None:
        found: dict[ElementKind, list[str]] = {kind: [] for kind in kinds}
        if ADDRESSES in found:
            found[ADDRESSES] = [ip for pod in members for ip in pod.addresses(self._family)]
        for pod in members if len(found) > (ADDRESSES in found) else ():
            for kind, element in self._named(pod, found):
                found[kind].append(element)
        for kind, elements in found.items():
            held = dict.fromkeys(elements, "")
            self._sets[kind] = ElementSet(held)
            self._repeated[kind] = Counter(elements) - Counter(held.keys()) if len(held) < len(elements) else Counter()

    def _named(self, pod: PodFacts, kinds: Container[ElementKind]) -> Iterator[tuple[ElementKind, str]]:
        for port in pod.ports:
            kind = port.name, port.protocol
            if kind in kinds:
                for ip in pod.addresses(self._family):
                    yield kind, f"{ip} . {port.number}"

    def _all(self, pod: PodFacts | None) -> Iterator[tuple[ElementKind, str]]:
        """Yield the elements of a pod, of the kinds that are kept."""
        if pod is not None:
            if ADDRESSES in self._sets:
                for ip in pod.addresses(self._family):
                    yield ADDRESSES, ip
            yield from self._named(pod, self._sets)

    def _apply(self, old: PodFacts | None, new: PodFacts | None) -> None:
        for kind, element in self._all(new):
            if element in self._sets[kind]:
                self._repeated[kind][element] += 1
            else:
                self._sets[kind] = self._sets[kind].added(element)
        for kind, element in self._all(old):
            repeated = self._repeated[kind]
            if element not in repeated:
                self._sets[kind] = self._sets[kind].removed(element)
            elif repeated[element] > 1:
                repeated[element] -= 1
            else:
                del repeated[element]
