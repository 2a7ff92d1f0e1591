"""Parses NetworkPolicies of the API. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable

from kube import selectors
from kube.api import meta_v1, networking_v1
from kube.object_names import key_of
from netproxy.address_ranges import allowed_in_slices
from netproxy.errors import PolicyError
from netproxy.policy.limits import check_cost, check_selector
from netproxy.policy.model import EGRESS, INGRESS, Policy, Port, Rule
from netproxy.policy.selector import Selector
from netproxy.slices import run_to_end

SLICE = 100
"""Rules, peers and ports that are read between suspensions. A peer has two selectors at most, all of a policy as much as
limits.py allows."""


def parse(policy: networking_v1.NetworkPolicy) -> Policy:
    """Read a policy; PolicyError or SelectorError for one that cannot be enforced."""
    return run_to_end(_parse(policy))


def _parse(policy: networking_v1.NetworkPolicy) -> Generator[None, None, Policy]:
    check_cost(policy.spec)
    spec, namespace, types = policy.spec, policy.metadata.namespace or "", _types(policy.spec)
    subject, rules = _subject(policy), dict[str, tuple[Rule, ...]]()
    if "Ingress" in types:
        rules[INGRESS] = yield from _rules(namespace, ((each.from_, each.ports) for each in spec.ingress))
    if "Egress" in types:
        rules[EGRESS] = yield from _rules(namespace, ((each.to, each.ports) for each in spec.egress))
    return Policy(key_of(policy), subject, rules)


def read(policy: networking_v1.NetworkPolicy) -> Generator[None, None, tuple[Policy, str]]:
    """Return a policy and "", or for one that cannot be enforced a closed one and why; in slices."""
    try:
        return (yield from _parse(policy)), ""
    except (PolicyError, selectors.SelectorError) as error:
        return closed(policy), str(error)


def closed(policy: networking_v1.NetworkPolicy) -> Policy:
    """Return a policy that selects the same pods and allows nothing, for one that cannot be enforced: it fails closed.

    Where even its selector cannot be read, or requests too much, it selects the whole namespace.
    """
    try:
        subject = _subject(policy)
    except (PolicyError, selectors.SelectorError):
        subject = Selector(namespace=policy.metadata.namespace or "")
    return _without_rules(policy, subject)


def closed_for_all(policy: networking_v1.NetworkPolicy) -> Policy:
    """Return a closed policy that selects its whole namespace, for one whose selectors fail."""
    return _without_rules(policy, Selector(namespace=policy.metadata.namespace or ""))


def _without_rules(policy: networking_v1.NetworkPolicy, subject: Selector) -> Policy:
    kinds = {"Ingress": INGRESS, "Egress": EGRESS}
    return Policy(key_of(policy), subject, {kinds[each]: () for each in _types(policy.spec) if each in kinds})


def _subject(policy: networking_v1.NetworkPolicy) -> Selector:
    # A policy without a podSelector, as a server might send one, selects the whole namespace like an empty one.
    selector, namespace = policy.spec.pod_selector, policy.metadata.namespace or ""
    if selector is None:
        return Selector(namespace=namespace)
    check_selector(selector)
    return Selector(_selector(selector), namespace)


def _types(spec: networking_v1.NetworkPolicySpec) -> list[str]:
    """Return policyTypes, by default as upstream: Ingress, and Egress where there are egress rules."""
    return spec.policy_types or (["Ingress", "Egress"] if spec.egress else ["Ingress"])


def _rules(
    namespace: str,
    rules: Iterable[tuple[list[networking_v1.NetworkPolicyPeer], list[networking_v1.NetworkPolicyPort]]],
) -> Generator[None, None, tuple[Rule, ...]]:
    found, count = [], itertools.count(1)
    for peers, ports in rules:
        chosen: dict[Selector, None] = {}
        for peer in peers:
            if peer.ip_block is None:
                chosen[_peer(namespace, peer)] = None
            if not next(count) % SLICE:
                yield
        blocks = yield from allowed_in_slices(
            (each.ip_block.cidr, each.ip_block.except_) for each in peers if each.ip_block is not None
        )
        read = []
        for port in ports:
            read.append(_port(port))
            if not next(count) % SLICE:
                yield
        found.append(Rule(not peers, tuple(chosen), blocks, tuple(read)))
        if not next(count) % SLICE:
            yield
    return tuple(found)


def _peer(namespace: str, peer: networking_v1.NetworkPolicyPeer) -> Selector:
    pods = _selector(peer.pod_selector) if peer.pod_selector else selectors.EVERYTHING
    if peer.namespace_selector is None:
        return Selector(pods, namespace)
    return Selector(pods, namespaces=_selector(peer.namespace_selector))


def _selector(selector: meta_v1.LabelSelector) -> selectors.LabelSelector:
    """Read a selector, whose limits are checked."""
    found = selectors.from_label_selector(selector)
    found.matches({})  # the first comparison joins its requirements: now, rather than those of all policies with a pod
    return found


def _port(port: networking_v1.NetworkPolicyPort) -> Port:
    protocol = port.protocol or "TCP"
    if port.port is None:
        return Port(protocol)
    if isinstance(port.port, str):
        return Port(protocol, name=port.port)
    last = port.end_port or port.port
    if not 0 < port.port <= last <= 65535:
        raise PolicyError(f"{port.port} to {last} are no ports")
    return Port(protocol, port.port, last)
