"""The gateway's controller: definitions of the Gateway API, generated objects, and statuses."""

from control.controllers.gateway.cleanup import GatewayCleanup
from control.controllers.gateway.controller import GatewayController

__all__ = ["GatewayCleanup", "GatewayController"]
