from control.controllers.endpoints.endpoints import EndpointsController
from control.controllers.endpoints.mirroring import EndpointSliceMirroringController
from control.controllers.endpoints.slices import EndpointSliceController

__all__ = ["EndpointSliceController", "EndpointSliceMirroringController", "EndpointsController"]
