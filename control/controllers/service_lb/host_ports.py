"""Host ports of pods, which load balancers leave to them. Only pods that run count: their own node says so in their status.

The host port of a pod reserves it at the addresses of all nodes, as the pod may move, and a DaemonSet's do one after another.
That of a mirror pod, which a node creates by itself, reserves it at this node's addresses alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from control.controllers.service_lb.ports import Port
from control.controllers.step_counter import StepCounter
from kube.api import core_v1
from kube.informer import Informer
from kube.object_names import key_of

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of mirror pods. Only their creator sets it."""
HOST_PORT, MIRROR_PORT = "host-port", "mirror-port"
"""Names of indexes: pods by host port, mirror pods by node, and by node and host port."""


def host_ports_of(pod: core_v1.Pod) -> list[Port]:
    """Return the ports of its node that a pod has taken: none before a container of it runs, or once it has ended."""
    status = pod.status
    started = status.phase == "Running" or any(_runs(each) for each in status.init_container_statuses)
    if not pod.spec.node_name or status.phase in ("Succeeded", "Failed") or not started:
        return []
    every = [*pod.spec.init_containers, *pod.spec.containers]
    return [(port.protocol or "TCP", port.host_port) for each in every for port in each.ports if port.host_port]


def is_mirror(pod: core_v1.Pod) -> bool:
    """Return whether a pod shows a static pod of its node."""
    return MIRROR in pod.metadata.annotations


def _runs(status: core_v1.ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None


def _reserved(pod: core_v1.Pod) -> list[str]:
    ports = () if is_mirror(pod) else host_ports_of(pod)
    return [f"{protocol}/{number}" for protocol, number in ports]


def _reserved_on_node(pod: core_v1.Pod) -> list[str]:
    """Return the node of a mirror pod with host ports, and each of them on this node."""
    ports, node = host_ports_of(pod) if is_mirror(pod) else (), pod.spec.node_name or ""
    return [node, *(f"{node}/{protocol}/{number}" for protocol, number in ports)] if ports else []


def add_indexes(pods: Informer[core_v1.Pod]) -> None:
    """Add the indexes HOST_PORT and MIRROR_PORT."""
    pods.add_index(HOST_PORT, _reserved)
    pods.add_index(MIRROR_PORT, _reserved_on_node)


class HostPorts:
    """Finds pods by their host ports."""

    def __init__(self, pods: Informer[core_v1.Pod]) -> None:
        add_indexes(pods)
        self._pods = pods

    def users(self, port: Port) -> Iterable[core_v1.Pod]:
        """Return the pods that have a host port, without mirror pods."""
        return self._pods.by_index(HOST_PORT, f"{port[0]}/{port[1]}")

    async def user_on(
        self, node: str, ports: Set[Port], service: core_v1.Service, counter: StepCounter
    ) -> tuple[Port, str] | None:
        """Return one of some ports that a mirror pod of a node has, with its key; pods behind the Service do not count."""
        for port in sorted(ports) if self._pods.has_index(MIRROR_PORT, node) else ():
            await counter.count()
            for pod in self._pods.by_index(MIRROR_PORT, f"{node}/{port[0]}/{port[1]}"):
                await counter.count()
                if not is_behind(pod, service):
                    return port, key_of(pod)
        return None


def is_behind(pod: core_v1.Pod, service: core_v1.Service) -> bool:
    """Return whether a pod is behind a Service: its host port may then be the Service's too."""
    wanted, labels = service.spec.selector, pod.metadata.labels
    same = service.metadata.namespace == pod.metadata.namespace
    return same and bool(wanted) and wanted.items() <= labels.items()
