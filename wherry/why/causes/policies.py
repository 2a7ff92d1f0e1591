"""Network policies in front of a Service's pods: those that let no connection reach a port, and those that let some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kube.api import core_v1, networking_v1
from kube.object_names import name_of, namespace_of
from kube.selectors import from_label_selector
from wherry.why import commands
from wherry.why.causes.service_ports import number_at
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

Policy = networking_v1.NetworkPolicy
INGRESS, EGRESS = "Ingress", "Egress"
MOST_PEERS = 5


async def blocked(
    diagnosis: Diagnosis, pods: Sequence[core_v1.Pod], ports: Sequence[core_v1.ServicePort]
) -> Sequence[Cause]:
    """Return a cause for a port of a Service that no policy opens on a pod which policies isolate."""
    for pod in pods:
        policies = await isolating(diagnosis, pod, INGRESS)
        for port in ports if policies else ():
            number, protocol = number_at(pod, port), port.protocol or "TCP"
            if number is not None and not _opening(policies, number, protocol, pod):
                return [_closed(pod, policies, number, protocol)]
    return ()


async def limited(
    diagnosis: Diagnosis, pods: Sequence[core_v1.Pod], ports: Sequence[core_v1.ServicePort]
) -> Sequence[Cause]:
    """Return a cause for a port of a Service that policies open for some peers only."""
    for pod in pods:
        policies = await isolating(diagnosis, pod, INGRESS)
        for port in ports if policies else ():
            number, protocol = number_at(pod, port), port.protocol or "TCP"
            rules = _opening(policies, number, protocol, pod) if number is not None else []
            if rules and all(rule.from_ for rule in rules):
                return [_some(pod, policies, number or 0, [peer for rule in rules for peer in rule.from_])]
    return ()


async def isolating(diagnosis: Diagnosis, pod: core_v1.Pod, direction: str) -> list[Policy]:
    """Return the policies that isolate a pod for connections to it (Ingress) or from it (Egress)."""
    if pod.spec.host_network:
        return []
    found = await diagnosis.reader.all(networking_v1.NetworkPolicy, namespace_of(pod))
    return [
        each
        for each in found
        if direction in types_of(each)
        and from_label_selector(each.spec.pod_selector or {}).matches(pod.metadata.labels)
    ]


def types_of(policy: Policy) -> Sequence[str]:
    """Return the directions that a policy isolates pods for."""
    return policy.spec.policy_types or [INGRESS, *([EGRESS] if policy.spec.egress else [])]


def names(policies: Sequence[Policy]) -> str:
    """Return the names of policies as the subject of a sentence, with the verb "let"."""
    text = " and ".join(name_of(each) for each in policies)
    return f"network policies {text} let" if len(policies) > 1 else f"network policy {text} lets"


def opens(ports: Sequence[networking_v1.NetworkPolicyPort], number: int, protocol: str, pod: core_v1.Pod) -> bool:
    """Return whether a rule's ports have one; names are those of the pod that is connected to."""
    if not ports:
        return True
    for each in ports:
        if (each.protocol or "TCP") != protocol:
            continue
        if each.port is None:
            return True
        if isinstance(each.port, int):
            if each.port <= number <= (each.end_port or each.port):
                return True
        elif (each.port, number, protocol) in _declared(pod):
            return True
    return False


def _declared(pod: core_v1.Pod) -> set[tuple[str, int, str]]:
    return {
        (port.name or "", port.container_port, port.protocol or "TCP")
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
    }


def _opening(
    policies: Iterable[Policy], number: int, protocol: str, pod: core_v1.Pod
) -> list[networking_v1.NetworkPolicyIngressRule]:
    return [rule for each in policies for rule in each.spec.ingress if opens(rule.ports, number, protocol, pod)]


def _closed(pod: core_v1.Pod, policies: Sequence[Policy], number: int, protocol: str) -> Cause:
    first = policies[0]
    text = (
        f"{names(policies)} no connection reach port {number} of {reference(pod)}; the command lets the pods of namespace "
        f"{namespace_of(pod)} reach it on all pods that {name_of(first)} selects"
    )
    plain: list[object] = msgspec.to_builtins(first.spec.ingress)
    rules = [*plain, {"from": [{"podSelector": {}}], "ports": [{"port": number, "protocol": protocol}]}]
    return Cause(text, commands.patch(reference(first), {"spec": {"ingress": rules}}, merge=True), reference(first))


def _some(
    pod: core_v1.Pod, policies: Sequence[Policy], number: int, peers: Sequence[networking_v1.NetworkPolicyPeer]
) -> Cause:
    shown = list(dict.fromkeys(peer_text(peer, namespace_of(pod)) for peer in peers))
    more = f" and {len(shown) - MOST_PEERS} more" if len(shown) > MOST_PEERS else ""
    named = " and ".join(f"network policy {name_of(each)}" for each in policies)
    text = f"only {', '.join(shown[:MOST_PEERS])}{more} may connect to port {number} of {reference(pod)} ({named})"
    return Cause(text, commands.edit(reference(policies[0])), reference(policies[0]), partial=True)


def peer_text(peer: networking_v1.NetworkPolicyPeer, namespace: str) -> str:
    """Return the peers that a rule of a policy in a namespace means, for people."""
    if peer.ip_block is not None:
        less = f" without {', '.join(peer.ip_block.except_)}" if peer.ip_block.except_ else ""
        return f"addresses in {peer.ip_block.cidr}{less}"
    pods = str(from_label_selector(peer.pod_selector)) if peer.pod_selector is not None else ""
    where = str(from_label_selector(peer.namespace_selector)) if peer.namespace_selector is not None else ""
    text = f"pods with {pods}" if pods else "pods"
    if peer.namespace_selector is None:
        return f"{text} of namespace {namespace}"
    return f"{text} of namespaces with {where}" if where else f"{text} of all namespaces"
