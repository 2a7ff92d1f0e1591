from control.controllers.endpoints.endpoints import EndpointsController
from control.controllers.endpoints.slices import EndpointSliceController

__all__ = ["EndpointSliceController", "EndpointsController"]
