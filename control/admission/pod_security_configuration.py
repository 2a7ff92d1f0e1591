"""PodSecurityConfiguration: defaults for namespaces without labels, and exemptions."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from control.admission.configuration import of_kind
from control.auth.fields import ConfigurationError, known, list_at, object_at
from kube.json_object import Object

GROUP = "pod-security.admission.config.k8s.io"
LEVELS = ("privileged", "baseline", "restricted")
MODES = ("enforce", "audit", "warn")
VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]*)")


class Exemptions(msgspec.Struct, frozen=True):
    """Users, runtime classes and namespaces that are not looked at."""

    users: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()


class Settings(msgspec.Struct, frozen=True):
    """`defaults` are read like a namespace's labels without their prefix: mode -> level, mode-version -> version."""

    defaults: Mapping[str, str] = msgspec.field(default_factory=dict)
    exempt: Exemptions = msgspec.field(default_factory=Exemptions)


def parse(configuration: Object) -> Settings:
    """Read the plugin's configuration, empty: nothing is enforced by default; raises ConfigurationError."""
    if not configuration:
        return Settings()
    settings = of_kind(configuration, GROUP, "PodSecurityConfiguration", ("v1", "v1beta1", "v1alpha1"))
    known(settings, "", ("apiVersion", "kind", "defaults", "exemptions"))
    given, exempt = object_at(settings, "defaults", ""), object_at(settings, "exemptions", "")
    known(given, "defaults", (*MODES, *(f"{mode}-version" for mode in MODES)))
    known(exempt, "exemptions", ("usernames", "runtimeClasses", "namespaces"))
    defaults = {name: str(value) for name, value in given.items() if value}
    for name, value in defaults.items():
        if name in MODES and value not in LEVELS:
            raise ConfigurationError(f'defaults.{name}: Invalid value: "{value}": must be one of {", ".join(LEVELS)}')
        if name not in MODES and not VERSION.fullmatch(value):
            raise ConfigurationError(f'defaults.{name}: Invalid value: "{value}": must be "latest" or "v1.x"')
    names = [
        frozenset(map(str, list_at(exempt, name, "exemptions")))
        for name in ("usernames", "runtimeClasses", "namespaces")
    ]
    return Settings(defaults, Exemptions(*names))
