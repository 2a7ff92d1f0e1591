"""Elements that the members of a selection give to sets of nftables, updated by the members that change. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping

from netproxy.policy.element_set import SLICE, ElementSet, in_parts
from netproxy.policy.pod_facts import PodFacts
from netproxy.slices import run_to_end

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
        run_to_end(self.made_in_slices(kinds, members))
        return self._sets

    def made_in_slices(
        self, kinds: Iterable[ElementKind], members: Collection[PodFacts]
    ) -> Generator[None, None, None]:
        """Make what `current` returns, in slices. Members may change meanwhile: `current` then applies these changes."""
        # Until none is left: members that changed meanwhile are among those that missing kinds are made of.
        while self._changes is None or self._changes:
            if self._changes is None:
                kinds = {**self._sets, **dict.fromkeys(kinds)}
                self._sets = {}
            yield from self._apply_changes()
        if missing := [kind for kind in kinds if kind not in self._sets]:
            yield from self._make(missing, list(members))

    def forget(self, kind: ElementKind) -> bool:
        """Keep a kind no longer; return whether any is left."""
        self._sets.pop(kind, None)
        return bool(self._sets)

    def _make(self, kinds: Collection[ElementKind], members: Collection[PodFacts]) -> Generator[None, None, None]:
        found: dict[ElementKind, list[str]] = {kind: [] for kind in kinds}
        named = len(found) > (ADDRESSES in found)
        for pods in in_parts(members):
            if ADDRESSES in found:
                found[ADDRESSES] += [ip for pod in pods for ip in pod.addresses(self._family)]
            for pod in pods if named else ():
                for kind, element in self._named(pod, found):
                    found[kind].append(element)
            if len(pods) == SLICE:
                yield
        made: dict[ElementKind, ElementSet] = {}
        for kind, elements in found.items():
            unique = dict.fromkeys(elements, "")
            made[kind] = yield from ElementSet.made_in_slices(unique)
            repeated = self._repeated[kind] = Counter[str]()
            for part in in_parts(Counter(elements).items() if len(unique) < len(elements) else ()):
                repeated.update({element: times - 1 for element, times in part if times > 1})
                if len(part) == SLICE:
                    yield
        self._sets |= made

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

    def _apply_changes(self) -> Generator[None, None, None]:
        changes, self._changes = self._changes or [], []
        applied = False
        try:
            for part in in_parts(changes):
                for old, new in part:
                    self._apply(old, new)
                if len(part) == SLICE:
                    yield
            applied = True
        finally:
            if not applied:  # the caller was cancelled
                self._changes = None

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
