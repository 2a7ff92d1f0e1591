"""Pods that each selector of a policy selects now. No I/O.

Equal selectors share one selection, however many policies have them.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from netproxy.policy.element_set import ElementSet
from netproxy.policy.limits import MAX_ALIKE, MAX_SUBJECTS_ALIKE, TOO_MANY_ALIKE, TOO_MANY_SUBJECTS_ALIKE
from netproxy.policy.member_counts import MemberCounts
from netproxy.policy.member_elements import ElementKind, MemberElements
from netproxy.policy.model import Policy
from netproxy.policy.placement import Placement
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.selector import Selector
from netproxy.policy.selector_index import Places, SelectorIndex

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Selection:
    """The pods that a selector selects, and those of them on this node."""

    members: dict[str, PodFacts] = field(default_factory=dict)
    here: dict[str, PodFacts] = field(default_factory=dict)
    with_addresses: int = 0
    """The number of members that have addresses. Others are no elements, and cost their author nothing: pods that wait."""
    users: set[str] = field(default_factory=set)
    """Policies by key."""
    _elements: dict[int, MemberElements] = field(default_factory=dict)
    """Elements of the members that were asked for, by family."""

    def put(self, key: str, pod: PodFacts) -> None:
        old = self.members.get(key)
        self.members[key] = pod
        self.with_addresses += bool(pod.ips) - bool(old is not None and old.ips)
        if pod.here:
            self.here[key] = pod
        else:
            self.here.pop(key, None)
        self._change_elements(old, pod)

    def drop(self, key: str) -> None:
        old = self.members.pop(key)
        self.with_addresses -= bool(old.ips)
        self.here.pop(key, None)
        self._change_elements(old, None)

    def clear(self) -> None:
        self.members.clear()
        self.with_addresses = 0
        self.here.clear()
        self._elements.clear()

    def _change_elements(self, old: PodFacts | None, new: PodFacts | None) -> None:
        for each in self._elements.values():
            each.change(old, new, len(self.members))

    def elements(self, family: int, kinds: Iterable[ElementKind]) -> Mapping[ElementKind, ElementSet]:
        """Return the elements of the members by kind; from then on changes of members cost what changes."""
        return self._elements_of(family).current(kinds, self.members.values())

    def make_elements(self, family: int, kinds: Iterable[ElementKind]) -> Generator[None, None, None]:
        """Make what `elements` returns, in slices. Members may change meanwhile."""
        return self._elements_of(family).made_in_slices(kinds, self.members.values())

    def _elements_of(self, family: int) -> MemberElements:
        made = self._elements.get(family)
        if made is None:
            made = self._elements[family] = MemberElements(family)
        return made

    def cost(self, family: int, kinds: Iterable[ElementKind]) -> int:
        """Return how many members `make_elements` has to read."""
        made = self._elements.get(family)
        return len(self.members) if made is None else made.cost(kinds, len(self.members))

    def forget_elements(self, family: int, kind: ElementKind) -> None:
        """Update elements of a kind no longer, where nobody asks for them."""
        made = self._elements.get(family)
        if made is not None and not made.forget(kind):
            del self._elements[family]


class Selections:
    """The selections of all policies, indexed by the labels that they require."""

    def __init__(self, most: int) -> None:
        """`most` is the limit of members of a namespace."""
        self._known: dict[Selector, Selection] = {}
        self.index: SelectorIndex[Selection] = SelectorIndex()
        self.subject_places = Placement(MAX_SUBJECTS_ALIKE, TOO_MANY_SUBJECTS_ALIKE)
        self.peer_places = Placement(MAX_ALIKE, TOO_MANY_ALIKE)
        """Places in the index: of the selectors of isolated pods, and of those of their peers."""
        self.counts = MemberCounts(most)
        self.failed: set[str] = set()
        """Policies by key of which a selector could not be compared with a pod."""
        self.version = 0
        self.with_pods_here: dict[Selector, Selection] = {}
        """The selections of pods on this node."""
        self._changed: dict[Selector, int] = {}
        """The version in which a selection's members, addresses or ports changed; the last change is last."""

    def __getitem__(self, selector: Selector) -> Selection:
        return self._known[selector]

    def __contains__(self, selector: object) -> bool:
        return selector in self._known

    def get(self, selector: Selector) -> Selection | None:
        return self._known.get(selector)

    def changed_since(self, version: int) -> set[Selector]:
        """Return the selections that are new, or have other members, addresses or ports, since `version`."""
        found = set()
        for selector, changed in reversed(self._changed.items()):
            if changed <= version:
                break
            found.add(selector)
        return found

    def clear(self) -> None:
        """Remove all members."""
        for selector, selection in self._known.items():
            selection.clear()
            self.counts.resize(selector, 0)
            self._note(selector)

    def use(self, policy: Policy, wanted: Mapping[Selector, Selection]) -> None:
        """Add a policy's use of selectors; `wanted` are their selections, new ones with their members."""
        for selector, selection in wanted.items():
            # A selection that was known may be gone: its last policy can have been closed meanwhile.
            if selector not in self._known:
                self._known[selector] = selection
                self._note(selector)
            self._known[selector].users.add(policy.key)
        self.counts.add(policy, {each: self._known[each].with_addresses for each in policy.weights})

    def place(self, namespace: str, subjects: Mapping[Selector, Places], peers: Mapping[Selector, Places]) -> None:
        """Index the selectors of a namespace's policy at the places chosen."""
        for placement, places in ((self.subject_places, subjects), (self.peer_places, peers)):
            for selector, new in placement.add(namespace, places).items():
                self.index.add(selector, self._known[selector], new)

    def release(self, old: Policy, kept: Iterable[Selector] = ()) -> None:
        """Remove a policy's use of its old selectors; `kept` are those that it still has."""
        self.counts.remove(old)
        for placement, selectors in ((self.subject_places, (old.subject,)), (self.peer_places, old.peers)):
            for selector, gone in placement.remove(old.subject.namespace, selectors).items():
                self.index.remove(selector, gone)
        for selector in old.selectors().difference(kept):
            selection = self._known.get(selector)
            if selection is None:
                continue
            selection.users.discard(old.key)
            if not selection.users:
                del self._known[selector], self._changed[selector]
                self.with_pods_here.pop(selector, None)

    def match(
        self,
        selector: Selector,
        selection: Selection,
        key: str,
        pod: PodFacts | None,
        namespace_labels: Mapping[str, str] | None,
    ) -> bool:
        """Compare a selector with a pod, None for one that is gone; return whether the selection changed.

        Where the comparison fails, the policies with this selector are added to `failed`.
        """
        try:
            matched = pod is not None and selector.matches(pod, namespace_labels)
        except Exception:
            log.exception("a selector of network policies %s fails", ", ".join(sorted(selection.users)[:8]))
            self.failed |= selection.users
            matched = False
        return self._set(selector, selection, key, pod if matched else None)

    def _set(self, selector: Selector, selection: Selection, key: str, facts: PodFacts | None) -> bool:
        old = selection.members.get(key)
        if old is facts:
            return False  # members are the facts that are known
        if facts is None:
            selection.drop(key)
        else:
            selection.put(key, facts)
        self.counts.resize(selector, selection.with_addresses)
        self._note_pods_here(selector)
        if old is not None and facts is not None and (old.ips, old.ports) == (facts.ips, facts.ports):
            return False  # rules do not depend on its other labels
        self._note(selector)
        return True

    def _note_pods_here(self, selector: Selector) -> None:
        if self._known[selector].here:
            self.with_pods_here[selector] = self._known[selector]
        else:
            self.with_pods_here.pop(selector, None)

    def _note(self, selector: Selector) -> None:
        self._note_pods_here(selector)
        self._changed.pop(selector, None)
        self.version += 1
        self._changed[selector] = self.version
