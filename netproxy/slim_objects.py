"""Partial types of pods, namespaces and Nodes: all other fields are dropped while decoding.

Network policies follow all pods of the cluster, which so take 1 kB each instead of 10. The proxy follows all Nodes, most of
whose changes are heartbeats.
"""

from __future__ import annotations

import msgspec

from kube import resources
from kube.api import core_v1

FINISHED = ("Succeeded", "Failed")
"""The phases of pods whose containers have ended for good."""


class SlimAnnotations(msgspec.Struct, rename={"mirror": "kubernetes.io/config.mirror"}, gc=False):
    """The annotations that the policies use."""

    mirror: str = ""


class SlimMeta(msgspec.Struct, rename="camel", gc=False):
    """Metadata as the informer and the policies use it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: SlimAnnotations | None = None
    managed_fields: list[msgspec.Raw] = []


class SlimPort(msgspec.Struct, rename="camel", gc=False):
    """A named port of a container."""

    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class SlimContainer(msgspec.Struct, rename="camel", gc=False):
    ports: list[SlimPort] = []


class SlimPodSpec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""
    host_network: bool = False
    containers: list[SlimContainer] = []
    init_containers: list[SlimContainer] = []


class SlimPodIP(msgspec.Struct, rename="camel", gc=False):
    ip: str = ""


class SlimPodStatus(msgspec.Struct, rename={"pod_ip": "podIP", "pod_ips": "podIPs"}, gc=False):
    phase: str = ""
    pod_ip: str = ""
    pod_ips: list[SlimPodIP] = []


class SlimPod(msgspec.Struct, gc=False):
    """A pod."""

    metadata: SlimMeta
    spec: SlimPodSpec = msgspec.field(default_factory=SlimPodSpec)
    status: SlimPodStatus = msgspec.field(default_factory=SlimPodStatus)


class SlimNamespace(msgspec.Struct, gc=False):
    """A namespace."""

    metadata: SlimMeta


class SlimNodeSpec(msgspec.Struct, rename={"pod_cidr": "podCIDR", "pod_cidrs": "podCIDRs"}, gc=False):
    pod_cidr: str = ""
    pod_cidrs: list[str] = []


class SlimNodeAddress(msgspec.Struct, gc=False):
    type: str = ""
    address: str = ""


class SlimNodeStatus(msgspec.Struct, gc=False):
    addresses: list[SlimNodeAddress] = []


class SlimNode(msgspec.Struct, gc=False):
    """A node."""

    metadata: SlimMeta
    spec: SlimNodeSpec = msgspec.field(default_factory=SlimNodeSpec)
    status: SlimNodeStatus = msgspec.field(default_factory=SlimNodeStatus)


resources.register_view(SlimPod, core_v1.Pod)
resources.register_view(SlimNamespace, core_v1.Namespace)
resources.register_view(SlimNode, core_v1.Node)
