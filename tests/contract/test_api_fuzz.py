"""Whatever the OpenAPI document lets a client send, and a little more, is answered: in time, never with a 500, and a refusal
is always a Status.

The gate draws the same few hundred requests each time. For longer: WHERRY_FUZZ_EXAMPLES=20000 draws as many others, by the seed
that `--hypothesis-seed` gives.
"""

import asyncio
import base64
import gzip
import json
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, Phase, given, settings

from kube.resources import RESOURCES
from tests.support.control import ApiUnderTest, api_server
from tests.support.minimal import minimal
from tests.support.openapi_fuzz import Call, Requests

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "0"))
DEFINITION = {
    "metadata": {"name": "boats.fuzz.example"},
    "spec": {
        "group": "fuzz.example",
        "scope": "Namespaced",
        "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.crew", "statusReplicasPath": ".status.crew"},
                },
                "selectableFields": [{"jsonPath": ".spec.name"}],
                "additionalPrinterColumns": [{"name": "Crew", "type": "integer", "jsonPath": ".spec.crew"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "x-kubernetes-validations": [
                                    {"rule": "!has(self.name) || self.name.size() < 20 || self.name.matches('^x+$')"},
                                    {"rule": "!has(self.holds) || self.holds.all(h, h.id != 'z')"},
                                ],
                                "properties": {
                                    "name": {"type": "string", "maxLength": 300, "pattern": "^[^/]*$"},
                                    "crew": {"type": "integer", "format": "int32", "default": 1, "maximum": 9},
                                    "size": {"x-kubernetes-int-or-string": True},
                                    "sails": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "set",
                                        "items": {"type": "string"},
                                    },
                                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "holds": {
                                        "type": "array",
                                        "maxItems": 20,
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["id"],
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {
                                                "id": {"type": "string"},
                                                "when": {"type": "string", "format": "date-time", "nullable": True},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {"type": "object", "properties": {"crew": {"type": "integer"}}},
                        },
                    }
                },
            }
        ],
    },
}
GUARDED = (
    "/apis/admissionregistration",
    "/apis/apiregistration",
    "/apis/apiextensions",
    "/apis/flowcontrol",
    "/api/v1/namespaces/{name}",
)
UPSTREAMS = (
    b"resourceVersion should not be set on objects to be created",
    b"failed to create typed patch object",
    b"the spec replicas field ",
)
"""Messages of errors that upstream answers with 500, although the client is at fault: clients may know them."""
CUSTOM = "/apis/fuzz.example/v1/namespaces/{namespace}/boats"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "fuzz"}})
        for namespace in ("fuzz", "default"):
            await api.request(
                "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}}
            )
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        created = await api.request("POST", path, DEFINITION)
        assert created.status == 201, created.body
        async with asyncio.timeout(30):
            while (await api.request("GET", CUSTOM.format(namespace="fuzz"))).status != 200:
                await asyncio.sleep(0.05)
        yield api


async def answered(server: ApiUnderTest, call: Call) -> None:
    """Send the request and hold the answer to what is promised of all of them."""
    try:
        async with asyncio.timeout(30):
            answer = await server.request(call.method, call.path, call.body, headers=call.headers)
    except TimeoutError:
        raise AssertionError(f"no answer within 30 s to {call}") from None
    known = any(message in answer.body for message in UPSTREAMS)
    assert answer.status < 500 or answer.status in (501, 504) or known, f"{answer.status} {answer.body!r} to {call}"
    if answer.status >= 400 and "protobuf" not in answer.headers.get("Content-Type", ""):
        packed = answer.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(answer.body) if packed else answer.body
        if "yaml" in answer.headers["Content-Type"]:
            assert b"kind: Status" in body, f"{body!r} to {call}"
        else:
            reported = json.loads(body)
            assert (reported["kind"], reported["code"]) == ("Status", answer.status) and reported["message"], (
                f"{reported} to {call}"
            )


async def drawn(server: ApiUnderTest, requests: Requests, examples: int) -> None:
    """Send drawn requests one after another; hypothesis runs in a thread, so that the server's loop stays free."""
    loop = asyncio.get_running_loop()

    @settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate] if not EXAMPLES else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=bool(EXAMPLES),
    )
    @given(requests.calls())
    def one(call: Call) -> None:
        asyncio.run_coroutine_threadsafe(answered(server, call), loop).result(60)

    await asyncio.to_thread(one)


async def valid(server: ApiUnderTest) -> list[dict]:
    """Create an object of every built-in kind, so that there is something to change; return them all."""
    found = []
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, SHA256())
    request = base64.b64encode(signed.public_bytes(Encoding.PEM)).decode()
    for resource in RESOURCES:
        if "create" in resource.verbs and "update" in resource.verbs:
            obj = minimal(resource, "fuzz" if resource.namespaced else "", 1, request)
            found.append({**obj, "apiVersion": resource.api_version, "kind": resource.kind})
            if not resource.path().startswith(GUARDED):
                changed = {**obj, "metadata": {**obj["metadata"], "name": "a"}}
                await server.request("POST", resource.path("fuzz" if resource.namespaced else ""), changed)
    return found


async def document(server: ApiUnderTest) -> dict:
    found: dict = (await server.request("GET", "/openapi/v2", headers={"Accept-Encoding": "identity"})).json
    return found


@pytest.mark.timeout(0 if EXAMPLES else 120)
async def test_no_request_that_the_document_allows_breaks_the_server(server: ApiUnderTest) -> None:
    await drawn(server, Requests(await document(server), GUARDED, await valid(server)), 400)


@pytest.mark.timeout(0 if EXAMPLES else 120)
async def test_no_request_for_a_custom_resource_breaks_the_server(server: ApiUnderTest) -> None:
    whole = await document(server)
    paths = {path: item for path, item in whole["paths"].items() if path.startswith(CUSTOM)}
    assert len(paths) == 4, "the collection, an object, its status and its scale"
    await drawn(server, Requests({**whole, "paths": paths}, ()), 150)
