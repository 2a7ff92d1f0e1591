"""The discovery document with extensions is built once for each of their states."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import msgspec
import pytest

from control.aggregation import documents
from control.aggregation.discovery_document import Resource
from control.aggregation.merged_discovery import MergedDiscovery
from control.aggregation.remote import FrontProxy, Remote
from control.auth.user import UserInfo
from control.http.exchange import Answer, Request, Response

AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Local:
    """The local handler: its documents name one group."""

    def __init__(self) -> None:
        self.group, self.received = "apps", list[dict[bytes, bytes]]()

    async def __call__(self, request: Request) -> Answer:
        self.received.append(dict(request.headers))
        if b"APIGroupDiscoveryList" not in request.headers[b"accept"]:
            return Response(200, msgspec.json.encode({"kind": "APIGroupList", "groups": []}))
        found = {"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": self.group}, "versions": []}]}
        return Response(200, msgspec.json.encode(found), headers=[(b"etag", f'"{self.group}"'.encode())])


def remote() -> Remote:
    spec = {"group": "g", "version": "v1", "service": {"namespace": "n", "name": "s"}}
    found = Remote({"spec": spec}, 1, FrontProxy(None, None), available=True)
    found.resources, found.digest = [Resource(name="fish", kind="Fish", verbs=["get"])], "1"
    return found


def request(accept: bytes = AGGREGATED, **headers: bytes) -> Request:
    async def nothing(limit: int) -> bytes:
        return b""

    more = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    found = Request("GET", "/apis", b"", {b"accept": accept, **more}, nothing)
    found.user = UserInfo("jane")
    return found


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the documents that were built."""
    calls: list[str] = []
    for name in ("aggregated", "groups"):
        inner = getattr(documents, name)

        def counted(*args: Any, _inner: Any = inner, _name: str = name) -> Any:
            calls.append(_name)
            return _inner(*args)

        monkeypatch.setattr(documents, name, counted)
    return calls


async def body(merged: MergedDiscovery, asked: Request, *remotes: Remote) -> Any:
    answer = await merged.answer(asked, remotes)
    assert isinstance(answer, Response) and answer.status == 200
    return msgspec.json.decode(bytes(answer.body))  # type: ignore[arg-type]


async def test_requests_build_a_document_once_until_an_extension_changes(built: list[str]) -> None:
    local, one = Local(), remote()
    merged = MergedDiscovery(local)
    found = await asyncio.gather(*(body(merged, request(), one) for _ in range(10)))
    assert built == ["aggregated"] and all(each == found[0] for each in found)
    (version,) = found[0]["items"][1]["versions"]
    assert (version["freshness"], version["resources"][0]["resource"]) == ("Current", "fish")
    one.available = False
    assert (await body(merged, request(), one))["items"][1]["versions"][0]["freshness"] == "Stale"
    one.resources, one.digest = [], "2"
    assert (await body(merged, request(), one))["items"][1]["versions"][0]["resources"] == []
    local.group = "batch"
    assert (await body(merged, request(), one))["items"][0]["metadata"]["name"] == "batch"
    assert built == ["aggregated"] * 4
    for accept in (b"application/json", b"application/yaml", b"application/json"):
        await merged.answer(request(accept), [one])
    assert built == ["aggregated"] * 4 + ["groups"] * 2


async def test_a_client_that_has_the_document_gets_none(built: list[str]) -> None:
    local, one = Local(), remote()
    merged = MergedDiscovery(local)
    first = await merged.answer(request(accept_encoding=b"gzip"), [one])
    assert isinstance(first, Response) and (b"content-encoding", b"gzip") in first.headers
    assert msgspec.json.decode(gzip.decompress(bytes(first.body))) == await body(merged, request(), one)  # type: ignore[arg-type]
    etag = dict(first.headers)[b"etag"]
    asked = request(if_none_match=etag)
    again = await merged.answer(asked, [one])
    assert isinstance(again, Response) and (again.status, bytes(again.body)) == (304, b"")  # type: ignore[arg-type]
    assert asked.headers == {b"accept": AGGREGATED, b"if-none-match": etag}
    assert all(b"if-none-match" not in headers for headers in local.received)
    one.available = False
    changed = await merged.answer(request(if_none_match=etag), [one])
    assert isinstance(changed, Response) and changed.status == 200 and dict(changed.headers)[b"etag"] != etag
    assert len(built) == 2
