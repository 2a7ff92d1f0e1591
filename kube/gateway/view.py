"""Lookup of objects while a gateway is computed. The controller has all of them, a node those that it may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from kube.api import core_v1
from kube.gateway.objects import ReferenceGrant

Certificate = Literal["", "missing", "invalid"]
"""The state of a Secret as a certificate; "" if it can be served. Nodes know copies: one that exists can be served."""


class View(Protocol):
    """Looks up objects that Gateways, routes and Ingresses refer to."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, None if there is none."""
        ...

    def service(self, namespace: str, name: str) -> core_v1.Service | None: ...

    def certificate(self, namespace: str, name: str) -> Certificate:
        """Return the state of a Secret that a listener or an Ingress names, in the Secret's own namespace."""
        ...

    def grants(self, namespace: str) -> Iterable[ReferenceGrant]:
        """Return the ReferenceGrants in a namespace."""
        ...
