"""EndpointSlices that the server reads as a Service's client: only the Service's own."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from control.dialing.service_backend import backend
from control.server.lookup import StoredObjects
from control.storage import codec, lazy_json
from kube import bounded_cache
from kube.errors import StatusError
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVICES, SLICES = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
OTHERS = 12
MANY = {f"k{index}": "v" for index in range(400)}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        for name in ("web", "moved"):
            body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
            assert (await api.request("POST", SERVICES, body)).status == 201
        for index in range(OTHERS):
            await add(api, f"other-{index}", f"service-{index}", "10.1.1.1")
        await add(api, "web-1", "web", "10.1.0.1")
        yield api


async def add(api: ApiUnderTest, name: str, service: str, address: str) -> None:
    body = {
        "metadata": {"name": name, "labels": {**MANY, "kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"port": 80}],
        "endpoints": [{"addresses": [address]}],
    }
    made = await api.request("POST", SLICES, body)
    assert made.status == 201, made.body


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the objects of which something was made."""
    found, decode = list[str](), codec.decode

    def noted(original: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def call(data: bytes) -> Any:
            name = (decode(bytes(data)).get("metadata") or {}).get("name")
            found.extend([name] if name else [])
            return original(data)

        return call

    for module, name in ((lazy_json, "partial_metadata"), (lazy_json, "lazy_dict"), (codec, "decode")):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    return found


async def test_only_a_services_own_slices_are_read(server: ApiUnderTest, read: list[str]) -> None:
    bounded_cache.forget_all()
    read.clear()
    assert await backend(StoredObjects(server.api.registry), "default", "web", "80") == ("10.1.0.1", 80)
    assert set(read) <= {"web", "web-1"} and "web-1" in read


async def test_the_index_follows_labels_and_deletions(server: ApiUnderTest) -> None:
    lookup = StoredObjects(server.api.registry)
    await add(server, "moving", "moved", "10.1.0.9")
    assert await backend(lookup, "default", "moved", "80") == ("10.1.0.9", 80)
    patch = {"metadata": {"labels": {"kubernetes.io/service-name": "elsewhere"}}}
    assert (await server.request("PATCH", f"{SLICES}/moving", patch, headers=MERGE)).status == 200
    with pytest.raises(StatusError, match="no endpoints available"):
        await backend(lookup, "default", "moved", "80")
    patch["metadata"]["labels"]["kubernetes.io/service-name"] = "moved"
    assert (await server.request("PATCH", f"{SLICES}/moving", patch, headers=MERGE)).status == 200
    assert await backend(lookup, "default", "moved", "80") == ("10.1.0.9", 80)
    assert (await server.request("DELETE", f"{SLICES}/moving")).status == 200
    with pytest.raises(StatusError, match="no endpoints available"):
        await backend(lookup, "default", "moved", "80")
