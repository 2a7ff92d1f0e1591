"""NetworkPolicies, pods and namespaces to who is isolated and who may talk to whom. No I/O.

A policy is parsed once into selections (namespaces by name or labels, pods by labels) and ports. Equal selections are one
object, however many policies name them, and each keeps its members: a pod that comes or goes is matched against the
selections that may be of its namespace, so a change costs the number of their distinct selectors and not of pods.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from netproxy.errors import PolicyError
from netproxy.policy.limits import MAX_ALIKE, MAX_MEMBERS, TOO_MANY_MEMBERS
from netproxy.policy.objects import PodFacts
from netproxy.policy.placement import Placement
from netproxy.policy.selector import EVERY_POD, Selector
from netproxy.policy.selector_index import Places, SelectorIndex
from netproxy.policy.spending import Spending
from netproxy.policy.turns import at_once

log = logging.getLogger(__name__)
SLICE = 1_000
"""Comparisons of a pod with a selector between suspensions."""
INGRESS, EGRESS = "ingress", "egress"
DIRECTIONS = (EGRESS, INGRESS)


@dataclass(frozen=True, slots=True)
class Port:
    """`number` to `last`, or the port that a pod calls `name`; neither: every port of the protocol."""

    protocol: str = "TCP"
    number: int = 0
    last: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Traffic with any of the peers (any at all if `anyone`) on any of the ports (every one and every protocol if none)."""

    anyone: bool
    peers: tuple[Selector, ...] = ()
    blocks: tuple[str, ...] = ()
    """Ranges as nft prints them (address_ranges.py)."""
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy; a direction that it does not speak of has no entry."""

    key: str
    subject: Selector
    rules: Mapping[str, tuple[Rule, ...]]
    peers: frozenset[Selector] = field(init=False, repr=False, compare=False, default=frozenset())
    """Every selection whose members' addresses or ports are written."""
    cost: int = field(init=False, repr=False, compare=False, default=0)
    """Pairs of a peer and a port, and address ranges: at most as many rules and elements; 0 where nothing is allowed."""
    allowing: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    """Directions in which something is allowed."""
    weights: Mapping[Selector, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    """How often a member of a selection may be written: as a peer, and once for each named port that is looked up in it."""

    def __post_init__(self) -> None:
        found: set[Selector] = set()
        named: dict[Selector, set[Port]] = {}
        cost = 0
        for direction, rule in ((direction, rule) for direction, rules in self.rules.items() for rule in rules):
            found.update(rule.peers)
            cost += (len(rule.peers) + (rule.anyone or bool(rule.blocks))) * max(1, len(rule.ports)) + len(rule.blocks)
            names = [port for port in rule.ports if port.name]
            others = (EVERY_POD,) if rule.anyone or rule.blocks else ()
            for target in ((self.subject,) if direction == INGRESS else (*rule.peers, *others)) if names else ():
                named.setdefault(target, set()).update(names)
            if direction == EGRESS and names:
                found.update(others)
        weights = dict.fromkeys(found, 1)
        for target, ports in named.items():
            weights[target] = weights.get(target, 0) + len(ports)
        allowing = {each for each, rules in self.rules.items() if any(r.anyone or r.peers or r.blocks for r in rules)}
        object.__setattr__(self, "allowing", frozenset(allowing))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "peers", frozenset(found))
        object.__setattr__(self, "cost", cost)

    def selectors(self) -> set[Selector]:
        """Return every selection that the policy needs the members of."""
        return {self.subject, *self.peers}


@dataclass(slots=True)
class Selection:
    """A selector's members now, and those of this node."""

    members: dict[str, PodFacts] = field(default_factory=dict)
    here: dict[str, PodFacts] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)
    """Policies by key."""

    def put(self, key: str, pod: PodFacts) -> None:
        self.members[key] = pod
        if pod.here:
            self.here[key] = pod
        else:
            self.here.pop(key, None)

    def drop(self, key: str) -> None:
        del self.members[key]
        self.here.pop(key, None)


class PolicyTable:
    """Everything known, with the members of each selection kept current."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.pods: dict[str, PodFacts] = {}
        self.here: dict[str, PodFacts] = {}
        """Pods of this node."""
        self._in_namespace: dict[str, dict[str, PodFacts]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._selections: dict[Selector, Selection] = {}
        self._index: SelectorIndex[Selection] = SelectorIndex()
        self._with_label: dict[tuple[str, str], dict[str, None]] = {}
        """Namespaces by label."""
        self._come = 0
        """Members that came to selections since the policies' peers were last counted."""
        self.failed: set[str] = set()
        """Policies by key of which a selector could not be compared with a pod."""
        self.spending = Spending()
        self._subject_places = Placement()
        self._peer_places = Placement(MAX_ALIKE)
        """Where the selectors of pods that are judged, and those of their peers, are in the index."""
        self.version = 0
        self._changed: dict[Selector, int] = {}
        """When a selection's members, addresses or ports changed, the last one last."""

    def members(self, selector: Selector) -> Mapping[str, PodFacts]:
        return self._selections[selector].members

    def members_here(self, selector: Selector) -> Mapping[str, PodFacts]:
        """Return the members on this node."""
        return self._selections[selector].here

    def changed_since(self, version: int) -> set[Selector]:
        """Return the selections that are new, or have other members, addresses or ports, since `version` was this."""
        found = set()
        for selector, changed in reversed(self._changed.items()):
            if changed <= version:
                break
            found.add(selector)
        return found

    def _note(self, selector: Selector) -> None:
        self._changed.pop(selector, None)
        self.version += 1
        self._changed[selector] = self.version

    def clear_pods(self) -> None:
        """Forget pods and namespaces, when they are no longer followed."""
        for known in (self.pods, self.here, self._in_namespace, self._namespaces, self._with_label):
            known.clear()
        for selector, selection in self._selections.items():
            selection.members.clear()
            selection.here.clear()
            self._note(selector)

    def set_pod(self, key: str, facts: PodFacts | None) -> bool:
        """Take in a pod, None for one that is gone or does not count; return whether anything depends on it."""
        old = self.pods.get(key)
        if old == facts:
            return False
        self._keep(key, old, facts)
        touched = bool((old and old.here) or (facts and facts.here))
        known = [pod for pod in (old, facts) if pod is not None]
        labels = self._namespaces.get(known[0].namespace)
        places = self._index.places(known[0].namespace, labels or {})
        for selector, selection in self._index.about_pod(places, *(pod.labels for pod in known)):
            touched |= self._match(selector, selection, key, facts, labels)
        return touched

    def _keep(self, key: str, old: PodFacts | None, facts: PodFacts | None) -> None:
        if old is not None:
            del self.pods[key]
            self.here.pop(key, None)
            del self._in_namespace[old.namespace][key]
            if not self._in_namespace[old.namespace]:
                del self._in_namespace[old.namespace]
        if facts is not None:
            self.pods[key] = facts
            self._in_namespace.setdefault(facts.namespace, {})[key] = facts
            if facts.here:
                self.here[key] = facts

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Take in a namespace's labels, None for one that is gone; return whether anything depends on them."""
        return at_once(self.take_namespace(name, labels))

    def take_namespace(self, name: str, labels: Mapping[str, str] | None) -> Generator[None, None, bool]:
        """Do as `set_namespace` does, in slices; nothing else is to be taken in meanwhile."""
        before = self._namespaces.get(name)
        if before == labels:
            return False
        for label in (before or {}).items():
            del self._with_label[label][name]
            if not self._with_label[label]:
                del self._with_label[label]
        for label in (labels or {}).items():
            self._with_label.setdefault(label, {})[name] = None
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        return (yield from self._move_pods(name, before, labels))

    def _move_pods(
        self, name: str, before: Mapping[str, str] | None, labels: Mapping[str, str] | None
    ) -> Generator[None, None, bool]:
        touched, affected = False, self._in_namespace.get(name, {})
        other: SelectorIndex[Selection] = SelectorIndex()
        about = self._index.about_namespace(before or {}, labels or {}) if affected else ()
        for count, (selector, selection, found) in enumerate(list(about)):
            if selector.has_namespace(before) != selector.has_namespace(labels):
                other.add(selector, selection, found)
            if count % SLICE == SLICE - 1:
                yield
        places, count = other.places(name, before or {}, labels or {}), 0
        for key, pod in affected.items() if places else ():
            for selector, selection in other.about_pod(places, pod.labels):
                if self._selections.get(selector) is selection:  # its last policy may have been closed meanwhile
                    touched |= self._match(selector, selection, key, pod, labels)
                count += 1
            count += 1
            if count >= SLICE:
                count = 0
                yield
        return touched

    def set_policy(self, policy: Policy) -> None:
        """Take in a policy; PolicyError, and it stays as it was, where its peers are too many or have too many members."""
        at_once(self.take_policy(policy))

    def take_policy(self, policy: Policy) -> Generator[None, None, None]:
        """Do as `set_policy` does, in slices; no pod or namespace is to be taken in meanwhile."""
        known, namespace = self.policies.get(policy.key), policy.subject.namespace
        judged = yield from self._subject_places.choose(namespace, (), (policy.subject,))
        peers = yield from self._peer_places.choose(namespace, known.peers if known else (), policy.peers)
        wanted = {selector: self._selections.get(selector) or Selection() for selector in policy.selectors()}
        made = {selector: selection for selector, selection in wanted.items() if selector not in self._selections}
        size = sum(len(wanted[each].members) * weight for each, weight in policy.weights.items())
        if size > MAX_MEMBERS:
            raise PolicyError(TOO_MANY_MEMBERS)
        yield from self._find(made, {**judged, **peers}, policy.weights, MAX_MEMBERS - size)
        old = self.policies.get(policy.key)
        for selector, selection in wanted.items():
            if (
                selector not in self._selections
            ):  # not yet, or no longer: its last policy may have been closed meanwhile
                self._register(selector, selection)
            self._selections[selector].users.add(policy.key)
        self.policies[policy.key] = policy
        self.spending.change(policy.key, old.cost if old else 0, policy.cost)
        for placement, places in ((self._subject_places, judged), (self._peer_places, peers)):
            for selector, new in placement.add(namespace, places).items():
                self._index.add(selector, self._selections[selector], new)
        if old is not None:
            self._leave(old)
            self._release(policy.key, old.selectors() - wanted.keys())

    def delete_policy(self, key: str) -> None:
        old = self.policies.pop(key, None)
        if old is not None:
            self.spending.change(key, old.cost, 0)
            self._leave(old)
            self._release(key, old.selectors())

    def _leave(self, old: Policy) -> None:
        """Take the selectors of an old version of a policy out of the index where no other uses them."""
        for placement, selectors in ((self._subject_places, (old.subject,)), (self._peer_places, old.peers)):
            for selector, gone in placement.remove(old.subject.namespace, selectors).items():
                self._index.remove(selector, gone)

    def excess(self) -> str:
        """Return the policy that selects most, of a namespace whose policies' peers have too many members; "" for none."""
        if self._come <= MAX_MEMBERS // 100:
            return ""  # counting takes as long as policies have peers
        totals: Counter[str] = Counter()
        largest: dict[str, tuple[int, str]] = {}
        for key, policy in self.policies.items():
            namespace, size = policy.subject.namespace, self._size(policy)
            totals[namespace] += size
            largest[namespace] = max(largest.get(namespace, (0, "")), (size, key))
        found = next((largest[name][1] for name, total in totals.items() if total > MAX_MEMBERS), "")
        if not found:
            self._come = 0
        return found

    def _size(self, policy: Policy) -> int:
        """Return how many members the peers of a policy have, and with how many ports that may be named."""
        return sum(len(self._selections[each].members) * weight for each, weight in policy.weights.items())

    def _register(self, selector: Selector, selection: Selection) -> None:
        self._selections[selector] = selection
        self._come += len(selection.members)
        self._note(selector)

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
        for name in self._namespaces_of(index):
            labels = self._namespaces.get(name)
            found = index.places(name, labels or {})
            for key, pod in self._in_namespace.get(name, {}).items() if found else ():
                for selector, selection in index.about_pod(found, pod.labels):
                    count += 1
                    if selector.matches(pod, labels):
                        selection.put(key, pod)
                        most -= weights.get(selector, 0)
                count += 1
                if most < 0:
                    raise PolicyError(TOO_MANY_MEMBERS)
                if count >= SLICE:
                    count = 0
                    yield

    def _namespaces_of(self, index: SelectorIndex[Selection]) -> Iterable[str]:
        """Return the namespaces that selectors may be about."""
        found: dict[str, None] = {}
        for hint in index.namespaces():
            if isinstance(hint, str):
                found[hint] = None
            elif hint is None or hint[1] is None:
                return list(self._in_namespace)
            else:
                found |= self._with_label.get((hint[0], hint[1]), {})
        return found

    def _release(self, key: str, wanted: Iterable[Selector]) -> None:
        for selector in wanted:
            selection = self._selections.get(selector)
            if selection is None:
                continue
            selection.users.discard(key)
            if not selection.users:
                del self._selections[selector], self._changed[selector]

    def _match(
        self,
        selector: Selector,
        selection: Selection,
        key: str,
        pod: PodFacts | None,
        namespace_labels: Mapping[str, str] | None,
    ) -> bool:
        """Compare a selector with a pod, None for one that is gone; note its policies where that fails."""
        try:
            matched = pod is not None and selector.matches(pod, namespace_labels)
        except Exception:
            log.exception("a selector of network policies %s fails", ", ".join(sorted(selection.users)[:8]))
            self.failed |= selection.users
            matched = False
        return self._place(selector, selection, key, pod if matched else None)

    def _place(self, selector: Selector, selection: Selection, key: str, facts: PodFacts | None) -> bool:
        old = selection.members.get(key)
        if old == facts:
            return False
        if facts is None:
            selection.drop(key)
        else:
            selection.put(key, facts)
        self._note(selector)
        self._come += old is None
        return True
