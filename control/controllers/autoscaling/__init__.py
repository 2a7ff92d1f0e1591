from control.controllers.autoscaling.controller import AutoscalingController, AutoscalingSettings

__all__ = ["AutoscalingController", "AutoscalingSettings"]
