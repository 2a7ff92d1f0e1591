"""Network policies between one client pod and a Service: in both directions, and to the cluster's DNS."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from kube.api import core_v1, networking_v1
from kube.object_names import name_of, namespace_of
from kube.selectors import from_label_selector, from_map
from wherry.why.causes.pod_ports import Rule, of_pod, of_rule
from wherry.why.causes.policies import EGRESS, INGRESS, Policy, isolating, names, with_rule
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

DNS_NAMESPACE, DNS_SERVICE = "kube-system", "kube-dns"


async def path(diagnosis: Diagnosis, client: core_v1.Pod, service: core_v1.Service) -> Sequence[Cause]:
    """Return the policies that stop connections of a pod to the pods of a Service, and its lookups of names."""
    found = await _to_service(diagnosis, client, service)
    if (namespace_of(service), name_of(service)) == (DNS_NAMESPACE, DNS_SERVICE):
        return found
    return [*found, *await _dns(diagnosis, client)]


async def _to_service(diagnosis: Diagnosis, client: core_v1.Pod, service: core_v1.Service) -> list[Cause]:
    spec = service.spec or core_v1.ServiceSpec()
    pods = await _pods(diagnosis, service)
    outgoing = await isolating(diagnosis, client, EGRESS)
    found: list[Cause] = []
    for pod in pods:
        if pod.metadata.uid == client.metadata.uid:  # a pod always reaches itself
            continue
        incoming = await isolating(diagnosis, pod, INGRESS)
        if client.spec.host_network and client.spec.node_name == pod.spec.node_name:
            incoming = []  # nor is traffic of a node to its own pods stopped
        for port in spec.ports:
            number, protocol = (await of_pod(diagnosis, pod)).number_at(port), port.protocol or "TCP"
            if number is None:
                continue
            if outgoing and not await _allows(diagnosis, outgoing, EGRESS, pod, number, protocol, pod):
                found.append(_stopped(outgoing, EGRESS, client, pod, number, protocol))
            if incoming and not await _allows(diagnosis, incoming, INGRESS, client, number, protocol, pod):
                found.append(_stopped(incoming, INGRESS, client, pod, number, protocol))
        if found:
            return found
    return found


async def _dns(diagnosis: Diagnosis, client: core_v1.Pod) -> Sequence[Cause]:
    """Return the policies that stop a pod's lookups of names, which come before a connection to a Service's name."""
    outgoing = await isolating(diagnosis, client, EGRESS)
    service = await diagnosis.reader.get(core_v1.Service, DNS_SERVICE, DNS_NAMESPACE) if outgoing else None
    if service is None:
        return ()
    pods = await _pods(diagnosis, service)
    if not pods:  # the nodes answer themselves, which no policy stops
        return ()
    number = 53
    for pod in pods:
        own = await of_pod(diagnosis, pod)
        number = next((own.number_at(port) for port in service.spec.ports if port.protocol == "UDP"), None) or 53
        if await _allows(diagnosis, outgoing, EGRESS, pod, number, "UDP", pod):
            return ()
    first = outgoing[0]
    text = (
        f"{names(outgoing)} {reference(client)} look up no names: connections to cluster DNS (port 53/UDP) are stopped"
    )
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": DNS_NAMESPACE}}}
    rule = {
        "to": [{"podSelector": {"matchLabels": service.spec.selector}, **where}],
        "ports": [{"port": number, "protocol": each} for each in ("UDP", "TCP")],
    }
    return [Cause(text, with_rule(first, EGRESS, rule), reference(first))]


async def _pods(diagnosis: Diagnosis, service: core_v1.Service) -> Sequence[core_v1.Pod]:
    selector = service.spec.selector if service.spec is not None else {}
    if not selector:
        return ()
    found = await diagnosis.reader.all(core_v1.Pod, namespace_of(service), label_selector=str(from_map(selector)))
    return [pod for pod in found if pod.status.phase not in ("Succeeded", "Failed")]


async def _allows(
    diagnosis: Diagnosis,
    policies: Sequence[Policy],
    direction: str,
    peer: core_v1.Pod,
    number: int,
    protocol: str,
    server: core_v1.Pod,
) -> bool:
    """Return whether a rule allows connections with a peer. `server` is the pod that is connected to."""
    ports = await of_pod(diagnosis, server)
    for policy in policies:
        rules: Sequence[Rule] = policy.spec.egress if direction == EGRESS else policy.spec.ingress
        for rule in rules:
            peers = rule.to if isinstance(rule, networking_v1.NetworkPolicyEgressRule) else rule.from_
            await diagnosis.time_slice.step()
            if not (await of_rule(diagnosis, rule)).opens(number, protocol, ports):
                continue
            if not peers:
                return True
            for each in peers:
                if await _is_peer(diagnosis, each, policy, peer):
                    return True
    return False


async def _is_peer(
    diagnosis: Diagnosis,
    peer: networking_v1.NetworkPolicyPeer,
    policy: Policy,
    pod: core_v1.Pod,
) -> bool:
    if peer.ip_block is not None:
        return any(_inside(each.ip, peer.ip_block) for each in pod.status.pod_ips if each.ip)
    if pod.spec.host_network:
        return False
    if peer.namespace_selector is None:
        if namespace_of(pod) != namespace_of(policy):
            return False
    else:
        namespace = await diagnosis.reader.get(core_v1.Namespace, namespace_of(pod))
        labels = (
            namespace.metadata.labels if namespace is not None else {"kubernetes.io/metadata.name": namespace_of(pod)}
        )
        if not from_label_selector(peer.namespace_selector).matches(labels):
            return False
    return peer.pod_selector is None or from_label_selector(peer.pod_selector).matches(pod.metadata.labels)


def _inside(address: str, block: networking_v1.IPBlock) -> bool:
    try:
        found = ipaddress.ip_address(address)
        return found in ipaddress.ip_network(block.cidr, strict=False) and not any(
            found in ipaddress.ip_network(each, strict=False) for each in block.except_
        )
    except ValueError:
        return False


def _stopped(
    policies: Sequence[Policy], direction: str, client: core_v1.Pod, pod: core_v1.Pod, number: int, protocol: str
) -> Cause:
    peer = pod if direction == EGRESS else client
    key = "to" if direction == EGRESS else "from"
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace_of(peer)}}}
    rule = {
        key: [{"podSelector": {"matchLabels": peer.metadata.labels}, **where}],
        "ports": [{"port": number, "protocol": protocol}],
    }
    what = "connections of" if direction == EGRESS else "connections to"
    subject = client if direction == EGRESS else pod
    text = (
        f"{names(policies)} no connection of {reference(client)} reach port {number} of {reference(pod)}: no rule for "
        f"{what} {reference(subject)} allows it"
    )
    first = policies[0]
    return Cause(text, with_rule(first, direction, rule), reference(first))
