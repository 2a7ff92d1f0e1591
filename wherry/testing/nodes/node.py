"""A simulated node: its object in the API, its state, and the addresses of its pods."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakSet

from kube.api import core_v1, meta_v1
from kube.build import GIT_VERSION
from kube.clock import Clock, format_time

State = Literal["running", "off", "partitioned"]
PRESSURES = {"memory": "MemoryPressure", "disk": "DiskPressure", "pid": "PIDPressure"}
_REASONS = {
    "MemoryPressure": ("KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
    "DiskPressure": ("KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
}
DEFAULT_CAPACITY: Mapping[str, str] = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}


@dataclass(slots=True, weakref_slot=True, eq=False)
class SimulatedNode:
    """One node. `number` is unique in the cluster and gives it its address."""

    name: str
    number: int
    capacity: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_CAPACITY))
    labels: dict[str, str] = field(default_factory=dict)
    state: State = "running"
    pressures: set[str] = field(default_factory=set)
    since: dict[str, str] = field(default_factory=dict)
    """Time of the last transition, by condition."""
    conditions: dict[str, str] = field(default_factory=dict)
    range: str = ""
    """Range of pod addresses that the cluster has given it."""
    given: int = 0
    """Number of pod addresses that it has given."""
    port: int = 10250
    """Port of its kubelet endpoint; 0: none."""
    connections: WeakSet[asyncio.StreamWriter] = field(default_factory=WeakSet)
    """Connections of the API server to its kubelet."""
    schedulable: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it had a range and no taints."""

    @property
    def address(self) -> str:
        return f"10.200.{self.number >> 8}.{self.number & 255}"

    def pod_addresses(self) -> tuple[str, ...]:
        """Return an address for a new sandbox, none while the node has no range."""
        if not self.range:
            return ()
        hosts = ipaddress.ip_network(self.range)
        address = hosts[2 + self.given % (hosts.num_addresses - 3)]
        self.given += 1
        return (str(address),)

    def disconnect(self) -> None:
        """Break all connections to its kubelet."""
        for writer in list(self.connections):
            writer.transport.abort()

    def object(self) -> core_v1.Node:
        """Return the object that the node registers with."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **self.labels,
        }
        return core_v1.Node(metadata=meta_v1.ObjectMeta(name=self.name, labels=labels))

    def status(self, clock: Clock) -> dict[str, Any]:
        """Return the node's status as it is reported now."""
        now = format_time(clock.now())
        known = [self._condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)]
        for pressure, type in PRESSURES.items():
            under = pressure in self.pressures
            bad, good = _REASONS[type]
            message = f"the node has {'' if under else 'no '}{pressure} pressure"
            known.append(self._condition(type, str(under), bad if under else good, message, now))
        capacity: dict[str, Any] = dict(self.capacity)
        status: dict[str, Any] = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": known,
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": self.name,
                "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": GIT_VERSION,
                "machineID": self.name,
                "operatingSystem": "linux",
                "osImage": "simulated",
                "systemUUID": self.name,
            },
        }
        if self.port:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}
        return status

    def _condition(self, type: str, status: str, reason: str, message: str, now: str) -> dict[str, str]:
        if self.conditions.get(type) != status:
            self.conditions[type], self.since[type] = status, now
        return {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": self.since[type],
        }
