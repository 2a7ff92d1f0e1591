"""A pod's resource requests and host ports, summed up once: each new pod is compared with all pods of the node."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.cgroups import qos
from kube import host_ports
from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class PodRequests:
    """A pod, its requests by resource, and the addresses of its host ports by protocol and number."""

    pod: core_v1.Pod
    requests: Mapping[str, int]
    ports: Mapping[tuple[str, int], Collection[str]]

    @classmethod
    def of(cls, pod: core_v1.Pod) -> PodRequests:
        return cls(pod, qos.pod_requests(pod), host_ports.by_number(ports_of(pod)))

    def covering(self, other: PodRequests) -> PodRequests:
        """Return the pod with the larger request of both for each resource."""
        names = self.requests.keys() | other.requests.keys()
        larger = {name: max(self.requests.get(name, 0), other.requests.get(name, 0)) for name in names}
        return PodRequests(self.pod, larger, self.ports)


def ports_of(pod: core_v1.Pod) -> list[host_ports.HostPort]:
    """Return the ports of the node that a pod's containers request."""
    return [
        (port.host_ip or host_ports.EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for port in container.ports
        if port.host_port
    ]
