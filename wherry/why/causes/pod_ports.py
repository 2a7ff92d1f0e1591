"""Ports of pods and of rules of network policies, prepared once a diagnosis: an object may have tens of thousands."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence

from kube.api import core_v1, networking_v1
from wherry.why.diagnosis import Diagnosis

Declared = tuple[str, int]
"""A port of a container: its name, "" if it has none, and its number."""
Rule = networking_v1.NetworkPolicyIngressRule | networking_v1.NetworkPolicyEgressRule


def target(port: core_v1.ServicePort) -> int | str:
    """Return the name or the number of the pods' port that a Service's port leads to."""
    found = port.target_port if port.target_port is not None else port.port
    return int(found) if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 5 else found


class PodPorts:
    """The ports that a pod's containers declare."""

    def __init__(self) -> None:
        self._declared: dict[str, set[Declared]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._names: dict[tuple[int, str], set[str]] = {}

    def add(self, port: core_v1.ContainerPort, *, serves: bool) -> None:
        """Add a port; those of an init container that is no sidecar are known to policies only."""
        name, number, protocol = port.name or "", port.container_port, port.protocol or "TCP"
        self._names.setdefault((number, protocol), set()).add(name)
        if serves:
            self._declared.setdefault(protocol, set()).add((name, number))
            self._numbers.setdefault((name, protocol), number)

    def declared(self, protocol: str) -> set[Declared]:
        """Return the ports of a protocol that containers and sidecars declare."""
        return self._declared.get(protocol, set())

    def number_at(self, port: core_v1.ServicePort) -> int | None:
        """Return the number of the pod's port that a Service's port leads to; None if the pod has no port of the name."""
        wanted = target(port)
        return wanted if isinstance(wanted, int) else self._numbers.get((wanted, port.protocol or "TCP"))

    def names_of(self, number: int, protocol: str) -> set[str]:
        """Return the names that a port has."""
        return self._names.get((number, protocol), set())


class RulePorts:
    """The ports of a rule of a network policy."""

    def __init__(self) -> None:
        self._every: set[str] = set()
        self._names: dict[str, set[str]] = {}
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._any = True

    def add(self, port: networking_v1.NetworkPolicyPort) -> None:
        """Add a port, a range of ports, or all of a protocol."""
        self._any, protocol = False, port.protocol or "TCP"
        if port.port is None:
            self._every.add(protocol)
        elif isinstance(port.port, int):
            self._ranges.setdefault(protocol, []).append((port.port, port.end_port or port.port))
        else:
            self._names.setdefault(protocol, set()).add(port.port)

    def merge(self) -> None:
        """Merge ranges that overlap, after the last port: one is found by a search then."""
        for protocol, ranges in self._ranges.items():
            merged: list[tuple[int, int]] = []
            for first, last in sorted(ranges):
                if merged and first <= merged[-1][1] + 1:
                    merged[-1] = merged[-1][0], max(last, merged[-1][1])
                else:
                    merged.append((first, last))
            self._ranges[protocol] = merged

    def opens(self, number: int, protocol: str, pod: PodPorts) -> bool:
        """Return whether the rule has a port; names are those of the pod that is connected to."""
        if self._any or protocol in self._every:
            return True
        ranges = self._ranges.get(protocol, [])
        place = bisect(ranges, (number, 1 << 20)) - 1
        if place >= 0 and ranges[place][0] <= number <= ranges[place][1]:
            return True
        return not pod.names_of(number, protocol).isdisjoint(self._names.get(protocol, ()))


async def of_pod(diagnosis: Diagnosis, pod: core_v1.Pod) -> PodPorts:
    """Return the ports of a pod."""
    return await diagnosis.once(_prepare_pod, pod)


async def of_rule(diagnosis: Diagnosis, rule: Rule) -> RulePorts:
    """Return the ports of a rule."""
    return await diagnosis.once(_prepare_rule, rule)


async def declared(diagnosis: Diagnosis, pods: Sequence[core_v1.Pod], protocol: str) -> set[Declared]:
    """Return the ports of a protocol that pods declare."""
    found: set[Declared] = set()
    for pod in pods:
        found |= (await of_pod(diagnosis, pod)).declared(protocol)
        await diagnosis.time_slice.step()
    return found


async def _prepare_pod(diagnosis: Diagnosis, pod: core_v1.Pod) -> PodPorts:
    found = PodPorts()
    for container in pod.spec.containers:
        for port in container.ports:
            await diagnosis.time_slice.step()
            found.add(port, serves=True)
    for container in pod.spec.init_containers:
        for port in container.ports:
            await diagnosis.time_slice.step()
            found.add(port, serves=container.restart_policy == "Always")
    return found


async def _prepare_rule(diagnosis: Diagnosis, rule: Rule) -> RulePorts:
    found = RulePorts()
    for port in rule.ports:
        await diagnosis.time_slice.step()
        found.add(port)
    found.merge()
    return found
