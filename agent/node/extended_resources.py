"""The node's extended resources: those of device plugins, and those that others wrote into its status. Pure.

Others' resources stay, as upstream keeps them; but a node without a device plugin checkpoint starts with none of the previous
node's (pkg/kubelet/nodestatus: MachineInfo, kubelet_node_status.go: reconcileExtendedResource).
"""

from __future__ import annotations

from collections.abc import Mapping

from kube.api import core_v1

Devices = Mapping[str, tuple[int, int]]
"""Capacity and allocatable by resource."""


def is_extended(name: str) -> bool:
    """Return whether a resource is not one of Kubernetes' own."""
    domain = name.rpartition("/")[0]
    return bool(domain) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def add(status: core_v1.NodeStatus, old: core_v1.NodeStatus, devices: Devices, *, forget: bool) -> None:
    """Add extended resources to a new status; with `forget` what the old one had is set to nothing."""
    for name, quantity in old.capacity.items():
        if is_extended(name):
            status.capacity[name] = status.allocatable[name] = "0" if forget else quantity
    for name, (capacity, allocatable) in devices.items():
        status.capacity[name], status.allocatable[name] = str(capacity), str(allocatable)
