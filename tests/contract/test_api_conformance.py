"""The conformance table: every stored resource x verb x encoding x form, through the server's own pipeline.

One server and one event loop serve the whole table. What is sent and what comes back passes through the encoding that the row
names, so that a row fails where an encoding loses something or a verb ignores what the client accepts.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control.auth.user import Credentials, UserInfo
from control.decoding.yaml_body import load_yaml
from control.http.exchange import Request, Response, Stream
from control.http.pieces import Body, whole
from kube.json_object import Object
from kube.resources import RESOURCES, Resource
from kube.schema import wire, wire_encode
from tests.support.control import ApiUnderTest, api_server
from tests.support.minimal import minimal

pytestmark = pytest.mark.asyncio(loop_scope="module")
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
ADMIN = UserInfo("kubernetes-admin", groups=("system:masters", "system:authenticated"))
STORED = [r for r in RESOURCES if "create" in r.verbs and "list" in r.verbs]
EACH = pytest.mark.parametrize("resource", STORED, ids=lambda r: f"{r.api_version}/{r.plural}")
PARTIAL = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "as=Table;g=meta.k8s.io;v=v1"
ONE_OF_A_KIND = {"IPAddress", "CustomResourceDefinition", "APIService"}
SAID_OF = {"APIService": "Available", "FlowSchema": "Dangling", "CustomResourceDefinition": "Established"}
"""Kinds that the server itself writes a condition into, and which is the last."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("conformance")) as api:
        await Asked(api).send("POST", "/api/v1/namespaces", {"metadata": {"name": "table"}}, JSON, ("meta_v1", ""))
        accounts = "/api/v1/namespaces/table/serviceaccounts"
        await Asked(api).send("POST", accounts, {"metadata": {"name": "default"}}, JSON, ("core_v1", ""))
        yield api


@pytest.fixture(scope="module")
def certificate_request() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def encoded(value: Object, encoding: str, kind: tuple[str, str]) -> bytes:
    if encoding == PROTOBUF:
        message = wire_encode.framed(wire_encode.encode(value, *kind))
        return wire_encode.envelope(value["apiVersion"], value["kind"], message)
    return yaml.safe_dump(value).encode() if encoding == YAML else msgspec.json.encode(value)


def decoded(body: Body, content_type: str, module: str) -> Object:
    """Read an answer; kinds of meta.k8s.io name their own module, lists are unpacked item by item."""
    data = whole(body)
    if content_type.partition(";")[0] != PROTOBUF:
        found: Object = load_yaml(data) if content_type == YAML else msgspec.json.decode(data)
        return found
    api_version, kind, message = wire.open_envelope(data)
    module = "meta_v1" if api_version.startswith("meta.k8s.io") or kind == "Status" else module
    head: Object = {"apiVersion": api_version, "kind": kind}
    if wire.known(module, kind):
        return head | wire.decode(message, module, kind)
    items, metadata = [], {}
    for number, value in wire._fields(message):
        assert isinstance(value, bytes)
        if number == 1:
            metadata = wire.decode(value, "meta_v1", "ListMeta")
        else:
            items.append(wire.decode(value, module, kind.removesuffix("List")))
    return head | {"metadata": metadata, "items": items}


class Asked:
    """Requests to the server as its administrator, in one encoding."""

    def __init__(self, server: ApiUnderTest, accept: str = JSON) -> None:
        self.server, self.accept = server, accept

    async def send(
        self, method: str, path: str, body: Object | None, encoding: str, kind: tuple[str, str], accept: str = ""
    ) -> tuple[int, Object]:
        data = b"" if body is None else encoded(body, encoding, kind)
        answer = await self.raw(method, path, data, encoding, accept or self.accept)
        assert isinstance(answer, Response), answer
        wanted = (accept or self.accept).partition(";")[0]
        assert answer.content_type.decode() == wanted, (answer.status, whole(answer.body)[:300])
        return answer.status, decoded(answer.body, wanted, kind[0])

    async def raw(self, method: str, path: str, body: bytes, content_type: str, accept: str) -> Response | Stream:
        async def read(limit: int) -> bytes:
            return body

        path, _, query = path.partition("?")
        headers = {b"accept": accept.encode(), b"content-type": content_type.encode(), b"user-agent": b"conformance"}
        request = Request(method, path, query.encode(), headers, read)
        answer = await self.server.api.pipeline.answer(request, Credentials(), ADMIN)
        assert isinstance(answer, Response | Stream)
        return answer

    async def first_event(self, path: str, accept: str, module: str) -> tuple[str, Object, str]:
        """Return the type, the object and the content type of a watch's first event."""
        answer = await self.raw("GET", path, b"", "", accept)
        assert isinstance(answer, Stream), answer
        async with asyncio.timeout(30):
            chunk = await anext(answer.chunks)
        await answer.chunks.aclose()  # type: ignore[attr-defined]
        content_type = answer.content_type.decode()
        if not content_type.startswith(PROTOBUF):
            event = msgspec.json.decode(chunk.split(b"\n")[0])
            return event["type"], event["object"], content_type
        size = int.from_bytes(chunk[:4], "big")
        parts = dict(wire._fields(chunk[4 : 4 + size]))
        kind, raw = parts[1], parts[2]
        assert isinstance(kind, bytes) and isinstance(raw, bytes)
        inside = dict(wire._fields(raw))[1]
        assert isinstance(inside, bytes)
        return kind.decode(), decoded(inside, PROTOBUF, module), content_type


def named(listing: Object, name: str) -> list[Object]:
    return [item for item in listing["items"] if item["metadata"]["name"] == name]


@EACH
async def test_every_verb_in_every_encoding(server: ApiUnderTest, resource: Resource, certificate_request: str) -> None:
    collection = resource.path("table")
    kind = (resource.module, resource.kind)
    for number, encoding in enumerate((JSON, YAML, PROTOBUF)):
        ask = Asked(server, encoding)
        obj = minimal(resource, "table", number, certificate_request)
        name = obj["metadata"]["name"]
        path = f"{collection}/{name}"
        code, before = await ask.send("GET", f"{collection}?limit=1", None, encoding, kind)
        assert code == 200 and before["kind"] == f"{resource.kind}List"
        assert before["apiVersion"] == resource.api_version
        revision = before["metadata"]["resourceVersion"]

        code, made = await ask.send("POST", collection, obj, encoding, kind)
        assert code == 201, made
        assert (made["kind"], made["apiVersion"]) == (resource.kind, resource.api_version)
        assert made["metadata"]["uid"] and made["metadata"]["resourceVersion"] != revision
        made = await _settled(ask, path, made, kind)

        code, found = await ask.send("GET", path, None, encoding, kind)
        assert code == 200 and found == made, "what was made is what is there, in each encoding"
        _, plain = await Asked(server).send("GET", path, None, JSON, kind)
        for part, value in obj.items():
            if part not in ("metadata", "status", "kind", "apiVersion"):
                assert _holds(plain[part], value), f"{encoding} lost something of {part}"

        code, listing = await ask.send("GET", collection, None, encoding, kind)
        (item,) = named(listing, name)
        assert code == 200 and item == {k: v for k, v in found.items() if k not in ("kind", "apiVersion")}

        events = [JSON, PROTOBUF] if encoding != YAML else [JSON]
        watch = f"{collection}?watch=true&resourceVersion={revision}&fieldSelector=metadata.name%3D{name}"
        for accept in events:
            event, shown, content_type = await ask.first_event(watch, accept, resource.module)
            assert event == "ADDED" and shown["metadata"]["uid"] == made["metadata"]["uid"]
            assert shown["kind"] == resource.kind
            assert content_type == (PROTOBUF + ";stream=watch" if accept == PROTOBUF else JSON)

        found["metadata"]["labels"]["changed"] = "by-update"
        code, updated = await ask.send("PUT", path, found, encoding, kind)
        assert code == 200 and updated["metadata"]["labels"]["changed"] == "by-update", updated
        for content_type, query, patch in patches(resource, name):
            answer = await ask.raw("PATCH", path + query, patch, content_type, encoding)
            assert isinstance(answer, Response) and answer.status == 200, (content_type, answer)
            assert decoded(answer.body, encoding, resource.module)["metadata"]["labels"]["changed"] == mark(
                content_type
            )
        if "status" in resource.subresources:
            code, found = await ask.send("GET", f"{path}/status", None, encoding, kind)
            assert code == 200 and found["kind"] == resource.kind
            code, found = await ask.send("PUT", f"{path}/status", found, encoding, kind)
            assert code == 200 and found["kind"] == resource.kind, found

        code, gone = await ask.send("DELETE", f"{path}?gracePeriodSeconds=0", None, encoding, kind)
        assert code in (200, 202), gone
        assert gone["kind"] in ("Status", resource.kind)
        code, missing = await ask.send("GET", f"{path}x", None, encoding, kind)
        assert code == 404 and missing["kind"] == "Status" and missing["reason"] == "NotFound"
        assert missing["code"] == 404 and missing["details"]["kind"] == resource.plural
        if resource.kind in ONE_OF_A_KIND or resource.kind == "Namespace":
            await _gone(ask, path)


def mark(content_type: str) -> str:
    """Return a label's value that names a content type."""
    return content_type.removeprefix("application/").replace("+", ".")


def patches(resource: Resource, name: str) -> list[tuple[str, str, bytes]]:
    """Return a patch of each type: (content type, query, body). Each writes its own type's name into a label."""
    merge, strategic, sequence, apply = (
        f"application/{kind}"
        for kind in ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")
    )
    operation = {"op": "replace", "path": "/metadata/labels/changed", "value": mark(sequence)}
    applied = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": {"changed": mark(apply)}},
    }
    return [
        (kind, "", msgspec.json.encode({"metadata": {"labels": {"changed": mark(kind)}}}))
        for kind in (merge, strategic)
    ] + [
        (sequence, "", msgspec.json.encode([operation])),
        (apply, "?fieldManager=conform&force=true", yaml.safe_dump(applied).encode()),
    ]


async def _settled(ask: Asked, path: str, made: Object, kind: tuple[str, str]) -> Object:
    """Return an object once the server has said what it thinks of it, where it does so by itself."""
    if made["kind"] not in SAID_OF:
        return made
    async with asyncio.timeout(30):
        while True:
            code, found = await ask.send("GET", path, None, ask.accept, kind)
            conditions = (found.get("status") or {}).get("conditions") or ()
            if code == 200 and any(c["type"] == SAID_OF[made["kind"]] for c in conditions):
                return found
            await asyncio.sleep(0.02)


async def _gone(ask: Asked, path: str) -> None:
    """Remove what finalizers hold back, where no controller runs that would."""
    async with asyncio.timeout(30):
        while True:
            answer = await ask.raw("GET", path, b"", "", JSON)
            assert isinstance(answer, Response)
            if answer.status == 404 or path.startswith("/api/v1/namespaces/conform"):
                return
            await asyncio.sleep(0.05)


def _holds(found: Any, sent: Any) -> bool:
    """Return whether everything that was sent is there; defaults may have joined it."""
    if isinstance(sent, dict):
        return isinstance(found, dict) and all(
            k in found and _holds(found[k], v) for k, v in sent.items() if v not in ({}, [])
        )
    if isinstance(sent, list):
        return len(found) == len(sent) and all(_holds(f, s) for f, s in zip(found, sent, strict=True))
    return bool(found == sent)


@EACH
async def test_every_form_in_every_encoding(server: ApiUnderTest, resource: Resource, certificate_request: str) -> None:
    collection = resource.path("table")
    kind = (resource.module, resource.kind)
    obj = minimal(resource, "table", 9, certificate_request)
    name = obj["metadata"]["name"]
    ask = Asked(server)
    _, before = await ask.send("GET", f"{collection}?limit=1", None, JSON, kind)
    code, made = await ask.send("POST", collection, obj, JSON, kind)
    assert code == 201, made
    uid, path = made["metadata"]["uid"], f"{collection}/{name}"
    made = await _settled(ask, path, made, kind)
    revision = before["metadata"]["resourceVersion"]
    watch = f"{collection}?watch=1&resourceVersion={revision}&fieldSelector=metadata.name%3D{name}"
    for encoding in (JSON, YAML, PROTOBUF):
        code, found = await ask.send("GET", path, None, encoding, kind, f"{encoding};{PARTIAL}")
        assert code == 200 and (found["kind"], found["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert found["metadata"] == made["metadata"] and set(found) == {"kind", "apiVersion", "metadata"}
        code, listing = await ask.send("GET", collection, None, encoding, kind, f"{encoding};{PARTIAL_LIST}")
        assert code == 200 and listing["kind"] == "PartialObjectMetadataList"
        (item,) = named(listing, name)
        assert item["metadata"] == made["metadata"]
        if encoding != YAML:
            event, shown, _ = await ask.first_event(watch, f"{encoding};{PARTIAL}", resource.module)
            assert event == "ADDED" and shown["kind"] == "PartialObjectMetadata" and shown["metadata"]["uid"] == uid
    for encoding in (JSON, YAML):
        for place, count in ((path, 1), (collection, None)):
            code, table = await ask.send("GET", place, None, encoding, kind, f"{encoding};{TABLE}")
            assert code == 200 and table["kind"] == "Table"
            assert count is None or len(table["rows"]) == count
            assert table["columnDefinitions"][0]["name"] == ("Last Seen" if resource.kind == "Event" else "Name")
            assert all(len(row["cells"]) == len(table["columnDefinitions"]) for row in table["rows"])
            assert uid in {row["object"]["metadata"]["uid"] for row in table["rows"]}
    event, table, _ = await ask.first_event(watch, f"{JSON};{TABLE}", resource.module)
    assert event == "ADDED" and table["kind"] == "Table" and len(table["rows"]) == 1
    # A Table has no protobuf form: what is named after it is served, and nothing else.
    code, _ = await ask.send("GET", path, None, JSON, kind, JSON)
    fallback = await ask.raw("GET", path, b"", "", f"{PROTOBUF};{TABLE},{JSON};{TABLE},{JSON}")
    assert isinstance(fallback, Response) and msgspec.json.decode(whole(fallback.body))["kind"] == "Table"
    refused = await ask.raw("GET", path, b"", "", f"{PROTOBUF};{TABLE}")
    assert isinstance(refused, Response) and refused.status == 406
    swept = await ask.raw("DELETE", f"{collection}?fieldSelector=metadata.name%3D{name}", b"", "", PROTOBUF)
    assert isinstance(swept, Response) and swept.status == (405 if resource.kind == "Namespace" else 200), swept.body
    if swept.status == 200:
        (item,) = decoded(swept.body, PROTOBUF, resource.module)["items"]
        assert item["metadata"]["uid"] == uid


@pytest.mark.parametrize("encoding", [JSON, YAML, PROTOBUF])
async def test_reviews_are_accepted_and_returned_in_every_encoding(server: ApiUnderTest, encoding: str) -> None:
    ask = Asked(server, encoding)
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    code, answer = await ask.send("POST", path, body, encoding, ("authorization_v1", "SelfSubjectAccessReview"))
    assert code == 201 and answer["status"]["allowed"] is True
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    await Asked(server).send(
        "POST", "/api/v1/namespaces/table/serviceaccounts", {"metadata": {"name": "robot"}}, JSON, ("core_v1", "")
    )
    path = "/api/v1/namespaces/table/serviceaccounts/robot/token"
    code, answer = await ask.send("POST", path, body, encoding, ("authentication_v1", "TokenRequest"))
    assert code == 201 and answer["status"]["token"].count(".") == 2


@pytest.mark.parametrize("encoding", [JSON, YAML, PROTOBUF])
async def test_discovery_in_every_encoding(server: ApiUnderTest, encoding: str) -> None:
    ask = Asked(server, encoding)
    _, root = await ask.send("GET", "/api", None, encoding, ("meta_v1", ""))
    assert root["kind"] == "APIVersions" and root["versions"] == ["v1"]
    _, resources = await ask.send("GET", "/api/v1", None, encoding, ("meta_v1", ""))
    assert (resources["kind"], resources["groupVersion"]) == ("APIResourceList", "v1")
    assert any(r["name"] == "pods" and "list" in r["verbs"] for r in resources["resources"])
    _, plain = await Asked(server).send("GET", "/apis/apps/v1", None, JSON, ("meta_v1", ""))
    assert {r["name"] for r in plain["resources"]} >= {"deployments", "deployments/scale"}
    aggregated = await ask.raw(
        "GET", "/apis", b"", "", f"{encoding};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    )
    assert isinstance(aggregated, Response)
    assert aggregated.content_type.decode().startswith(f"{encoding};g=apidiscovery.k8s.io;v=v2")
    shown = whole(aggregated.body)
    assert b"apps" in shown and b"deployments" in shown


@pytest.mark.parametrize("encoding", [JSON, YAML, PROTOBUF])
async def test_errors_come_in_the_encoding_requested(server: ApiUnderTest, encoding: str) -> None:
    answer = await Asked(server).raw("GET", "/api/v1/namespaces/table/pods/absent", b"", "", encoding)
    assert isinstance(answer, Response) and answer.status == 404 and answer.content_type.decode() == encoding
    status = decoded(answer.body, encoding, "meta_v1")
    assert status["reason"] == "NotFound" and status["details"]["name"] == "absent"
    answer = await Asked(server).raw("POST", "/api/v1/namespaces/table/pods", b"", "text/plain", encoding)
    assert isinstance(answer, Response) and answer.status == 415
    assert (
        "accepted media types include: application/json, application/yaml"
        in decoded(answer.body, encoding, "")["message"]
    )


async def test_an_expired_watch_ends_with_an_error_in_protobuf(server: ApiUnderTest) -> None:
    path = "/api/v1/configmaps?watch=1&resourceVersion=1"
    compacted = await server.api.store.current_revision()
    await server.api.store.compact(compacted)
    for cached in server.api.registry.caches():
        cached.recent._changes.clear()
        cached.recent.floor = compacted
    event, status, _ = await Asked(server).first_event(path, PROTOBUF, "meta_v1")
    assert event == "ERROR" and status["kind"] == "Status" and status["code"] == 410


async def test_custom_resources_have_protobuf_for_their_metadata_alone(server: ApiUnderTest) -> None:
    ask = Asked(server)
    spec = {
        "group": "widgets.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    }
    definitions, kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ("apiextensions_v1", "")
    body = {"metadata": {"name": "widgets.widgets.example.com"}, "spec": spec}
    code, made = await ask.send("POST", definitions, body, JSON, kind)
    assert code == 201, made
    await _settled(ask, f"{definitions}/widgets.widgets.example.com", made, kind)
    collection = "/apis/widgets.example.com/v1/namespaces/table/widgets"
    widget = {"apiVersion": "widgets.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    code, made = await ask.send("POST", collection, widget, JSON, kind)
    assert code == 201, made
    refused = await ask.raw("GET", f"{collection}/w", b"", "", PROTOBUF)
    assert isinstance(refused, Response) and refused.status == 406
    assert "accepted: application/json, application/yaml" in decoded(refused.body, PROTOBUF, "meta_v1")["message"]
    either = await ask.raw("GET", f"{collection}/w", b"", "", f"{PROTOBUF},{JSON}")
    assert isinstance(either, Response) and msgspec.json.decode(whole(either.body))["kind"] == "Widget"
    code, listing = await ask.send("GET", collection, None, JSON, kind)
    assert (listing["items"][0]["kind"], listing["kind"]) == ("Widget", "WidgetList"), "custom items say what they are"
    code, found = await ask.send("GET", f"{collection}/w", None, PROTOBUF, kind, f"{PROTOBUF};{PARTIAL}")
    assert code == 200 and found["metadata"]["uid"] == made["metadata"]["uid"]
    event, shown, _ = await ask.first_event(
        f"{collection}?watch=1&resourceVersion=0", f"{PROTOBUF};{PARTIAL}", "meta_v1"
    )
    assert event == "ADDED" and shown["metadata"]["name"] == "w"
