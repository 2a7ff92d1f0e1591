"""An API server with an extension server behind it that is registered and available."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.addresses import own_address
from tests.support.control import ApiUnderTest, api_server
from tests.support.extension import GROUP, ROOT, VERSION, Extension, extension

APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
FLUNDERS = f"{ROOT}/namespaces/default/flunders"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
MERGE = {"Content-Type": "application/merge-patch+json"}
Started = tuple[ApiUnderTest, Extension]


@contextlib.asynccontextmanager
async def aggregated(directory: Path, **changes: Any) -> AsyncIterator[Started]:
    """Run a server, configured with `changes`, and an extension server that it knows."""
    async with api_server(directory, **changes) as server, extended(directory) as behind:
        await register(server, behind)
        yield server, behind


def extended(directory: Path) -> contextlib.AbstractAsyncContextManager[Extension]:
    """Run the extension server that believes the front proxy of the server with this directory."""
    ca = directory / "pki" / "front-proxy-ca.crt"
    return extension(directory / "extension", own_address(), "flunder.default.svc", ca)


async def register(server: ApiUnderTest, behind: Extension) -> None:
    """Create the extension's Service, slice and APIService, and wait until it is available and its documents are read."""
    ports = [{"port": 443, "targetPort": behind.port, "protocol": "TCP"}]
    service = {"metadata": {"name": "flunder"}, "spec": {"ports": ports}}
    await server.request("POST", "/api/v1/namespaces/default/services", service)
    slice_ = {
        "metadata": {"name": "flunder-1", "labels": {"kubernetes.io/service-name": "flunder"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
        "ports": [{"name": "", "port": behind.port, "protocol": "TCP"}],
    }
    await server.request("POST", SLICES, slice_)
    made = await server.request("POST", APISERVICES, registration(behind))
    assert made.status == 201, made.json
    await condition(server, "True", "Passed")

    async def documents_are_read() -> bool:
        return server.api.aggregator.extensions.remotes[GROUP, VERSION].part is not None

    await until(documents_are_read)


def registration(behind: Extension) -> dict[str, Any]:
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "service": {"namespace": "default", "name": "flunder"},
        "caBundle": base64.b64encode(behind.authority.cert_pem).decode(),
    }
    return {"metadata": {"name": NAME}, "spec": spec}


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await check():
            await asyncio.sleep(0.05)


async def condition(server: ApiUnderTest, status: str, reason: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_reported() -> bool:
        nonlocal found
        service = (await server.request("GET", f"{APISERVICES}/{NAME}")).json
        found = next(iter(service.get("status", {}).get("conditions", ())), {})
        return (found.get("status"), found.get("reason")) == (status, reason)

    await until(is_reported)
    return found


async def touch(server: ApiUnderTest) -> None:
    """Have the extension looked at now and not in half a minute."""
    label = {"metadata": {"labels": {"touched": str(asyncio.get_running_loop().time())}}}
    await server.request("PATCH", f"{APISERVICES}/{NAME}", label, headers=MERGE)
