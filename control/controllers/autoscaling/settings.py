"""Settings of the autoscaling controller, without its modules: the manager does not import these for them."""

from __future__ import annotations

import msgspec

DOWN_WINDOW = 300.0
"""Stabilization window for scaling down, in seconds (--horizontal-pod-autoscaler-downscale-stabilization)."""


class Startup(msgspec.Struct, frozen=True):
    """Seconds after a pod's start during which its CPU usage is ignored."""

    cpu_initialization: float = 300.0
    initial_readiness: float = 30.0


class AutoscalingSettings(msgspec.Struct, frozen=True):
    """Upstream's HPAController configuration. Times are seconds."""

    sync_period: float = 15.0
    tolerance: float = 0.1
    downscale_stabilization: float = DOWN_WINDOW
    startup: Startup = msgspec.field(default_factory=Startup)


DEFAULTS = AutoscalingSettings()
