"""NetworkPolicies, pods and namespaces to who is isolated and who may talk to whom. No I/O.

A policy is parsed once into selections (namespaces by name or labels, pods by labels) and ports. Equal selections are one
object, however many policies name them, and each keeps its members: a pod that comes or goes is matched against the
selections there are, so a change costs the number of distinct selectors and not of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kube import selectors
from kube.selectors import LabelSelector
from netproxy.policy.objects import PodFacts

INGRESS, EGRESS = "ingress", "egress"
DIRECTIONS = (EGRESS, INGRESS)


@dataclass(frozen=True, slots=True)
class Selector:
    """Which pods: those of one namespace by name, or of the namespaces that `namespaces` matches."""

    pods: LabelSelector = selectors.EVERYTHING
    namespace: str = ""
    namespaces: LabelSelector | None = None

    def matches(self, pod: PodFacts, namespace_labels: Mapping[str, str] | None) -> bool:
        """Tell whether a pod is selected; labels of its namespace that are not known, None, match no selector."""
        if self.namespaces is None:
            return pod.namespace == self.namespace and self.pods.matches(pod.labels)
        return (
            namespace_labels is not None and self.namespaces.matches(namespace_labels) and self.pods.matches(pod.labels)
        )


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

    def selectors(self) -> set[Selector]:
        """Return every selection that the policy needs the members of."""
        found = {self.subject}
        for rule in (rule for rules in self.rules.values() for rule in rules):
            found.update(rule.peers)
            if (rule.anyone or rule.blocks) and any(port.name for port in rule.ports):
                found.add(EVERY_POD)
        return found


@dataclass(slots=True)
class Selection:
    """A selector's members now; `version` moves when they or their addresses and ports do."""

    members: dict[str, PodFacts] = field(default_factory=dict)
    version: int = 0


class PolicyTable:
    """Everything known, with the members of each selection kept current."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.pods: dict[str, PodFacts] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._selections: dict[Selector, Selection] = {}
        self._uses: Counter[Selector] = Counter()

    def members(self, selector: Selector) -> Mapping[str, PodFacts]:
        return self._selections[selector].members

    def version(self, selector: Selector) -> int:
        return self._selections[selector].version

    def clear_pods(self) -> None:
        """Forget pods and namespaces, when they are no longer followed."""
        self.pods.clear()
        self._namespaces.clear()
        for selection in self._selections.values():
            selection.members.clear()
            selection.version += 1

    def set_pod(self, key: str, facts: PodFacts | None) -> bool:
        """Take in a pod, None for one that is gone or does not count; return whether anything depends on it."""
        old = self.pods.get(key)
        if old == facts:
            return False
        if facts is None:
            del self.pods[key]
        else:
            self.pods[key] = facts
        touched = bool((old and old.here) or (facts and facts.here))
        labels = self._namespaces.get(facts.namespace) if facts else None
        for selector, selection in self._selections.items():
            touched |= _place(selection, key, facts if facts and selector.matches(facts, labels) else None)
        return touched

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Take in a namespace's labels, None for one that is gone; return whether anything depends on them."""
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        touched = False
        affected = [(key, pod) for key, pod in self.pods.items() if pod.namespace == name]
        for selector, selection in self._selections.items():
            if selector.namespaces is not None:
                for key, pod in affected:
                    touched |= _place(selection, key, pod if selector.matches(pod, labels) else None)
        return touched

    def set_policy(self, policy: Policy) -> None:
        old = self.policies.get(policy.key)
        self.policies[policy.key] = policy
        self._use(policy.selectors())
        if old is not None:
            self._release(old.selectors())

    def delete_policy(self, key: str) -> None:
        old = self.policies.pop(key, None)
        if old is not None:
            self._release(old.selectors())

    def _use(self, wanted: Iterable[Selector]) -> None:
        for selector in wanted:
            self._uses[selector] += 1
            if selector not in self._selections:
                self._selections[selector] = Selection(
                    {
                        key: pod
                        for key, pod in self.pods.items()
                        if selector.matches(pod, self._namespaces.get(pod.namespace))
                    }
                )

    def _release(self, wanted: Iterable[Selector]) -> None:
        for selector in wanted:
            self._uses[selector] -= 1
            if not self._uses[selector]:
                del self._uses[selector], self._selections[selector]


def _place(selection: Selection, key: str, facts: PodFacts | None) -> bool:
    old = selection.members.get(key)
    if old == facts:
        return False
    if facts is None:
        del selection.members[key]
    else:
        selection.members[key] = facts
    selection.version += 1
    return True
