"""Objects of an addon's file: YAML documents or JSON, checked as a whole before anything is applied.

A file that cannot be read, or has no object, is an error as a whole: it may be half written, and nothing may be pruned for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from control.controllers.addons import confidential
from control.controllers.addons.applyset import PART_OF, GroupKind
from control.decoding.yaml_body import parse as parse_document
from kube import names
from kube.json_object import Object

MOST_OBJECTS = 5000
FIRST = {GroupKind("", "Namespace"), GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")}
LAST = {
    GroupKind("admissionregistration.k8s.io", kind)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
}
"""Kinds that are applied before and after the others: a webhook's own server is mostly in the same file."""
_SEPARATOR = re.compile(rb"^---[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_SERVERS_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")


class ManifestError(ValueError):
    """The file cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object of a file. `namespace` is empty if the file has none."""

    api_version: str
    kind: GroupKind
    namespace: str
    name: str
    object: Object = field(compare=False)
    digest: str = ""

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def parse(data: bytes, applyset: str) -> list[Manifest]:
    """Return the objects of a file in the order of the file, labelled as members of an ApplySet. Raise ManifestError."""
    found: dict[tuple[GroupKind, str, str], Manifest] = {}
    for number, document in enumerate(_documents(data), 1):
        for obj in _flattened(document, number):
            manifest = _manifest(obj, number, applyset)
            key = manifest.kind, manifest.namespace, manifest.name
            if key in found:
                raise ManifestError(f"{manifest} is in the file twice")
            found[key] = manifest
            if len(found) > MOST_OBJECTS:
                raise ManifestError(f"the file has more than {MOST_OBJECTS} objects: split it")
    if not found:
        raise ManifestError("the file has no object: remove the file to delete the addon's objects")
    return list(found.values())


def phases(manifests: list[Manifest]) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
    """Return what is applied first, then, and last."""
    return (
        [each for each in manifests if each.kind in FIRST],
        [each for each in manifests if each.kind not in FIRST | LAST],
        [each for each in manifests if each.kind in LAST],
    )


def _documents(data: bytes) -> Iterator[Any]:
    for number, part in enumerate(_SEPARATOR.split(data), 1):
        if not part.strip():
            continue
        try:
            document = parse_document(part, ours=True)
            problem = document.repeated[0].strip() if document.repeated else ""
        except ValueError as error:
            problem = str(error)
        if problem:
            text = confidential.of_document(problem) if confidential.may_have_secret(part) else problem
            raise ManifestError(f"document {number}: {text}")
        if document.value is not None:
            yield document.value


def _flattened(document: Any, number: int) -> Iterator[Object]:
    """Yield an object, or the items of a list."""
    if not isinstance(document, dict):
        raise ManifestError(f"document {number}: expected an object")
    kind, items = document.get("kind"), document.get("items")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for item in items:
            yield from _flattened(item, number)
        return
    yield document


def _manifest(obj: Object, number: int, applyset: str) -> Manifest:
    api_version, kind, metadata = obj.get("apiVersion"), obj.get("kind"), obj.get("metadata")
    if not isinstance(api_version, str) or not api_version or api_version.count("/") > 1:
        raise ManifestError(f"document {number}: apiVersion is required")
    if not isinstance(kind, str) or not kind:
        raise ManifestError(f"document {number}: kind is required")
    where = f"document {number}: {kind}"
    if not isinstance(metadata, dict):
        raise ManifestError(f"{where}: metadata is required")
    name, namespace = metadata.get("name"), metadata.get("namespace")
    namespace = "" if namespace is None else namespace
    if not isinstance(name, str) or not name:
        raise ManifestError(f"{where}: metadata.name is required")
    if problems := names.path_segment(name):
        raise ManifestError(f"{where}: metadata.name {name!r}: {problems[0]}")
    if not isinstance(namespace, str) or (namespace and names.dns1123_label(namespace)):
        raise ManifestError(f"{where} {name}: metadata.namespace {namespace!r} is invalid")
    labels = {} if metadata.get("labels") is None else metadata["labels"]
    if not isinstance(labels, dict):
        raise ManifestError(f"{where} {name}: metadata.labels is not a mapping")
    if PART_OF in labels:
        raise ManifestError(f"{where} {name}: remove the label {PART_OF}: the addon sets it")
    kept = {key: value for key, value in metadata.items() if key not in _SERVERS_FIELDS}
    obj = {**obj, "metadata": {**kept, "labels": {**labels, PART_OF: applyset}}}
    group = api_version.rpartition("/")[0]
    digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()
    return Manifest(api_version, GroupKind(group, kind), namespace, name, obj, digest)
