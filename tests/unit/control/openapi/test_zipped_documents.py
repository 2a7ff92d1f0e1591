"""Documents are built once for all requests that wait for them, and kept as gzip until their ETag changes."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace
from typing import Any

import pytest

from control.auth.user import UserInfo
from control.http.exchange import Request, Response
from control.http.pieces import whole
from control.openapi import serve
from control.openapi.documents import Documents
from control.openapi.zipped_documents import ZippedDocuments, unzipped


class Maker:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return b"document " * 1000


async def test_requests_at_the_same_time_build_a_document_once() -> None:
    documents, make = ZippedDocuments(), Maker()
    found = await asyncio.gather(*(documents.get(f"u{n % 3}", "v2", "1", make) for n in range(24)))
    assert make.calls == 1
    assert all(each is found[0] for each in found)
    assert await documents.get("other", "v2", "1", make) is found[0]
    assert gzip.decompress(found[0]) == await unzipped("u", found[0]) == b"document " * 1000
    assert not documents._building


async def test_a_document_with_another_etag_replaces_the_kept_one() -> None:
    documents, make = ZippedDocuments(), Maker()
    for etag in ("1", "2", "2", "1"):
        await documents.get("u", "v2", etag, make)
    assert make.calls == 3
    assert len(documents._kept) == 1


async def test_a_request_that_is_cancelled_leaves_the_document_to_the_others() -> None:
    documents, make = ZippedDocuments(), Maker()
    first, second = (asyncio.create_task(documents.get("u", "v2", "1", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert gzip.decompress(await second) and make.calls == 1


async def test_a_document_that_cannot_be_built_is_tried_again() -> None:
    documents = ZippedDocuments()

    def fail() -> bytes:
        raise ValueError("no document")

    with pytest.raises(ValueError, match="no document"):
        await documents.get("u", "v2", "1", fail)
    assert await documents.get("u", "v2", "1", Maker())


async def test_many_requests_for_a_document_build_and_compress_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed, built = list[int](), list[str]()
    compress, v3 = gzip.compress, Documents.v3
    monkeypatch.setattr(
        gzip, "compress", lambda data, *a, **k: (compressed.append(len(data)), compress(data, *a, **k))[1]
    )
    monkeypatch.setattr(Documents, "v3", lambda self, root: (built.append(root), v3(self, root))[1])
    monkeypatch.setattr(serve, "_built_in", Documents(serve.EVERYTHING))

    async def no_body(limit: int) -> bytes:
        return b""

    async def get(*headers: tuple[bytes, bytes]) -> Response:
        request = Request("GET", "/openapi/v3/apis/policy/v1", b"", dict(((b"accept", b"*/*"), *headers)), no_body)
        request.user = UserInfo("u")
        return await serve.answer(request)

    zipped = await asyncio.gather(*(get((b"accept-encoding", b"gzip")) for _ in range(8)))
    plain = await asyncio.gather(*(get() for _ in range(3)))
    assert (len(compressed), built) == (1, ["apis/policy/v1"])
    assert {gzip.decompress(whole(each.body)) for each in zipped} == {whole(each.body) for each in plain}


class Custom:
    """Definitions of custom resources, of which only the group version counts."""

    def __init__(self) -> None:
        self.revision, self.roots = 0, list[str]()

    def serve(self, *roots: str) -> None:
        self.revision, self.roots = self.revision + 1, list(roots)

    def every(self) -> list[Any]:
        return [SimpleNamespace(root=root) for root in self.roots]


async def test_documents_of_group_versions_that_are_gone_are_dropped() -> None:
    custom: Any = Custom()
    custom.serve("/apis/a.example/v1", "/apis/b.example/v1")
    zipped = serve._of(serve.documents(custom))
    for root in ("apis/a.example/v1", "apis/b.example/v1", "api/v1"):
        await zipped.get("u", root, "1", Maker())
    custom.serve("/apis/b.example/v1")
    serve.documents(custom)
    assert list(zipped._kept) == ["apis/b.example/v1", "api/v1"]


async def test_a_document_has_the_resources_of_its_etag_whenever_it_is_built() -> None:
    documents = Documents(serve.EVERYTHING)
    custom: Any = Custom()
    documents.follow(custom)
    make = documents.snapshot()
    custom.serve("/apis/a.example/v1")
    documents.follow(custom)
    assert "apis/a.example/v1" in documents._custom and "apis/a.example/v1" not in make._custom
