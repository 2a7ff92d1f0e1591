"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): profiles, their plugins, and extenders.

A profile is a scheduler name with plugins switched on and off by extension point and given weights and arguments; what is
left out is as in upstream's defaults. Errors name the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from kube import duration

KIND = "KubeSchedulerConfiguration"
API_VERSION = "kubescheduler.config.k8s.io/v1"
DEFAULT_NAME = "default-scheduler"
POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
MULTI = "multiPoint"


class ConfigurationError(ValueError):
    """The file cannot be used; the message names the field."""


class PluginSet(msgspec.Struct, frozen=True):
    """Changes at one extension point: names with weights (0: the default) and names switched off ("*": all)."""

    enabled: tuple[tuple[str, int], ...] = ()
    disabled: frozenset[str] = frozenset()


class ProfileConfig(msgspec.Struct, frozen=True):
    """One scheduler name."""

    name: str = DEFAULT_NAME
    points: Mapping[str, PluginSet] = msgspec.field(default_factory=dict)
    args: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    percentage: int | None = None


class ExtenderConfig(msgspec.Struct, frozen=True):
    """An extender that is called over HTTP. Empty verbs are not called."""

    url: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 1
    timeout: float = 5.0
    node_cache_capable: bool = False
    managed: frozenset[str] = frozenset()
    """Extended resources that the extender cares for; empty: it cares for every pod."""
    ignored: frozenset[str] = frozenset()
    """Those of them that the scheduler itself does not count."""
    ignorable: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False


class SchedulerConfig(msgspec.Struct, frozen=True):
    """The scheduler's configuration; times are seconds."""

    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage: int = 0
    """Share of the nodes that are looked for before scoring; 0: enough of them, whatever the cluster's size."""
    first_backoff: float = 1.0
    last_backoff: float = 10.0
    extenders: tuple[ExtenderConfig, ...] = ()


def parse(text: str | bytes) -> SchedulerConfig:
    """Read a configuration from YAML or JSON; raises ConfigurationError."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(str(error)) from error
    if not isinstance(found, dict) or found.get("kind") != KIND or found.get("apiVersion") != API_VERSION:
        raise ConfigurationError(f"the file is not a {API_VERSION} {KIND}")
    profiles = tuple(_profile(p, f"profiles[{i}]") for i, p in enumerate(_list(found, "profiles")))
    names = [profile.name for profile in profiles]
    if len(set(names)) != len(names):
        raise ConfigurationError("profiles: schedulerName must be unique")
    first = float(_number(found, "podInitialBackoffSeconds", 1))
    last = float(_number(found, "podMaxBackoffSeconds", 10))
    if first <= 0 or last < first:
        raise ConfigurationError("podMaxBackoffSeconds: must be greater than or equal to podInitialBackoffSeconds")
    extenders = tuple(_extender(e, f"extenders[{i}]") for i, e in enumerate(_list(found, "extenders")))
    if sum(1 for extender in extenders if extender.bind_verb) > 1:
        raise ConfigurationError("extenders: only one extender can implement bind")
    return SchedulerConfig(
        profiles or (ProfileConfig(),), _percentage(found, "percentageOfNodesToScore") or 0, first, last, extenders
    )


def _profile(found: Any, path: str) -> ProfileConfig:
    profile = _object(found, path)
    points = {}
    for name, given in _object(profile.get("plugins") or {}, f"{path}.plugins").items():
        where = f"{path}.plugins.{name}"
        if name not in (*POINTS, MULTI):
            raise ConfigurationError(f"{where}: unknown extension point")
        part = _object(given or {}, where)
        enabled = tuple(_enabled(p, f"{where}.enabled") for p in _list(part, "enabled"))
        if len({plugin for plugin, _ in enabled}) != len(enabled):
            raise ConfigurationError(f"{where}.enabled: a plugin is named twice")
        disabled = frozenset(_enabled(p, f"{where}.disabled")[0] for p in _list(part, "disabled"))
        points[name] = PluginSet(enabled, disabled)
    args: dict[str, Mapping[str, Any]] = {}
    for index, entry in enumerate(_list(profile, "pluginConfig")):
        where = f"{path}.pluginConfig[{index}]"
        name = _object(entry, where).get("name", "")
        if not name or name in args:
            raise ConfigurationError(f"{where}.name: {'repeated config for plugin ' + name if name else 'required'}")
        args[name] = _object(entry.get("args") or {}, f"{where}.args")
    name = profile.get("schedulerName", DEFAULT_NAME) or DEFAULT_NAME
    return ProfileConfig(str(name), points, args, _percentage(profile, "percentageOfNodesToScore"))


def _enabled(found: Any, path: str) -> tuple[str, int]:
    plugin = _object(found, path)
    if not plugin.get("name"):
        raise ConfigurationError(f"{path}: a plugin needs a name")
    return str(plugin["name"]), int(_number(plugin, "weight", 0))


def _extender(found: Any, path: str) -> ExtenderConfig:
    extender = _object(found, path)
    if not extender.get("urlPrefix"):
        raise ConfigurationError(f"{path}.urlPrefix: required")
    if extender.get("prioritizeVerb") and _number(extender, "weight", 1) <= 0:
        raise ConfigurationError(f"{path}.weight: must have a positive weight applied to it")
    managed = [_object(m, f"{path}.managedResources") for m in _list(extender, "managedResources")]
    tls = _object(extender.get("tlsConfig") or {}, f"{path}.tlsConfig")
    return ExtenderConfig(
        str(extender["urlPrefix"]).rstrip("/"),
        extender.get("filterVerb", ""),
        extender.get("preemptVerb", ""),
        extender.get("prioritizeVerb", ""),
        extender.get("bindVerb", ""),
        int(_number(extender, "weight", 1)),
        _duration(extender.get("httpTimeout", "5s"), f"{path}.httpTimeout"),
        bool(extender.get("nodeCacheCapable")),
        frozenset(m["name"] for m in managed),
        frozenset(m["name"] for m in managed if m.get("ignoredByScheduler")),
        bool(extender.get("ignorable")),
        tls.get("caFile", ""),
        tls.get("certFile", ""),
        tls.get("keyFile", ""),
        bool(tls.get("insecure")),
    )


def _duration(text: Any, path: str) -> float:
    try:
        return duration.parse(str(text))
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _object(found: Any, path: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: expected an object")
    return found


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name) or []
    if not isinstance(value, list):
        raise ConfigurationError(f"{name}: expected a list")
    return value


def _number(found: Mapping[str, Any], name: str, default: int) -> float:
    value = found.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name}: expected a number")
    return value


def _percentage(found: Mapping[str, Any], name: str) -> int | None:
    if found.get(name) is None:
        return None
    value = int(_number(found, name, 0))
    if not 0 <= value <= 100:
        raise ConfigurationError(f"{name}: not in valid range [0-100]")
    return value
