"""KubeControllerManagerConfiguration: sections of upstream's file that the controllers here use, read from YAML or JSON.

Only the sections below mean anything to them; others are left alone, as the file may be written for upstream's manager.
Times are Go durations ("15s"). A file with another kind is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from control.controllers.autoscaling.settings import AutoscalingSettings, Startup
from control.controllers.legacy_tokens import YEAR
from control.controllers.nodes.zones import LifecycleSettings
from kube import duration

KIND = "KubeControllerManagerConfiguration"


class ConfigurationError(ValueError):
    """The file is invalid; the message is the reason."""


class Settings(msgspec.Struct, frozen=True):
    """The sections that are read."""

    autoscaling: AutoscalingSettings = msgspec.field(default_factory=AutoscalingSettings)
    lifecycle: LifecycleSettings = msgspec.field(default_factory=LifecycleSettings)
    legacy_tokens: float = YEAR
    service_account_credentials: bool = False
    """True if each controller acts as its service account; in the API server's process it always does."""


def load(path: Path | None) -> Settings:
    """Read a file's settings, upstream's defaults where there is no file; raises ConfigurationError."""
    return parse_document(read(path))


def parse(text: str | bytes) -> Settings:
    """Read settings, with upstream's defaults for what is left out; raises ConfigurationError."""
    return parse_document(_document(text))


def read(path: Path | None) -> dict[str, Any]:
    """Return a file's document, an empty one where there is no file; raises ConfigurationError, OSError."""
    return {} if path is None else _document(path.read_bytes())


def _document(text: str | bytes) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(str(error)) from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ConfigurationError(f"the file's kind is not {KIND}")
    return found


def parse_document(found: dict[str, Any]) -> Settings:
    """Read a document's settings; raises ConfigurationError."""
    return Settings(
        _autoscaling(_Section(found, "hPAController", "horizontalPodAutoscaler")),
        _lifecycle(_Section(found, "nodeLifecycleController")),
        _Section(found, "legacySATokenCleaner").time("cleanUpPeriod", YEAR) or YEAR,
        _Section(found, "kubeCloudShared").flag("useServiceAccountCredentials", default=False),
    )


def _autoscaling(section: _Section) -> AutoscalingSettings:
    usual = AutoscalingSettings()
    return AutoscalingSettings(
        sync_period=section.time("SyncPeriod", usual.sync_period) or usual.sync_period,
        tolerance=section.number("Tolerance", usual.tolerance),
        downscale_stabilization=section.time("DownscaleStabilizationWindow", usual.downscale_stabilization),
        startup=Startup(
            section.time("CPUInitializationPeriod", usual.startup.cpu_initialization),
            section.time("InitialReadinessDelay", usual.startup.initial_readiness),
        ),
    )


def _lifecycle(section: _Section) -> LifecycleSettings:
    usual = LifecycleSettings()
    return LifecycleSettings(
        eviction_rate=section.number("nodeEvictionRate", usual.eviction_rate),
        secondary_eviction_rate=section.number("secondaryNodeEvictionRate", usual.secondary_eviction_rate),
        unhealthy_zone_threshold=section.number("unhealthyZoneThreshold", usual.unhealthy_zone_threshold),
        large_cluster_size_threshold=int(
            section.number("largeClusterSizeThreshold", usual.large_cluster_size_threshold)
        ),
        monitor_grace_period=section.time("nodeMonitorGracePeriod", usual.monitor_grace_period)
        or usual.monitor_grace_period,
        startup_grace_period=section.time("nodeStartupGracePeriod", usual.startup_grace_period)
        or usual.startup_grace_period,
    )


class _Section:
    """One section of the file; its fields' names begin with `prefix`."""

    def __init__(self, file: dict[str, Any], name: str, prefix: str = "") -> None:
        self._name, self._prefix = name, prefix
        self._fields: dict[str, Any] = file.get(name) or {}
        if not isinstance(self._fields, dict):
            raise ConfigurationError(f"{name}: expected an object")

    def time(self, name: str, default: float) -> float:
        value = self._fields.get(self._prefix + name)
        if value is None:
            return default
        try:
            return duration.parse(str(value))
        except ValueError as error:
            raise ConfigurationError(f"{self._name}.{self._prefix}{name}: {error}") from error

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._fields.get(self._prefix + name, default)
        if not isinstance(value, bool):
            raise ConfigurationError(f"{self._name}.{self._prefix}{name}: expected true or false")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._fields.get(self._prefix + name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationError(f"{self._name}.{self._prefix}{name}: expected a number")
        return float(value)
