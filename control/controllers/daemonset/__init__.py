from control.controllers.daemonset.controller import DaemonSetController

__all__ = ["DaemonSetController"]
