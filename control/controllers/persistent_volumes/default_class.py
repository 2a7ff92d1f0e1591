"""The class of claims that name none: the default one, also where it is made after them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from control.interfaces.default_class import STORAGE_MARKS, marked, newest
from kube.api import storage_v1


def default_class(classes: Iterable[storage_v1.StorageClass]) -> str | None:
    """Return the name of the default class, None if there is none."""
    found = (c.metadata for c in classes if marked(c.metadata.annotations, STORAGE_MARKS))
    return newest((meta.creation_timestamp or "", meta.name or "") for meta in found)
