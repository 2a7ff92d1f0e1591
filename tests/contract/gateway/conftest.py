"""An API server with the gateway's controller, and nodes that serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.controllers import manager
from kube import serialize
from kube.api import core_v1
from kube.client import Client
from kube.gateway.names import NAMESPACE
from tests.support.control import Answer, ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running

GROUP = "/apis/gateway.networking.k8s.io/v1"


class GatewayCluster:
    """Functions for objects of the namespace `infra`, unless another one is named."""

    def __init__(self, server: ApiUnderTest) -> None:
        self.server = server
        self.client: Client = server.client()
        self.nodes = HollowNodes(self.client)
        self.refusing: set[tuple[str, int]] = set()
        """Addresses and ports of nodes that refuse connections."""

    async def refuses(self, address: str, port: int, private: int = 0) -> bool:
        """Answer as a node would: hollow ones have no addresses to connect to."""
        return (address, port) in self.refusing

    async def node(self, name: str, ip: str) -> None:
        await self.nodes.register(name)
        address = {"status": {"addresses": [{"type": "InternalIP", "address": ip}]}}
        await self.client.patch(core_v1.Node, name, "", address, subresource="status")

    async def apply(self, *objects: Any) -> None:
        """Apply objects, structs or JSON, in the order given."""
        for each in objects:
            body = serialize.to_dict(each) if not isinstance(each, dict) else each
            answer = await self.post(body)
            assert answer.status == 201, answer.body

    async def post(self, body: dict[str, Any]) -> Answer:
        plural, group = PLACES[body["kind"]]
        namespace = body["metadata"].get("namespace")
        path = f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"
        return await self.server.request("POST", path, body)

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.server.request("GET", path)
        found: dict[str, Any] = answer.json if answer.status != 404 else {}
        return found

    async def status(self, plural: str, name: str, namespace: str = "infra") -> dict[str, Any]:
        found = await self.get(f"{GROUP}/namespaces/{namespace}/{plural}/{name}")
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def generated(self) -> list[core_v1.Service]:
        return (await self.client.list(core_v1.Service, NAMESPACE)).items

    async def copies(self) -> list[core_v1.Secret]:
        return (await self.client.list(core_v1.Secret, NAMESPACE)).items

    async def gateway_has(self, name: str, type_: str, status: str, reason: str = "", namespace: str = "infra") -> None:
        async def look() -> bool:
            return _has((await self.status("gateways", name, namespace)).get("conditions"), type_, status, reason)

        await eventually(look)

    async def route_has(self, name: str, type_: str, status: str, reason: str = "", namespace: str = "infra") -> None:
        async def look() -> bool:
            parents = (await self.status("httproutes", name, namespace)).get("parents") or [{}]
            return _has(parents[-1].get("conditions"), type_, status, reason)

        await eventually(look)


PLACES = {
    "Gateway": ("gateways", GROUP),
    "GatewayClass": ("gatewayclasses", GROUP),
    "HTTPRoute": ("httproutes", GROUP),
    "ReferenceGrant": ("referencegrants", GROUP),
    "Service": ("services", "/api/v1"),
    "Secret": ("secrets", "/api/v1"),
    "Namespace": ("namespaces", "/api/v1"),
    "Ingress": ("ingresses", "/apis/networking.k8s.io/v1"),
    "IngressClass": ("ingressclasses", "/apis/networking.k8s.io/v1"),
}


def _has(conditions: list[dict[str, Any]] | None, type_: str, status: str, reason: str) -> bool:
    found = {each["type"]: each for each in conditions or ()}.get(type_)
    return found is not None and found["status"] == status and reason in ("", found["reason"])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path, gateway=True) as found:
        yield found


@pytest.fixture
async def cluster(server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GatewayCluster]:
    found = GatewayCluster(server)
    monkeypatch.setattr("control.controllers.gateway.controller.refuses", found.refuses)
    async with running(server.controllers(manager.ControllerConfig(gateway=True)), found.nodes.run()):
        await prepare(found)
        yield found
        await asyncio.sleep(0)


async def prepare(found: GatewayCluster) -> None:
    """Create nodes and namespaces, and wait until the definitions are installed."""
    await found.node("n1", "10.0.0.1")
    await found.node("n2", "10.0.0.2")
    for name in ("infra", "apps"):
        await found.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def installed() -> bool:
        path = f"{GROUP}/gatewayclasses/wherry"
        return _has(((await found.get(path)).get("status") or {}).get("conditions"), "Accepted", "True", "")

    await eventually(installed)
