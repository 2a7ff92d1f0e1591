"""The device plugin messages: the only module that imports their generated stubs, and only once a plugin is there."""

from agent.devices.wire.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    RegisterRequest,
)

__all__ = [
    "AllocateRequest",
    "AllocateResponse",
    "ContainerAllocateRequest",
    "ContainerAllocateResponse",
    "ContainerPreferredAllocationRequest",
    "Device",
    "DevicePluginOptions",
    "Empty",
    "ListAndWatchResponse",
    "PreStartContainerRequest",
    "PreStartContainerResponse",
    "PreferredAllocationRequest",
    "PreferredAllocationResponse",
    "RegisterRequest",
]
