"""Journals of agents in the API server's answer: limits of a node's reports, and agents without an answer."""

from __future__ import annotations

import asyncio
import gc
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from control.server import node_journal
from control.server.node_journal import NodeJournals
from kube import serialize
from kube.errors import StatusError
from kube.journal import LONGEST_TEXT, PAGE_BYTES, Entry, Journal, Page
from kube.nesting import DEEPEST
from kube.resources import by_path
from tests.support import nesting
from tests.support.clock import FakeClock

PODS = by_path("", "v1", "pods")
OWN = Entry(2.0, "jane", "created")
POD = {
    "metadata": {"name": "web", "namespace": "default", "uid": "1", "creationTimestamp": "1970-01-01T00:00:00Z"},
    "spec": {"nodeName": "node-1"},
}


def entry(text: str, **changed: Any) -> dict[str, Any]:
    return {"time": 1.0, "actor": "kubelet", "text": text, "uid": "1"} | changed


def with_details(details: bytes) -> bytes:
    """Return an answer with an entry that has these details, as JSON."""
    return b'{"completeSince":0,"entries":[{"time":1,"actor":"kubelet","text":"a","uid":"1","details":%b}]}' % details


class Registry:
    """A node that has an address."""

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        addresses = [{"type": "InternalIP", "address": "192.0.2.1"}]
        return SimpleNamespace(obj={"metadata": {"name": name}, "status": {"addresses": addresses}})


class Node:
    """Answers with a status and a body; none: it never does."""

    def __init__(self, status: int, body: bytes | None) -> None:
        self.status, self.body = status, body
        self.sent = b""

    async def dial(self, endpoint: Any) -> Any:
        assert endpoint.node == "node-1"
        reader = asyncio.StreamReader()
        if self.body is not None:
            reader.feed_data(
                b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (self.status, len(self.body)) + self.body
            )
            reader.feed_eof()
        return reader, self

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class Caller:
    span = None
    user = SimpleNamespace(name="jane")

    async def until_left(self) -> None:
        await asyncio.Event().wait()


async def merged(node: Any) -> Page:
    journals = NodeJournals(Registry(), node)  # type: ignore[arg-type]
    assert PODS is not None
    return await journals.merged(Page([OWN], 0.5), Caller(), PODS, POD)  # type: ignore[arg-type]


async def test_a_nodes_entries_come_in_the_order_of_time() -> None:
    node = Node(200, json.dumps({"entries": [entry("a"), entry("b", time=3.0)], "completeSince": 0.75}).encode())
    page = await merged(node)
    assert [each.text for each in page.entries] == ["a", "created", "b"]
    assert page.complete_since == 0.75 and page.not_known == []
    assert node.sent.startswith(b"GET /wherry/v1/journal?namespace=default&name=web HTTP/1.1")


@pytest.mark.parametrize("forged", [{"actor": "jane"}, {"time": 1e300}, {"time": -1.0}, {"uid": "2"}])
async def test_a_node_reports_only_as_kubelet_and_at_a_time_that_can_be_shown(forged: dict[str, Any]) -> None:
    body = json.dumps({"entries": [entry("forged", **forged)], "completeSince": 1e300}).encode()
    page = await merged(Node(200, body))
    assert page.entries == [OWN] and page.complete_since <= node_journal.MOST_SECONDS


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, b"404 page not found", "keeps no journal"),
        (200, b"{", "keeps no journal"),
        (200, b'{"entries":[{"text":"\xff"}]}', "keeps no journal"),
        (200, with_details(b"[" * 50_000), "has no usable answer: exceeded max depth"),
        (200, with_details(nesting.json_text(nesting.nested(DEEPEST))), "has no usable answer: exceeded max depth"),
        (200, with_details(b'{"a":[' + b"[]," * 70_000 + b"[]]}"), "has no usable answer: more than 65536 values"),
        (200, with_details(b'{"a":"' + b"x" * (2 << 20) + b'"}'), "has no usable answer: more than 2097152 bytes"),
        (403, b"no", "does not respond: status 403"),
        (200, None, "does not respond within 0.05 s"),
    ],
)
async def test_an_agent_without_a_readable_answer_is_named(
    status: int, body: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_journal, "SECONDS", 0.05 if body is None else 30.0)
    page = await merged(Node(status, body))
    assert page.entries == [OWN]
    assert page.not_known == [f"decisions of node node-1: its agent {why}"]


@pytest.mark.parametrize("text", ['"' * LONGEST_TEXT, "\x07" * LONGEST_TEXT, "{[," * 600, "a"])
async def test_a_full_page_of_an_agent_is_within_the_limits(text: str) -> None:
    """Whatever the texts and details of its entries are, as far as an agent has them."""
    journal = Journal(FakeClock(), limit=64 << 20)
    recorded = 2 * PAGE_BYTES // (len(text) + 300)
    for _ in range(recorded):
        journal.record("Pod.", "default", "web", "kubelet", text, uid="1", details={"container": "c" * 64})
    answered = journal.page(("Pod.",), "default", "web")
    page = await merged(Node(200, serialize.encode(answered)))
    assert len(answered.entries) < recorded
    assert page.not_known == [] and len(page.entries) == 1 + len(answered.entries)


async def test_an_answer_of_many_values_is_decoded_without_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection traverses all new objects, and holds the interpreter's lock meanwhile."""
    collects, decode = list[bool](), msgspec.json.decode

    def decoded(*args: Any, **options: Any) -> Any:
        collects.append(gc.isenabled())
        return decode(*args, **options)

    monkeypatch.setattr(msgspec.json, "decode", decoded)
    page = await merged(Node(200, with_details(b'{"a":[' + b"[]," * 30_000 + b"[]]}")))
    assert len(page.entries) == 2 and collects == [False] and gc.isenabled()


async def test_of_a_node_with_many_entries_the_newest_are_shown_and_its_other_texts_are_not() -> None:
    many = [entry(str(number), time=float(number)) for number in range(node_journal.MOST_ENTRIES + 10)]
    body = json.dumps({"entries": many, "completeSince": 0.0, "notKnown": ["forged"]}).encode()
    page = await merged(Node(200, body))
    assert len(page.entries) == node_journal.MOST_ENTRIES + 1 and page.entries[-1].text == many[-1]["text"]
    assert page.complete_since == 10.0 and page.not_known == []


async def test_a_node_that_cannot_be_dialled_is_named() -> None:
    class Down(Node):
        async def dial(self, endpoint: Any) -> Any:
            raise StatusError(500, "", "error dialing backend: no route to host")

    page = await merged(Down(200, b""))
    assert page.not_known == [
        "decisions of node node-1: its agent does not respond: error dialing backend: no route to host"
    ]
