"""Messages of the DRA drivers' gRPC interface. Only this module imports their stubs; it is imported with the first claim.

The versions v1 and v1beta1 of the interface have the same messages under different names, so v1's encoding is used for both.
The same applies to v1alpha1 and v1beta1 of the device health interface.
"""

from agent.claims.wire.dra_health_pb2 import HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse
from agent.claims.wire.dra_v1_pb2 import (
    Claim,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
)

__all__ = [
    "Claim",
    "HealthStatus",
    "NodePrepareResourcesRequest",
    "NodePrepareResourcesResponse",
    "NodeUnprepareResourcesRequest",
    "NodeUnprepareResourcesResponse",
    "NodeWatchResourcesRequest",
    "NodeWatchResourcesResponse",
]
