"""Network policies that let no connection reach a pod."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kube.api import core_v1, networking_v1
from kube.object_names import name_of, namespace_of
from kube.selectors import from_label_selector
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference


async def blocked(diagnosis: Diagnosis, pod: core_v1.Pod, ports: Sequence[core_v1.ServicePort]) -> Sequence[Cause]:
    """Return a cause for a port of a Service that no policy opens on a pod which policies isolate."""
    policies = [each for each in await policies_of(diagnosis, pod) if _restricts_ingress(each)]
    if not policies or pod.spec.host_network:
        return ()
    for port in ports:
        number, protocol = _target(pod, port), port.protocol or "TCP"
        if any(_opens(rule, number, protocol, pod) for each in policies if each.spec for rule in each.spec.ingress):
            continue
        names, first = " and ".join(name_of(each) for each in policies), policies[0]
        subject = f"network policies {names} let" if len(policies) > 1 else f"network policy {names} lets"
        text = f"{subject} no connection reach port {number} of {reference(pod)}"
        rule = {"ports": [{"port": number, "protocol": protocol}]}
        rules = [*_plain(first), rule]
        return [
            Cause(text, commands.patch(reference(first), {"spec": {"ingress": rules}}, merge=True), reference(first))
        ]
    return ()


async def policies_of(diagnosis: Diagnosis, pod: core_v1.Pod) -> list[networking_v1.NetworkPolicy]:
    """Return the policies that select a pod."""
    found = await diagnosis.reader.all(networking_v1.NetworkPolicy, namespace_of(pod))
    return [
        each
        for each in found
        if each.spec is not None and from_label_selector(each.spec.pod_selector or {}).matches(pod.metadata.labels)
    ]


def _restricts_ingress(policy: networking_v1.NetworkPolicy) -> bool:
    spec = policy.spec
    return spec is not None and (not spec.policy_types or "Ingress" in spec.policy_types)


def _target(pod: core_v1.Pod, port: core_v1.ServicePort) -> int:
    """Return the number of the pod's port that a Service's port leads to."""
    target = port.target_port if port.target_port is not None else port.port
    if isinstance(target, int) or target.isdigit():
        return int(target)
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for declared in container.ports:
            if declared.name == target:
                return declared.container_port
    return port.port


def _opens(rule: networking_v1.NetworkPolicyIngressRule, number: int, protocol: str, pod: core_v1.Pod) -> bool:
    """Return whether a rule allows connections to a port, from anywhere or from some peers."""
    if not rule.ports:
        return True
    for each in rule.ports:
        if (each.protocol or "TCP") != protocol:
            continue
        if each.port is None:
            return True
        if isinstance(each.port, int):
            if each.port <= number <= (each.end_port or each.port):
                return True
        elif any(p.name == each.port and p.container_port == number for c in pod.spec.containers for p in c.ports):
            return True
    return False


def _plain(policy: networking_v1.NetworkPolicy) -> list[object]:
    found: list[object] = msgspec.to_builtins(policy.spec.ingress if policy.spec is not None else [])
    return found
