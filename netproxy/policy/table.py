"""Table of NetworkPolicies, pods and namespaces, with the pods that each policy selects. No I/O.

A change of a pod is compared with the selectors that may select it, and a new selector with the pods of its namespaces.
Changes that may take long are generators, which yield every `SLICE` comparisons.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping

from netproxy.errors import PolicyError
from netproxy.namespace_costs import NamespaceCosts
from netproxy.policy.known_pods import KnownPods
from netproxy.policy.limits import MAX_MEMBERS, TOO_MANY_MEMBERS
from netproxy.policy.model import Policy
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.selections import Selection, Selections
from netproxy.policy.selector import Selector
from netproxy.policy.selector_index import Places, SelectorIndex, steps
from netproxy.policy.subjects import Subjects
from netproxy.slices import run_to_end

SLICE = 1_000
"""Comparisons of a pod with a selector between suspensions."""


class PolicyTable:
    """The policies, pods and namespaces that are known."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.subjects = Subjects()
        self.known = KnownPods()
        self.selections = Selections(MAX_MEMBERS)
        self.costs = NamespaceCosts()
        self.unusable: set[str] = set()
        """Addresses of this node that no pod may use yet, or any more."""

    def members(self, selector: Selector) -> Mapping[str, PodFacts]:
        """Return the pods that a selector of a policy selects."""
        return self.selections[selector].members

    def members_here(self, selector: Selector) -> Mapping[str, PodFacts]:
        """Return those on this node."""
        return self.selections[selector].here

    def subjects_here(self) -> Iterator[tuple[Selector, Mapping[str, PodFacts]]]:
        """Iterate over the selectors of isolated pods that select any of this node, with those."""
        for selector, selection in self.selections.with_pods_here.items():
            if selector in self.subjects:
                yield selector, selection.here

    # -- pods and namespaces --------------------------------------------------------------------------------------
    def clear_pods(self) -> None:
        """Remove pods and namespaces, when they are no longer watched."""
        self.known.clear()
        self.selections.clear()

    def set_pod(self, key: str, facts: PodFacts | None) -> bool:
        """Store a pod, None for one that is gone or does not count; return whether rules depend on it."""
        old = self.known.pods.get(key)
        if old is not None and facts is not None:
            facts = facts.sharing(old)
        if old == facts:
            return False
        self.known.set_pod(key, facts)
        touched = bool((old and old.here) or (facts and facts.here))
        versions = [pod for pod in (old, facts) if pod is not None]
        labels = self.known.labels_of(versions[0].namespace)
        places = self.selections.index.places(versions[0].namespace, labels or {})
        for selector, selection in self.selections.index.about_pod(places, *(pod.labels for pod in versions)):
            touched |= self.selections.match(selector, selection, key, facts, labels)
        return touched

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Store a namespace's labels, None for one that is gone; return whether rules depend on them."""
        return run_to_end(self.set_namespace_in_slices(name, labels))

    def set_namespace_in_slices(self, name: str, labels: Mapping[str, str] | None) -> Generator[None, None, bool]:
        """Do as `set_namespace`, in slices. The caller stores nothing else meanwhile."""
        before = self.known.labels_of(name)
        if before == labels:
            return False
        self.known.set_labels(name, labels)
        return (yield from self._move_pods(name, before, labels))

    def _move_pods(
        self, name: str, before: Mapping[str, str] | None, labels: Mapping[str, str] | None
    ) -> Generator[None, None, bool]:
        """Compare the pods of a namespace with the selectors of namespaces that its change of labels is about."""
        touched, affected = False, self.known.in_namespace(name)
        other: SelectorIndex[Selection] = SelectorIndex()
        about = self.selections.index.about_namespace(before or {}, labels or {}) if affected else ()
        for count, (selector, selection, found) in enumerate(list(about)):
            if selector.has_namespace(before) != selector.has_namespace(labels):
                other.add(selector, selection, found)
            if count % SLICE == SLICE - 1:
                yield
        places, count = other.places(name, before or {}, labels or {}), 0
        for key, pod in affected.items() if places else ():
            for selector, selection in other.about_pod(places, pod.labels):
                if self.selections.get(selector) is selection:  # its last policy may have been closed meanwhile
                    touched |= self.selections.match(selector, selection, key, pod, labels)
                count += 1
            count += 1 + sum([steps((pod.labels,), place) for place in places])
            if count >= SLICE:
                count = 0
                yield
        return touched

    def change_unusable(self, closed: Collection[str], opened: Collection[str]) -> bool:
        """Store addresses of this node that no pod may use, and some that pods may again; return whether rules depend on it."""
        changed = {*(set(closed) - self.unusable), *self.unusable.intersection(opened)}
        self.unusable.update(closed)
        self.unusable.difference_update(opened)
        return bool(changed) and any(ip in changed for pod in self.known.here.values() for ip in pod.ips)

    # -- policies -------------------------------------------------------------------------------------------------
    def set_policy(self, policy: Policy) -> None:
        """Store a policy. PolicyError where its selectors are too many or select too many pods; the old version then stays."""
        run_to_end(self.set_policy_in_slices(policy))

    def set_policy_in_slices(self, policy: Policy) -> Generator[None, None, None]:
        """Do as `set_policy`, in slices. The caller stores no pod or namespace meanwhile."""
        known, namespace, selections = self.policies.get(policy.key), policy.subject.namespace, self.selections
        subject = (known.subject,) if known else ()
        subjects = yield from selections.subject_places.choose(namespace, subject, (policy.subject,))
        peers = yield from selections.peer_places.choose(namespace, known.peers if known else (), policy.peers)
        wanted = {selector: selections.get(selector) or Selection() for selector in policy.selectors()}
        made = {selector: selection for selector, selection in wanted.items() if selector not in selections}
        size = sum(wanted[each].with_addresses * weight for each, weight in policy.weights.items())
        if size > MAX_MEMBERS:
            raise PolicyError(TOO_MANY_MEMBERS)
        yield from self._find(made, {**subjects, **peers}, policy.weights, MAX_MEMBERS - size)
        old = self.policies.get(policy.key)
        selections.use(policy, wanted)
        self.policies[policy.key] = policy
        if old is not None:
            self.subjects.remove(old)
        self.subjects.put(policy)
        self.costs.change(policy.key, old.cost if old else 0, policy.cost)
        selections.place(namespace, subjects, peers)
        if old is not None:
            selections.release(old, kept=wanted)

    def delete_policy(self, key: str) -> None:
        old = self.policies.pop(key, None)
        if old is not None:
            self.subjects.remove(old)
            self.costs.change(key, old.cost, 0)
            self.selections.release(old)

    def _find(
        self,
        made: Mapping[Selector, Selection],
        places: Mapping[Selector, Places],
        weights: Mapping[Selector, int],
        most: int,
    ) -> Generator[None, None, None]:
        """Fill new selections with the pods there are; PolicyError where they weigh more than `most`."""
        index: SelectorIndex[Selection] = SelectorIndex()
        for count, (selector, selection) in enumerate(made.items()):
            index.add(selector, selection, places[selector])
            if count % SLICE == SLICE - 1:
                yield
        count = 0
        for name in self.known.namespaces_of(index.namespaces()):
            labels = self.known.labels_of(name)
            found = index.places(name, labels or {})
            for key, pod in self.known.in_namespace(name).items() if found else ():
                for selector, selection in index.about_pod(found, pod.labels):
                    count += 1
                    if selector.matches(pod, labels):
                        selection.put(key, pod)
                        most -= weights.get(selector, 0) if pod.ips else 0
                count += 1 + sum([steps((pod.labels,), place) for place in found])
                if most < 0:
                    raise PolicyError(TOO_MANY_MEMBERS)
                if count >= SLICE:
                    count = 0
                    yield
