"""KubeControllerManagerConfiguration: what of upstream's file the controllers here take, read from YAML or JSON.

Only the sections below mean anything to them; others are left alone, as the file may be written for upstream's manager.
Times are Go durations ("15s"). A file with another kind is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from control.controllers.autoscaling import AutoscalingSettings
from control.controllers.autoscaling.replicas import Startup
from kube import duration

KIND = "KubeControllerManagerConfiguration"


class ConfigurationError(ValueError):
    """The file cannot be used; the message says why."""


def autoscaling(text: str | bytes) -> AutoscalingSettings:
    """Return the hPAController section with upstream's defaults for what it leaves out; raises ConfigurationError."""
    section = _section(text, "hPAController")
    usual = AutoscalingSettings()

    def time(name: str, default: float) -> float:
        value = section.get(f"horizontalPodAutoscaler{name}")
        if value is None:
            return default
        try:
            return duration.parse(str(value))
        except ValueError as error:
            raise ConfigurationError(f"hPAController.horizontalPodAutoscaler{name}: {error}") from error

    return AutoscalingSettings(
        sync_period=time("SyncPeriod", usual.sync_period) or usual.sync_period,
        tolerance=float(section.get("horizontalPodAutoscalerTolerance", usual.tolerance)),
        downscale_stabilization=time("DownscaleStabilizationWindow", usual.downscale_stabilization),
        startup=Startup(
            time("CPUInitializationPeriod", usual.startup.cpu_initialization),
            time("InitialReadinessDelay", usual.startup.initial_readiness),
        ),
    )


def load(path: Path | None) -> AutoscalingSettings:
    """Read a file's settings, upstream's defaults where there is no file; raises ConfigurationError."""
    return AutoscalingSettings() if path is None else autoscaling(path.read_bytes())


def _section(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(str(error)) from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ConfigurationError(f"the file's kind is not {KIND}")
    section = found.get(name) or {}
    if not isinstance(section, dict):
        raise ConfigurationError(f"{name}: expected an object")
    return section
