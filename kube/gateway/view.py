"""Lookup of objects while a gateway is computed. The controller has all of them, a node those that it may read."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, Protocol

from kube.gateway.service_ports import ServicePorts

Certificate = Literal["", "missing", "invalid"]
"""The state of a Secret as a certificate; "" if it can be served. Nodes know copies: one that exists can be served."""


class View(Protocol):
    """Looks up objects that Gateways, routes and Ingresses refer to."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, None if there is none."""
        ...

    def ports(self, namespace: str, name: str) -> Generator[int, None, ServicePorts | None]:
        """Return the index of a Service's ports, the generator's value; None if there is no Service."""
        ...

    def certificate(self, namespace: str, name: str) -> Certificate:
        """Return the state of a Secret that a listener or an Ingress names, in the Secret's own namespace."""
        ...

    def permitted(self, kind: str, namespace: str, target_kind: str, target_namespace: str, target: str) -> bool:
        """Return whether an object of the Gateway API may refer to an object of the core group (Grants.permitted)."""
        ...
