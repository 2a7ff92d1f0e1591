"""The DRA drivers' messages: the only module that imports their generated stubs, and only once a pod has a claim.

The versions v1 and v1beta1 of the interface have the same messages under other names; both take v1's bytes. The same holds for
v1alpha1 and v1beta1 of the device health interface.
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
