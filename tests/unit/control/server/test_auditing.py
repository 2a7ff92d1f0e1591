from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from control.auth.audit import AuditContext, Auditor
from control.auth.audit_policy import Policy
from control.auth.user import UserInfo
from control.event_loop import offload
from control.http.chunks import Chunks, Release
from control.http.exchange import Request, Response, Stream
from control.server import audit_bodies, auditing, authorizing
from tests.support.clock import FakeClock

JSON, GZIP = b"application/json", [(b"content-encoding", b"gzip")]
ITEM = {"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "data": {f"k{n}": "é" for n in range(5000)}}
MANY = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [ITEM] * 40}
BARE = MANY | {"items": [ITEM | {"metadata": {"name": "a"}}] * 40}
ITEM_BYTES = len(msgspec.json.encode(ITEM))


class Lines:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, line: bytes, user: bytes = b"") -> None:
        self.lines.append(line)

    @property
    def last(self) -> dict[str, Any]:
        return json.loads(self.lines[-1])  # type: ignore[no-any-return]


class Audited:
    """Requests whose lines are kept."""

    def __init__(self, level: str = "RequestResponse", **more: Any) -> None:
        self.sink = Lines()
        rules = [{"level": level, "omitStages": ["RequestReceived"]}]
        policy = Policy.parse(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more}))
        self.auditor = Auditor(policy, [self.sink], FakeClock())

    async def request(self, sent: bytes = b"", method: str = "GET", kind: bytes = JSON) -> Request:
        async def read(limit: int) -> bytes:
            return sent

        request = Request(method, "/api/v1/namespaces/a/configmaps", b"", {b"content-type": kind}, read)
        request.user = UserInfo("ann")
        auditing.begin(self.auditor, request, authorizing.attributes(request, request.info, request.user))
        await request.body(1 << 30)
        return request


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes of each JSON text that was decoded into objects at once."""
    found, original = list[int](), msgspec.json.decode

    def decode(value: Any, **options: Any) -> Any:
        if "type" not in options:
            found.append(len(value))
        return original(value, **options)

    monkeypatch.setattr(msgspec.json, "decode", decode)
    yield found


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The threads in which lines were made."""
    found, original = list[str](), AuditContext.line

    def line(self: AuditContext, name: str, code: int, answer: Any) -> bytes:
        found.append(threading.current_thread().name.partition("_")[0])
        return original(self, name, code, answer)

    monkeypatch.setattr(AuditContext, "line", line)
    yield found


@pytest.mark.parametrize(("end", "packed", "pretty"), [(b"", 0, 0), (b"\n", 0, 0), (b"\n", 1, 0), (b"\n", 1, 1)])
@pytest.mark.parametrize("bare", [False, True])
async def test_a_large_list_of_this_server_is_not_decoded_and_its_line_is_made_beside_the_loop(
    decoded: list[int], threads: list[str], end: bytes, packed: int, pretty: int, bare: bool
) -> None:
    audited = Audited(omitManagedFields=bare)
    request, body = await audited.request(), msgspec.json.encode(MANY) + end
    auditing.keep(request, body)
    sent = msgspec.json.format(body, indent=2) if pretty else body
    answer = Response(200, gzip.compress(sent) if packed else sent, JSON, list(GZIP) if packed else [])
    auditing.end(request, answer)
    assert not audited.sink.lines and auditing.waits(request)
    await auditing.settled(request)
    assert decoded == [] and threads == ["large-objects"]
    assert len(audited.sink.lines) == 1 and audited.sink.lines[0].count(b"\n") == 1
    assert audited.sink.last["responseObject"] == (BARE if bare else MANY)


@pytest.mark.parametrize("bare", [False, True])
async def test_a_large_list_that_was_written_with_line_breaks_is_not_decoded(
    decoded: list[int], threads: list[str], monkeypatch: pytest.MonkeyPatch, bare: bool
) -> None:
    monkeypatch.setattr(audit_bodies, "TOGETHER", 1000)
    strange = {"a": " \n\\n  x\r\n\u2028", "b": [], "c": {}, "d": "x" * 3000, "": [1.5, None, True, [[]], [{}, {}]]}
    many = {**MANY, "items": [{**ITEM, "strange": strange}] * 3}
    audited = Audited(omitManagedFields=bare)
    request, body = await audited.request(), msgspec.json.format(msgspec.json.encode(many), indent=2)
    auditing.keep(request, body)
    auditing.end(request, Response(200, body))
    await auditing.settled(request)
    assert decoded == [] and threads == ["large-objects"]
    assert len(audited.sink.lines) == 1 and audited.sink.lines[0].count(b"\n") == 1
    item = {**(ITEM | {"metadata": {"name": "a"}} if bare else ITEM), "strange": strange}
    assert audited.sink.last["responseObject"] == {**MANY, "items": [item] * 3}


async def test_objects_of_any_shape_are_shown_without_their_managed_fields() -> None:
    audited = Audited(omitManagedFields=True)
    for obj in (ITEM, {"items": {"a": ITEM}}, {"items": [1, ITEM]}, {"metadata": None, "a": ITEM}, {"metadata": ITEM}):
        seen = []
        for keep in (True, False):
            request, body = await audited.request(), msgspec.json.encode(obj)
            if keep:
                auditing.keep(request, body)
            auditing.end(request, Response(200, body))
            await auditing.settled(request)
            seen.append(audited.sink.last["responseObject"])
        assert seen[0] == seen[1]


async def test_other_forms_of_a_list_are_encoded_an_item_at_a_time(
    threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, original = list[int](), msgspec.json.Encoder().encode

    def encode(value: Any) -> bytes:
        sizes.append(len(data := original(value)))
        return data

    monkeypatch.setattr("control.auth.audit._encode", encode)
    audited = Audited()
    request = await audited.request()
    text = msgspec.json.encode(MANY)
    auditing.keep(request, text)
    auditing.end(request, Response(200, text, b"application/yaml"))  # JSON is YAML
    await auditing.settled(request)
    assert audited.sink.last["responseObject"] == MANY and threads == ["large-objects"]
    assert len(sizes) == 41 and max(sizes) == ITEM_BYTES


async def test_a_large_body_that_was_sent_is_read_beside_the_loop(threads: list[str]) -> None:
    audited = Audited("Request")
    request = await audited.request(msgspec.json.format(msgspec.json.encode(ITEM), indent=2), "POST")
    auditing.end(request, Response(201, b"{}"))
    assert not audited.sink.lines
    await auditing.settled(request)
    assert audited.sink.last["requestObject"] == ITEM and threads == ["large-objects"]
    small = await audited.request(b'{"kind": "a"}', "POST")
    auditing.end(small, Response(201, b"{}"))
    assert audited.sink.last["requestObject"] == {"kind": "a"} and threads[1:] == ["MainThread"]


async def test_a_stream_begins_after_the_line_that_shows_what_was_sent() -> None:
    audited = Audited("Request")
    request = await audited.request(msgspec.json.encode(ITEM), "POST")

    async def chunks() -> Any:
        yield b"x"

    answer = Stream(chunks())
    auditing.end(request, answer)
    await auditing.settled(request)
    assert [chunk async for chunk in answer.chunks] == [b"x"]
    events = [json.loads(line) for line in audited.sink.lines]
    assert [event["stage"] for event in events] == ["ResponseStarted", "ResponseComplete"]
    assert [event["requestObject"] for event in events] == [ITEM, ITEM]


async def test_the_end_of_a_stream_that_was_never_sent_is_noted_once_and_the_stream_closed() -> None:
    audited, closed = Audited("Metadata"), []
    request = await audited.request()

    async def chunks(release: Release) -> Any:
        yield b"x"

    async def close() -> None:
        closed.append(True)

    answer = Stream(Chunks(chunks, close))
    auditing.end(request, answer)
    await answer.close()
    await answer.close()
    assert [json.loads(line)["stage"] for line in audited.sink.lines] == ["ResponseStarted", "ResponseComplete"]
    assert closed == [True]


async def test_a_request_that_is_cancelled_is_noted_nevertheless_before_the_log_closes() -> None:
    audited, begun = Audited(), threading.Event()
    busy = asyncio.create_task(offload.apart("bob", begun.wait))
    request, body = await audited.request(), msgspec.json.encode(MANY)
    auditing.keep(request, body)
    auditing.end(request, Response(200, body))
    waiting = asyncio.create_task(auditing.settled(request))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not audited.sink.lines
    begun.set()
    await audited.auditor.close()
    assert len(audited.sink.lines) == 1 and not audited.auditor.writing
    await busy


async def test_an_error_does_not_show_what_was_to_be_answered() -> None:
    audited = Audited()
    request = await audited.request()
    auditing.keep(request, msgspec.json.encode(MANY))
    status = {"kind": "Status", "status": "Failure", "message": "late", "code": 504}
    auditing.end(request, Response(504, msgspec.json.encode(status)))
    assert audited.sink.last["responseObject"] == status and audited.sink.last["responseStatus"]["message"] == "late"


async def test_a_compressed_answer_of_another_server_is_unpacked_up_to_a_limit(
    threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_bodies, "MOST_UNPACKED", 1000)
    audited = Audited()
    for size, shown in ((900, True), (1100, False)):
        request = await audited.request()
        body = msgspec.json.encode({"a": "x" * size})
        auditing.end(request, Response(200, gzip.compress(body), JSON, list(GZIP)))
        await auditing.settled(request)
        assert ("responseObject" in audited.sink.last) is shown
    for broken in (b"", b"no gzip", gzip.compress(b"{}")[:-4]):
        assert audit_bodies.answered(Response(200, broken, JSON, list(GZIP))) is None
    assert threads == ["large-objects"] * 2
