"""The default class of storage and of ingresses: the newest of the classes that are marked as default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

STORAGE_MARKS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
INGRESS_MARKS = ("ingressclass.kubernetes.io/is-default-class",)


def marked(annotations: Mapping[str, str] | None, marks: Iterable[str]) -> bool:
    """Return whether a class with these annotations is marked as default."""
    return annotations is not None and any(annotations.get(mark) == "true" for mark in marks)


def newest(classes: Iterable[tuple[str, str]]) -> str | None:
    """Return the name of the newest of some (creation time, name), the first by name where several are of the same second."""
    found = sorted(classes, key=lambda each: each[1])
    found.sort(key=lambda each: each[0], reverse=True)
    return found[0][1] if found else None
