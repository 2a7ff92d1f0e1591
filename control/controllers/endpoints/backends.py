"""Selects the pods of a Service, with two look-ups: services of a pod, pods of a service.

Both go by one label pair first (the rarest of a selector's first pairs), so a change costs the same however many Services and
pods a namespace has. A selector and a pod's labels may both be of 1 MiB: such comparisons yield to the event loop
(selector_index.py), and a pod of many labels is not indexed by each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from control.controllers.selector_index import MOST_DEMANDED, CompiledSelectorIndex
from control.controllers.step_counter import StepCounter, selects
from kube.api import core_v1
from kube.informer import Change, Informer
from kube.ip_addresses import canonical

PAIR = "label-pair"
"""Name of the pods index by namespace and label."""
MANY = 256
"""Labels of a pod beyond which it is in the index of its namespace's pods of many labels only."""

MOST_NAMES = 10
"""Pods that an entry of the journal names."""


def by_label_pair(pod: core_v1.Pod) -> Iterable[str]:
    """Index function: "namespace/key=value" for each label, or "namespace/" for a pod of many."""
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    return [f"{namespace}/{key}={value}" for key, value in labels.items()] if len(labels) <= MANY else [f"{namespace}/"]


def selecting_services(services: Informer[core_v1.Service]) -> CompiledSelectorIndex[core_v1.Service]:
    """Return the selectors of Services; one without a selector selects nothing."""
    return CompiledSelectorIndex(services, lambda service: service.spec.selector or None)


async def pods_of(
    service: core_v1.Service, pods: Informer[core_v1.Pod], selecting: CompiledSelectorIndex[core_v1.Service]
) -> list[core_v1.Pod]:
    """Return the pods that a Service's selector matches; the informer has the index above."""
    folder = f"{service.metadata.namespace}/"
    pairs = [f"{folder}{key}={value}" for key, value in islice(service.spec.selector.items(), MOST_DEMANDED)]
    if not pairs:
        return []
    selector, counter, found = await selecting.of(service), StepCounter(), list[core_v1.Pod]()
    rarest = min(pairs, key=lambda pair: pods.count(PAIR, pair))
    for pod in (*pods.by_index(PAIR, rarest), *pods.by_index(PAIR, folder)):
        if await selects(selector, pod.metadata.labels, counter):
            found.append(pod)
    return found


def follow_pods(
    pods: Informer[core_v1.Pod], services: CompiledSelectorIndex[core_v1.Service], enqueue: Callable[[str], None]
) -> None:
    """Call `enqueue` with every Service whose endpoints a pod's change may touch."""

    def changed(change: Change[core_v1.Pod]) -> None:
        old, new = change.old, change.new
        if change.type == "MODIFIED" and old is not None:
            moved = old.metadata.labels != new.metadata.labels
            if not moved and facts(old) == facts(new):
                return
            if moved:
                services.each(old.metadata.namespace or "", old.metadata.labels, enqueue)
        services.each(new.metadata.namespace or "", new.metadata.labels, enqueue)

    pods.subscribe(changed)


def facts(pod: core_v1.Pod) -> tuple[object, ...]:
    """Return all that endpoints are made from."""
    return (
        pod.metadata.deletion_timestamp is not None,
        pod.status.phase in ("Succeeded", "Failed"),
        is_ready(pod),
        [ip.ip for ip in pod.status.pod_ips] or pod.status.pod_ip,
        pod.spec.node_name,
        pod.spec.hostname,
        pod.spec.subdomain,
    )


def is_ready(pod: core_v1.Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def is_backend(pod: core_v1.Pod, *, include_terminating: bool) -> bool:
    """True if a pod can be an endpoint: it has an address, has not finished, and maybe is not going away."""
    if pod.status.phase in ("Succeeded", "Failed") or not addresses(pod):
        return False
    return include_terminating or pod.metadata.deletion_timestamp is None


def addresses(pod: core_v1.Pod) -> list[str]:
    """Return a pod's addresses in their canonical form, which slices require."""
    found = [each.ip for each in pod.status.pod_ips] or ([pod.status.pod_ip] if pod.status.pod_ip else [])
    return [canonical(ip) for ip in found]


def named_ports(pod: core_v1.Pod) -> dict[tuple[str, str], int]:
    """Return the numbers of a pod's ports by name and protocol; of several the first container's counts."""
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    found: dict[tuple[str, str], int] = {}
    for container in pod.spec.containers + sidecars:
        for port in container.ports:
            if port.name:
                found.setdefault((port.name, port.protocol or "TCP"), port.container_port)
    return found


def by_name(port: core_v1.ServicePort) -> bool:
    """True if a Service's port leads to a port that the pods give a name."""
    return isinstance(port.target_port, str) and port.target_port != ""


def find_port(named: Mapping[tuple[str, str], int], port: core_v1.ServicePort) -> int | None:
    """Return the number of the pod's port that a Service's port leads to; None if the pod does not name it."""
    if by_name(port):
        return named.get(name_wanted(port))
    return port.target_port if isinstance(port.target_port, int) and port.target_port else port.port


def name_wanted(port: core_v1.ServicePort) -> tuple[str, str]:
    """Return the name and protocol of the pods' port that a Service's port leads to by name."""
    return str(port.target_port), port.protocol or "TCP"


def hostname_of(pod: core_v1.Pod, service: core_v1.Service) -> str | None:
    """Return the DNS name that a pod has under a headless Service, where it requests one."""
    asks = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return pod.spec.hostname if asks else None


def target_of(pod: core_v1.Pod) -> core_v1.ObjectReference:
    metadata = pod.metadata
    return core_v1.ObjectReference(kind="Pod", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)


def is_headless(service: core_v1.Service) -> bool:
    return service.spec.cluster_ip == "None"


def without_traffic(service: core_v1.Service, pods: Iterable[core_v1.Pod]) -> str:
    """Return for the journal the selected pods that get no traffic, "" if there are none."""
    if service.spec.publish_not_ready_addresses:
        return ""
    unready = [pod for pod in pods if not is_ready(pod)]
    named = ", ".join(pod.metadata.name or "" for pod in unready[:MOST_NAMES])
    more = f" and {len(unready) - MOST_NAMES} more" if len(unready) > MOST_NAMES else ""
    return f"leaves out pods that are not Ready: {named}{more}" if unready else ""
