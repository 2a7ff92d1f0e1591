"""Obstacles of a node for a pod: resources, places for pods, ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kube.api import core_v1
from kube.host_ports import EVERY_ADDRESS, HostPort, by_number, overlap
from kube.object_names import name_of, namespace_of
from kube.pod_requests import Amounts, add, amounts, pod_requests
from wherry.why import commands
from wherry.why.amounts import at_most, text
from wherry.why.model import Reference, reference

MOST_PODS = 110
"""Pods of a node that does not say how many it may have."""


class Obstacle(msgspec.Struct, frozen=True):
    """A reason why a pod does not fit a node. Of two obstacles the one with the smaller weight is removed more easily."""

    kind: str
    text: str
    fix: str
    weight: int = 1


def resource_obstacles(
    pod: core_v1.Pod, node: core_v1.Node, pods: Sequence[core_v1.Pod], largest: Amounts, change: Reference
) -> Iterable[Obstacle]:
    """Yield an obstacle for each resource that a node has too little of.

    pods: those on the node. largest: the most that a node of the cluster has. change: the object with the pod's template.
    """
    name = name_of(node)
    capacity = amounts(node.status.allocatable)
    used: Amounts = {}
    for other in pods:
        add(used, pod_requests(other))
    if len(pods) >= capacity.get("pods", MOST_PODS):
        fix = commands.words("kubectl", "get", "pods", "-A", "--field-selector", f"spec.nodeName={name}")
        yield Obstacle("pods", f"node {name} has {len(pods)} pods, as many as it may", fix, 2)
    for resource, amount in pod_requests(pod).items():
        whole, most = capacity.get(resource, 0), largest.get(resource, 0)
        free = max(0, whole - used.get(resource, 0))
        if amount <= free or not amount:
            continue
        sentence = f"it requests {text(resource, amount)} of {resource}, and "
        if amount > most:
            sentence += f"no node has more than {text(resource, most)}"
        else:
            sentence += f"node {name} has {text(resource, free)} of {text(resource, whole)} left"
        yield Obstacle(f"resource {resource}", sentence, _smaller(pod, resource, free, amount, change), 3)
    yield from _ports(pod, name, pods, change)


def _smaller(pod: core_v1.Pod, resource: str, free: int, wanted: int, change: Reference) -> str:
    """Return the command that makes the pod's requests fit, by that of the container that requests the most."""
    largest = max(pod.spec.containers, key=lambda each: _requested(each, resource))
    fits = _requested(largest, resource) - (wanted - free)
    if resource not in ("cpu", "memory") or fits <= 0:
        return commands.edit(change)
    amount = at_most(resource, fits)
    limits = f"{resource}={amount}" if _limited(largest, resource) else ""
    return commands.set_resources(change, largest.name, requests=f"{resource}={amount}", limits=limits)


def _requested(container: core_v1.Container, resource: str) -> int:
    resources = container.resources
    if resources is None:
        return 0
    return amounts({**resources.limits, **resources.requests}).get(resource, 0)


def _limited(container: core_v1.Container, resource: str) -> bool:
    return container.resources is not None and resource in container.resources.limits


def _ports(pod: core_v1.Pod, node: str, pods: Iterable[core_v1.Pod], change: Reference) -> Iterable[Obstacle]:
    """Yield the obstacle of a taken port. The other pod is deleted only if it is of the same namespace."""
    wanted = by_number(_host_ports(pod))
    for other in pods if wanted else ():
        taken = by_number(_host_ports(other))
        for protocol, port in sorted(wanted.keys() & taken.keys()):
            if overlap({(protocol, port): wanted[protocol, port]}, taken):
                holder = reference(other)
                sentence = f"port {port}/{protocol} of node {node} is taken by {holder} in {holder.namespace}"
                own = holder.namespace == namespace_of(pod)
                fix = commands.kubectl("delete", holder) if own else commands.edit(change)
                yield Obstacle(f"port {port}", sentence, fix, 2)
                return


def _host_ports(pod: core_v1.Pod) -> list[HostPort]:
    return [
        (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
        if port.host_port
    ]
