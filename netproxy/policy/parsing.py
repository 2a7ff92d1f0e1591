"""NetworkPolicies as the API has them to those of the model. No I/O."""

from __future__ import annotations

from kube import selectors
from kube.api import networking_v1
from kube.client import key_of
from netproxy.address_ranges import allowed
from netproxy.errors import PolicyError
from netproxy.policy.limits import check_cost
from netproxy.policy.model import EGRESS, INGRESS, Policy, Port, Rule
from netproxy.policy.selector import Selector


def parse(policy: networking_v1.NetworkPolicy) -> Policy:
    """Read a policy; PolicyError or SelectorError for one that cannot be enforced."""
    check_cost(policy.spec)
    spec, namespace, types = policy.spec, policy.metadata.namespace or "", _types(policy.spec)
    rules: dict[str, tuple[Rule, ...]] = {}
    if "Ingress" in types:
        rules[INGRESS] = tuple(_rule(namespace, each.from_, each.ports) for each in spec.ingress)
    if "Egress" in types:
        rules[EGRESS] = tuple(_rule(namespace, each.to, each.ports) for each in spec.egress)
    return Policy(key_of(policy), _subject(policy), rules)


def read(policy: networking_v1.NetworkPolicy) -> tuple[Policy, str]:
    """Return a policy and "", or for one that cannot be enforced a closed one and why."""
    try:
        return parse(policy), ""
    except (PolicyError, selectors.SelectorError) as error:
        return closed(policy), str(error)


def closed(policy: networking_v1.NetworkPolicy) -> Policy:
    """Return a policy that selects the same pods and allows nothing, for one that cannot be enforced: it fails closed.

    Where even its selector cannot be read, it selects the whole namespace.
    """
    try:
        subject = _subject(policy)
    except selectors.SelectorError:
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
    selector = policy.spec.pod_selector
    pods = selectors.from_label_selector(selector) if selector else selectors.EVERYTHING
    return Selector(pods, policy.metadata.namespace or "")


def _types(spec: networking_v1.NetworkPolicySpec) -> list[str]:
    """Return policyTypes, by default as upstream: Ingress, and Egress where there are egress rules."""
    return spec.policy_types or (["Ingress", "Egress"] if spec.egress else ["Ingress"])


def _rule(
    namespace: str, peers: list[networking_v1.NetworkPolicyPeer], ports: list[networking_v1.NetworkPolicyPort]
) -> Rule:
    chosen: dict[Selector, None] = {}
    for peer in peers:
        if peer.ip_block is not None:
            continue
        pods = selectors.from_label_selector(peer.pod_selector) if peer.pod_selector else selectors.EVERYTHING
        if peer.namespace_selector is None:
            chosen[Selector(pods, namespace)] = None
        else:
            chosen[Selector(pods, namespaces=selectors.from_label_selector(peer.namespace_selector))] = None
    return Rule(
        anyone=not peers,
        peers=tuple(chosen),
        blocks=allowed((each.ip_block.cidr, each.ip_block.except_) for each in peers if each.ip_block is not None),
        ports=tuple(_port(each) for each in ports),
    )


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
