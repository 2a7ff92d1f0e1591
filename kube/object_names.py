"""Names and keys of objects, which identify an object among those of its kind."""

from __future__ import annotations

from typing import Any

from kube.api import meta_v1


def metadata_of(obj: Any) -> meta_v1.ObjectMeta:
    found: meta_v1.ObjectMeta = obj.metadata
    return found


def name_of(obj: Any) -> str:
    return metadata_of(obj).name or ""


def namespace_of(obj: Any) -> str:
    return metadata_of(obj).namespace or ""


def key_of(obj: Any) -> str:
    """Return "namespace/name", or "name" for what has no namespace."""
    metadata = metadata_of(obj)
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name or ""


def split_key(key: str) -> tuple[str, str]:
    """Return (namespace, name) of a key; the namespace is "" for what has none."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
