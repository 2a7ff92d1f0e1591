"""ResourceClaims made for pods and given back after them, and pods whose devices are tainted."""

from control.controllers.resource_claims.claims import ResourceClaimController
from control.controllers.resource_claims.device_taints import DeviceTaintEvictionController

__all__ = ["DeviceTaintEvictionController", "ResourceClaimController"]
