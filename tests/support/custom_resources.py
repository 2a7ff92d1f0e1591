"""Definitions and objects of custom resources, servers for them, and functions that wait until a server serves them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.control import Answer, ApiUnderTest, api_server
from tests.support.etcd import etcd

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "stable.example.com"
SPEC = {
    "type": "object",
    "required": ["cronSpec"],
    "properties": {
        "cronSpec": {"type": "string", "pattern": "^[0-9*/ ]+$"},
        "image": {"type": "string", "default": "busybox"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    },
}
STATUS = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string"}},
}


def version(name: str = "v1", **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": copy.deepcopy(SPEC), "status": copy.deepcopy(STATUS)}}
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}


def definition(kind: str, *versions: dict[str, Any], group: str = GROUP, scope: str = "Namespaced") -> dict[str, Any]:
    plural = kind.lower() + "s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": list(versions) or [version()],
        },
    }


def conditions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in found.get("status", {}).get("conditions", [])}


async def settled(server: ApiUnderTest, name: str, kind: str = "NamesAccepted") -> dict[str, Any]:
    """Wait for a definition's condition, whatever its status."""
    async with asyncio.timeout(90):
        while True:
            found = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
            if kind in conditions(found):
                return found
            await asyncio.sleep(0.01)


async def install(server: ApiUnderTest, made: dict[str, Any]) -> str:
    """Create a definition, wait until it is established, and return the path of its objects in `default`."""
    answer = await server.request("POST", DEFINITIONS, made)
    assert answer.status == 201, answer.body
    found = await settled(server, made["metadata"]["name"], "Established")
    assert conditions(found)["Established"] == ("True", "InitialNamesAccepted"), found
    spec = made["spec"]
    place = "/namespaces/default" if spec["scope"] == "Namespaced" else ""
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}{place}/{spec['names']['plural']}"


def obj(kind: str, name: str = "a", api_version: str = f"{GROUP}/v1", **spec: Any) -> dict[str, Any]:
    whole = {"cronSpec": "* * *", **spec}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": whole}


async def post(server: ApiUnderTest, path: str, body: Any, status: int = 201) -> dict[str, Any]:
    answer: Answer = await server.request("POST", path, body)
    assert answer.status == status, answer.body
    found: dict[str, Any] = answer.json
    return found


@asynccontextmanager
async def server_on(engine: str, directory: Path) -> AsyncIterator[ApiUnderTest]:
    """Run an API server on a storage engine, "sqlite" or "etcd"."""
    async with AsyncExitStack() as stack:
        changes: dict[str, Any] = {}
        if engine == "etcd":
            cluster = await stack.enter_async_context(etcd(directory / "etcd"))
            changes = {"store": "etcd", "etcd_servers": tuple(cluster.servers)}
        yield await stack.enter_async_context(api_server(directory, **changes))
