"""The pod resources messages: the only module that imports their generated stubs, and only with the first request."""

from agent.podresources.wire.podresources_pb2 import (
    AllocatableResourcesResponse,
    CDIDevice,
    ClaimResource,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    DynamicResource,
    GetPodResourcesRequest,
    GetPodResourcesResponse,
    ListPodResourcesResponse,
    NUMANode,
    PodResources,
    TopologyInfo,
)

__all__ = [
    "AllocatableResourcesResponse",
    "CDIDevice",
    "ClaimResource",
    "ContainerDevices",
    "ContainerMemory",
    "ContainerResources",
    "DynamicResource",
    "GetPodResourcesRequest",
    "GetPodResourcesResponse",
    "ListPodResourcesResponse",
    "NUMANode",
    "PodResources",
    "TopologyInfo",
]
