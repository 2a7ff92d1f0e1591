"""ApplySets (KEP-3659): a label on every object of an addon, and a parent that lists their kinds and namespaces.

The parent is a ConfigMap of kube-system, one for each addon. With it the objects of an addon are found after a restart, by
another leader and by other tools. Its data are the addon's state for people.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from control.controllers.discovery import DiscoveredResource
from kube.api import core_v1
from kube.build import GIT_VERSION
from kube.json_object import Object
from kube.names import dns1123_label

PART_OF = "applyset.kubernetes.io/part-of"
ID = "applyset.kubernetes.io/id"
TOOLING = "applyset.kubernetes.io/tooling"
GROUP_KINDS = "applyset.kubernetes.io/contains-group-kinds"
NAMESPACES = "applyset.kubernetes.io/additional-namespaces"
MOST_NAMES = 1000
"""Kinds, or namespaces, that a parent lists. More of them are listed as EVERYTHING."""
EVERYTHING = "*"
"""Stands for all kinds, or all namespaces, in the list of a parent."""
ADDON = "wherry/addon"
"""Label of parents: the addon's name."""
TOOL = "wherry"
NAMESPACE = "kube-system"

APPLIED, FAILED, INVALID, REFUSED, REMOVING, KEPT = "Applied", "Failed", "Invalid", "Refused", "Removing", "Kept"
"""States of an addon."""
LONGEST_MESSAGE = 2000
"""Characters of a message."""


@dataclass(frozen=True, slots=True, order=True)
class GroupKind:
    """A kind without its version."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @classmethod
    def parse(cls, text: str) -> GroupKind:
        kind, _, group = text.strip().partition(".")
        return cls(group, kind)

    @classmethod
    def of(cls, resource: DiscoveredResource) -> GroupKind:
        return cls(resource.group, resource.kind)


EVERY_KIND = GroupKind("", EVERYTHING)


def identifier(name: str, namespace: str = NAMESPACE, kind: str = "ConfigMap", group: str = "") -> str:
    """Return the ID of the ApplySet with a parent."""
    digest = hashlib.sha256(f"{name}.{namespace}.{kind}.{group}".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def parent_name(addon: str) -> str:
    return f"addon-{addon}"


def addon_identifier(addon: str) -> str:
    """Return the ID of an addon's ApplySet, the value of its objects' label."""
    return identifier(parent_name(addon))


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of an addon's ApplySet: kinds and namespaces that its objects may be of, and its state.

    The lists say where objects are looked for; what is an object of the addon, its label says. So a list that is too long is
    none: all kinds, or all namespaces, are looked through, which costs a request for each kind.
    """

    addon: str
    kinds: frozenset[GroupKind] = frozenset()
    namespaces: frozenset[str] = frozenset()
    file: str = ""
    content: str = ""
    """SHA-256 of the file that was applied last."""
    server: str = ""
    """Address of the control plane that applied it last."""
    state: str = ""
    message: str = ""
    objects: int = 0
    uid: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if EVERY_KIND in self.kinds or len(self.kinds) > MOST_NAMES:
            object.__setattr__(self, "kinds", frozenset({EVERY_KIND}))
        if EVERYTHING in self.namespaces or len(self.namespaces) > MOST_NAMES:
            object.__setattr__(self, "namespaces", frozenset({EVERYTHING}))

    def as_object(self) -> Object:
        """Return the configuration to apply."""
        others = sorted(self.namespaces - {NAMESPACE})
        annotations = {TOOLING: f"{TOOL}/{GIT_VERSION}", GROUP_KINDS: ",".join(sorted(map(str, self.kinds)))}
        if others:
            annotations[NAMESPACES] = ",".join(others)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": parent_name(self.addon),
                "namespace": NAMESPACE,
                "labels": {ID: addon_identifier(self.addon), ADDON: self.addon},
                "annotations": annotations,
            },
            "data": {
                "file": self.file,
                "content": self.content,
                "server": self.server,
                "state": self.state,
                "objects": str(self.objects),
                "message": self.message,
            },
        }

    @classmethod
    def read(cls, found: core_v1.ConfigMap) -> Parent:
        """Read a ConfigMap; what is missing in it is empty, what can be no namespace is left out."""
        annotations, data = found.metadata.annotations, found.data
        count = data.get("objects", "")
        return cls(
            addon=found.metadata.labels.get(ADDON, ""),
            kinds=frozenset(GroupKind.parse(text) for text in _listed(annotations, GROUP_KINDS)),
            namespaces=frozenset(
                each for each in _listed(annotations, NAMESPACES) if each == EVERYTHING or not dns1123_label(each)
            ),
            file=data.get("file", ""),
            content=data.get("content", ""),
            server=data.get("server", ""),
            state=data.get("state", ""),
            message=data.get("message", ""),
            objects=int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0,
            uid=found.metadata.uid or "",
        )

    def reference(self) -> core_v1.ObjectReference:
        """Return the object that events are about."""
        return core_v1.ObjectReference(
            api_version="v1", kind="ConfigMap", namespace=NAMESPACE, name=parent_name(self.addon), uid=self.uid
        )


def is_parent_of(addon: str, found: core_v1.ConfigMap) -> bool:
    """Return whether a ConfigMap is the parent that this program wrote for an addon."""
    metadata = found.metadata
    return (
        metadata.labels.get(ADDON) == addon
        and metadata.labels.get(ID) == addon_identifier(addon)
        and metadata.annotations.get(TOOLING, "").partition("/")[0] == TOOL
    )


def _listed(annotations: Mapping[str, str], name: str) -> Iterable[str]:
    text = annotations.get(name, "")
    if text.count(",") > MOST_NAMES:
        return (EVERYTHING,)
    return filter(None, (part.strip() for part in text.split(",")))
