"""Limits of what policies may cost a node: the API has none, and every policy is written on all nodes that run its pods."""

from __future__ import annotations

from kube.api import meta_v1, networking_v1
from netproxy.errors import PolicyError

MAX_ELEMENTS = 10_000
"""CIDRs with exceptions, or rules of nft, of one policy: reading and writing as many takes about a second."""
MAX_SELECTORS = 1_000
"""Peers by selectors of one policy: each is compared with each pod of the cluster."""
MAX_REQUIREMENTS = 1_000
"""Labels, expressions and values of expressions of one selector."""
MAX_ALL_REQUIREMENTS = 10_000
"""The same of all selectors of one policy, which are parsed and compared with other policies' in the event loop."""

MAX_MEMBERS = 500_000
"""Pods with addresses that the peers of the policies of one namespace select, counted for each selector and each of its named
ports: each may be an element in the kernel. A policy in a cluster of 100 000 pods may have five selectors of all."""
TOO_MANY_MEMBERS = (
    f"the peers of its namespace's policies select more than {MAX_MEMBERS} pods, counted for each selector"
)
MAX_PORTS_ALIKE = 4
"""Ports of a pod with the same name and protocol that a policy allows by this name: several containers may each have one. They
count as one above."""
MAX_NAMED_PORTS = 1_000
"""Ports of a pod that policies find by name: each is read whenever the pods of a selector change."""
MAX_ALIKE = 100
"""Different peers of the policies of one namespace that are found by the same label, or by none: each is compared with all pods
that have it. A peer that requires several labels is found by the one with the fewest (placement.py)."""
TOO_MANY_ALIKE = (
    f"its namespace's policies have more than {MAX_ALIKE} different peers that ask for one label, or for none"
)
MAX_SUBJECTS_ALIKE = 500
"""Different selectors of isolated pods in one namespace that are found by the same label, or by none: each is compared with all
pods of the namespace that have it."""
TOO_MANY_SUBJECTS_ALIKE = (
    f"its namespace's policies have more than {MAX_SUBJECTS_ALIKE} different selectors of the pods that they isolate that "
    "ask for one label, or for none; it isolates all pods of the namespace"
)
MAX_COST = 20_000
"""Pairs of a peer and a port, and address ranges, of the policies of one namespace: nft writes or reads as many in a second."""
MAX_COST_HERE = 40_000
"""The same of the policies of all namespaces that select pods of this node, with the jumps to them from chains of pods: the
time to read them back grows faster than their number. Above it the namespace that costs most loses its largest policy."""
MAX_PAIRS_HERE = 100_000
"""Pairs of a pod of this node and a policy that allows something to or from it: each change looks at all of them. A node of 250
pods may have 400 policies that select all of them."""
TOO_COSTLY = f"its namespace's policies have more than {MAX_COST} pairs of a peer and a port and address ranges"
TOO_COSTLY_HERE = (
    f"the policies for pods of the node have more than {MAX_COST_HERE} pairs of a peer and a port, address ranges and "
    "jumps, its namespace's the most"
)
TOO_MANY_PAIRS_HERE = (
    f"the policies for pods of the node select more than {MAX_PAIRS_HERE} pods, counted for each policy and direction, "
    "its namespace's the most"
)


def check_cost(spec: networking_v1.NetworkPolicySpec) -> None:
    """Raise PolicyError for a policy that costs too much, without reading its parts."""
    rules = [*((each.from_, each.ports) for each in spec.ingress), *((each.to, each.ports) for each in spec.egress)]
    selectors = cidrs = matches = 0
    for peers, ports in rules:
        blocks = [each.ip_block for each in peers if each.ip_block is not None]
        selectors += len(peers) - len(blocks)
        cidrs += len(blocks) + sum(len(block.except_) for block in blocks)
        matches += (len(peers) - len(blocks) + 1) * max(1, len(ports))
    requirements = check_selector(spec.pod_selector) if spec.pod_selector else 0
    for peers in (peers for peers, _ in rules) if selectors <= MAX_SELECTORS else ():
        for peer in peers:
            requirements += check_selector(peer.pod_selector) if peer.pod_selector else 0
            requirements += check_selector(peer.namespace_selector) if peer.namespace_selector else 0
    for count, limit, what in (
        (cidrs, MAX_ELEMENTS, "address ranges and exceptions"),
        (matches, MAX_ELEMENTS, "pairs of a peer and a port"),
        (selectors, MAX_SELECTORS, "peers by selectors"),
        (requirements, MAX_ALL_REQUIREMENTS, "labels, expressions and values of selectors"),
    ):
        if count > limit:
            raise PolicyError(f"it has {count} {what}; {limit} are enforced at most")


def check_selector(selector: meta_v1.LabelSelector) -> int:
    """Return how many labels, expressions and values a selector has; PolicyError for more than it may have."""
    count = len(selector.match_labels) + len(selector.match_expressions)
    if selector.match_expressions and count <= MAX_REQUIREMENTS:
        count += sum([len(each.values) for each in selector.match_expressions])
    if count > MAX_REQUIREMENTS:
        raise PolicyError(
            f"a selector of it has {count} labels, expressions and values; {MAX_REQUIREMENTS} are enforced at most"
        )
    return count
