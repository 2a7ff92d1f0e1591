"""NetworkPolicies, pods and namespaces to who is isolated and who may talk to whom. No I/O.

A policy is parsed once into selections (namespaces by name or labels, pods by labels) and ports. Equal selections are one
object, however many policies name them, and each keeps its members: a pod that comes or goes is matched against the
selections that may be of its namespace, so a change costs the number of their distinct selectors and not of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kube import selectors
from kube.selectors import LabelSelector
from netproxy.errors import PolicyError
from netproxy.policy.limits import MAX_MEMBERS, TOO_MANY_MEMBERS
from netproxy.policy.objects import PodFacts

INGRESS, EGRESS = "ingress", "egress"
DIRECTIONS = (EGRESS, INGRESS)


@dataclass(frozen=True, slots=True)
class Selector:
    """Which pods: those of one namespace by name, or of the namespaces that `namespaces` matches."""

    pods: LabelSelector = selectors.EVERYTHING
    namespace: str = ""
    namespaces: LabelSelector | None = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Once: it reads all requirements, of which there may be thousands.
        object.__setattr__(self, "_hash", hash((self.pods, self.namespace, self.namespaces)))

    def __hash__(self) -> int:
        return self._hash

    def matches(self, pod: PodFacts, namespace_labels: Mapping[str, str] | None) -> bool:
        """Tell whether a pod is selected; labels of its namespace that are not known, None, match no selector."""
        if self.namespaces is None:
            return pod.namespace == self.namespace and self.pods.matches(pod.labels)
        return self.has_namespace(namespace_labels) and self.pods.matches(pod.labels)

    def has_namespace(self, labels: Mapping[str, str] | None) -> bool:
        """Tell whether the selector of namespaces takes one with these labels; None are those of one that is not known."""
        return labels is not None and self.namespaces is not None and self.namespaces.matches(labels)


EVERY_POD = Selector(namespaces=selectors.EVERYTHING)


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

    def __post_init__(self) -> None:
        found: set[Selector] = set()
        for rule in (rule for rules in self.rules.values() for rule in rules):
            found.update(rule.peers)
            if (rule.anyone or rule.blocks) and any(port.name for port in rule.ports):
                found.add(EVERY_POD)
        object.__setattr__(self, "peers", frozenset(found))

    def selectors(self) -> set[Selector]:
        """Return every selection that the policy needs the members of."""
        return {self.subject, *self.peers}


@dataclass(slots=True)
class Selection:
    """A selector's members now, and those of this node."""

    members: dict[str, PodFacts] = field(default_factory=dict)
    here: dict[str, PodFacts] = field(default_factory=dict)
    users: dict[str, bool] = field(default_factory=dict)
    """Policies by key, and whether the selection is one of their peers."""

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
        self._of_namespace: dict[str, dict[Selector, Selection]] = {}
        """Selections of the pods of one namespace by its name; those with a selector of namespaces are at ""."""
        self._sizes: dict[str, int] = {}
        """How many members the peers of each policy have."""
        self._totals: Counter[str] = Counter()
        """The same of all policies of a namespace."""
        self.crowded: set[str] = set()
        """Namespaces whose policies' peers had too many members when a pod came."""
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
        for known in (self.pods, self.here, self._in_namespace, self._namespaces):
            known.clear()
        self._sizes = dict.fromkeys(self._sizes, 0)
        self._totals.clear()
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
        labels = self._namespaces.get(facts.namespace) if facts else None
        for name in {"", *(pod.namespace for pod in (old, facts) if pod)}:
            for selector, selection in self._of_namespace.get(name, {}).items():
                touched |= self._place(
                    selector, selection, key, facts if facts and selector.matches(facts, labels) else None
                )
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
        before = self._namespaces.get(name)
        if before == labels:
            return False
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        touched = False
        affected = self._in_namespace.get(name, {})
        for selector, selection in self._of_namespace.get("", {}).items() if affected else ():
            if selector.has_namespace(before) != selector.has_namespace(labels):
                for key, pod in affected.items():
                    touched |= self._place(selector, selection, key, pod if selector.matches(pod, labels) else None)
        return touched

    def set_policy(self, policy: Policy) -> None:
        """Take in a policy; PolicyError, and it stays as it was, where its peers have too many members."""
        old = self.policies.get(policy.key)
        wanted = policy.selectors()
        try:
            size = self._use(policy, wanted)
        except PolicyError:
            self._release(policy.key, wanted - (old.selectors() if old else set()))
            raise
        self.policies[policy.key] = policy
        self._resize(policy.key, size)
        if old is not None:
            self._release(policy.key, old.selectors() - wanted)

    def delete_policy(self, key: str) -> None:
        old = self.policies.get(key)
        if old is not None:
            self._resize(key, 0)
            del self._sizes[key], self.policies[key]
            self._release(key, old.selectors())

    def excess(self) -> str:
        """Return the policy that selects most, of a namespace whose policies' peers have too many members; "" for none."""
        while self.crowded:
            namespace = next(iter(self.crowded))
            if self._totals[namespace] > MAX_MEMBERS:
                own = (key for key, policy in self.policies.items() if policy.subject.namespace == namespace)
                return max(own, key=lambda key: (self._sizes[key], key))
            self.crowded.discard(namespace)
        return ""

    def _use(self, policy: Policy, wanted: Iterable[Selector]) -> int:
        """Make the selections that are missing; return how many members the policy's peers have."""
        members = 0
        for selector in wanted:
            selection = self._selections.get(selector)
            if selection is None:
                found = {key: pod for key, pod in self._candidates(selector) if selector.pods.matches(pod.labels)}
                here = {key: pod for key, pod in found.items() if pod.here}
                selection = self._selections[selector] = Selection(found, here)
                where = "" if selector.namespaces is not None else selector.namespace
                self._of_namespace.setdefault(where, {})[selector] = selection
                self._note(selector)
            peer = selection.users[policy.key] = selector in policy.peers
            members += len(selection.members) if peer else 0
            if members > MAX_MEMBERS:
                raise PolicyError(TOO_MANY_MEMBERS)
        return members

    def _candidates(self, selector: Selector) -> Iterator[tuple[str, PodFacts]]:
        """Yield the pods of the namespaces that a selector is about."""
        if selector.namespaces is None:
            yield from self._in_namespace.get(selector.namespace, {}).items()
            return
        for name, pods in self._in_namespace.items():
            if selector.has_namespace(self._namespaces.get(name)):
                yield from pods.items()

    def _release(self, key: str, wanted: Iterable[Selector]) -> None:
        for selector in wanted:
            selection = self._selections.get(selector)
            if selection is None:
                continue
            selection.users.pop(key, None)
            if not selection.users:
                where = "" if selector.namespaces is not None else selector.namespace
                del self._selections[selector], self._of_namespace[where][selector], self._changed[selector]
                if not self._of_namespace[where]:
                    del self._of_namespace[where]

    def _place(self, selector: Selector, selection: Selection, key: str, facts: PodFacts | None) -> bool:
        old = selection.members.get(key)
        if old == facts:
            return False
        if facts is None:
            selection.drop(key)
        else:
            selection.put(key, facts)
        self._note(selector)
        if old is None or facts is None:
            for user in (user for user, peer in selection.users.items() if peer):
                self._resize(user, self._sizes[user] + (1 if old is None else -1))
        return True

    def _resize(self, key: str, size: int) -> None:
        """Take in how many members the peers of a policy have."""
        namespace = self.policies[key].subject.namespace
        self._totals[namespace] += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        if self._totals[namespace] > MAX_MEMBERS:
            self.crowded.add(namespace)
