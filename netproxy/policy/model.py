"""A parsed NetworkPolicy: the pods that it selects, and what it allows to and from them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from netproxy.policy.selector import EVERY_POD, Selector

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
    """A policy; a direction that it does not restrict has no entry, and one that allows nothing has an empty one."""

    key: str
    subject: Selector
    rules: Mapping[str, tuple[Rule, ...]]
    """By direction. An empty tuple isolates the pods and allows nothing; a direction without a key is not isolated."""
    peers: frozenset[Selector] = field(init=False, repr=False, compare=False, default=frozenset())
    """Every selection whose members' addresses or ports are written."""
    cost: int = field(init=False, repr=False, compare=False, default=0)
    """Pairs of a peer and a port, and address ranges: at most as many rules and elements; 0 if nothing is allowed."""
    allowing: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    """Directions in which something is allowed."""
    weights: Mapping[Selector, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Elements for each member of a selection: as a peer, and once for each named port that is looked up in it."""

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
