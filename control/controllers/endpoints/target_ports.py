"""The numbers behind a Service's ports, pod by pod: a port that leads to a name may have another number in each pod.

A Service and a pod may have thousands of ports each. So the Service's ports are gone through once for all pods that give the
same numbers to the names it wants, and a pod's own ports once.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.controllers.endpoints.backends import by_name, find_port, name_wanted, named_ports
from control.controllers.step_counter import StepCounter
from kube.api import core_v1

Ports = tuple[tuple[str, str, int, str | None], ...]
"""(name, protocol, port, app protocol) of each port, sorted."""


class TargetPorts:
    """The ports of one Service. Pods that lead to the same ports get the same tuple, which its identity stands for."""

    def __init__(self, service: core_v1.Service) -> None:
        self._ports = service.spec.ports
        self._wanted = {name_wanted(port) for port in self._ports if by_name(port)}
        self._known: dict[frozenset[tuple[tuple[str, str], int]], Ports] = {}
        self._of_pods: dict[int, Ports] = {}

    async def read(self, pods: Iterable[core_v1.Pod]) -> None:
        """Find the ports of pods, which are requested afterwards, and let others continue meanwhile."""
        counter = StepCounter()
        for pod in pods:
            before = len(self._known)
            self._of_pods[id(pod)] = self.of(pod)
            new = len(self._known) - before
            named = sum(len(c.ports) for c in pod.spec.containers) if self._wanted else 0
            await counter.count(1 + named + new * len(self._ports))

    def of(self, pod: core_v1.Pod) -> Ports:
        """Return the ports of a pod that the Service leads to, in a stable order."""
        read = self._of_pods.get(id(pod))
        if read is not None:
            return read
        named = named_ports(pod) if self._wanted else {}
        ours = frozenset((name, number) for name, number in named.items() if name in self._wanted)
        found = self._known.get(ours)
        if found is None:
            found = self._known[ours] = self._resolved(dict(ours))
        return found

    def _resolved(self, named: dict[tuple[str, str], int]) -> Ports:
        found = []
        for port in self._ports:
            number = find_port(named, port)
            if number is not None:
                found.append((port.name or "", port.protocol or "TCP", number, port.app_protocol))
        return tuple(sorted(found, key=lambda p: p[:3]))
