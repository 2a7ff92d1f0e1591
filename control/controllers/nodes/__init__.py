from control.controllers.nodes.lifecycle import NodeLifecycleController
from control.controllers.nodes.taint_eviction import TaintEvictionController

__all__ = ["NodeLifecycleController", "TaintEvictionController"]
