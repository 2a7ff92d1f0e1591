"""The CSI messages: the only module that imports their generated stubs. Import it only where a driver is there."""

from agent.csi.wire import csi_pb2 as api
from agent.csi.wire.csi_pb2 import NodeServiceCapability, VolumeCapability

AccessMode = VolumeCapability.AccessMode
Ability = NodeServiceCapability.RPC

__all__ = ["Ability", "AccessMode", "VolumeCapability", "api"]
