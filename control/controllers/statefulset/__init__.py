from control.controllers.statefulset.controller import StatefulSetController

__all__ = ["StatefulSetController"]
