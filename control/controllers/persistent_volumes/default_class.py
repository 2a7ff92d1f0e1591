"""Which class claims get that name none: the default one, also where it is made after them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import storage_v1

_MARKS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def default_class(classes: Iterable[storage_v1.StorageClass]) -> str | None:
    """Return the newest default class, the first by name where several are of the same second."""
    marked = [found for found in classes if any(found.metadata.annotations.get(mark) == "true" for mark in _MARKS)]
    marked.sort(key=lambda found: found.metadata.name or "")
    marked.sort(key=lambda found: found.metadata.creation_timestamp or "", reverse=True)
    return marked[0].metadata.name if marked else None
