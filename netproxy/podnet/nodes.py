"""A Node as the pod network reads it: where its pods live and its addresses. The rest, images and all, is dropped unread,
for the proxy follows all nodes of the cluster, most of whose changes are heartbeats."""

from __future__ import annotations

import msgspec

from kube import resources
from kube.api import core_v1
from netproxy.policy.objects import SlimMeta


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


resources.register_view(SlimNode, core_v1.Node)
