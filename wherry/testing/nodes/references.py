"""ConfigMaps and Secrets that pods refer to, as the API server's watch cache has them now."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from control.registry.registry import Registry
from kube import resources, serialize
from kube.api import core_v1

T = TypeVar("T", bound=msgspec.Struct)


class CachedReferences:
    """Reads the objects that volumes and environments name; None if there is none."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        return self._read(core_v1.ConfigMap, namespace, name)

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        return self._read(core_v1.Secret, namespace, name)

    def _read(self, kind: type[T], namespace: str, name: str) -> T | None:
        entry = self._registry.peek(resources.of(kind), namespace, name)
        return serialize.decode(entry.data, kind) if entry is not None else None
