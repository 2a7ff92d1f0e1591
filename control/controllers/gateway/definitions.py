"""CustomResourceDefinitions of the Gateway API, from definitions/*.yaml: its standard channel, without what is not served.

An administrator may install another version, also over these: one without Wherry's label, or of another bundle version or
channel, is left alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from kube.api import meta_v1
from kube.gateway.objects import GROUP

PLURALS = ("gatewayclasses", "gateways", "httproutes", "referencegrants")
VERSION = "v1.6.1"
"""Version of the Gateway API that the definitions are those of."""
BUNDLE, CHANNEL = f"{GROUP}/bundle-version", f"{GROUP}/channel"
APPROVED = "api-approved.kubernetes.io"
MANAGED_BY = ("app.kubernetes.io/managed-by", "wherry")
REVISION = "gateway.wherry.dev/revision"
"""Annotation: hash of what a definition was made from."""


class _File(msgspec.Struct):
    """The form of the files."""

    names: dict[str, Any]
    scope: str
    versions: list[dict[str, Any]]
    columns: list[dict[str, Any]]
    status: bool
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition that is to be installed. It is parsed when it is written, which takes tens of milliseconds."""

    name: str
    text: bytes

    @property
    def revision(self) -> str:
        return hashlib.sha256(self.text).hexdigest()[:16]

    def as_object(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition."""
        file = msgspec.convert(msgspec.yaml.decode(self.text), _File)
        subresources: dict[str, Any] = {"subresources": {"status": {}}} if file.status else {}
        versions = [
            {
                "name": version["name"],
                "served": True,
                "storage": version["storage"],
                "additionalPrinterColumns": file.columns,
                "schema": {"openAPIV3Schema": file.schema},
                **subresources,
            }
            for version in file.versions
        ]
        annotations = {
            APPROVED: "https://github.com/kubernetes-sigs/gateway-api/pull/4530",
            BUNDLE: VERSION,
            CHANNEL: "standard",
            REVISION: self.revision,
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name, "labels": dict([MANAGED_BY]), "annotations": annotations},
            "spec": {"group": GROUP, "names": file.names, "scope": file.scope, "versions": versions},
        }

    def outdated(self, found: meta_v1.ObjectMeta) -> bool:
        """Return whether an installed definition is Wherry's and has another form than this one."""
        own = found.labels.get(MANAGED_BY[0]) == MANAGED_BY[1]
        installed = found.annotations.get(BUNDLE), found.annotations.get(CHANNEL)
        return own and installed == (VERSION, "standard") and found.annotations.get(REVISION) != self.revision


def load() -> list[Definition]:
    """Return the definitions; reads their files."""
    folder = resources.files("control.controllers.gateway") / "definitions"
    return [Definition(f"{plural}.{GROUP}", (folder / f"{plural}.yaml").read_bytes()) for plural in PLURALS]
