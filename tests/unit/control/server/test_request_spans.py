"""Spans of requests: names of routes as upstream's, and the headers that other servers receive."""

from __future__ import annotations

import asyncio

import pytest

from control.auth.user import UserInfo
from control.http.exchange import Request, Response, forwarded_headers
from control.server import request_spans
from kube.tracing import spans
from tests.support.spans import tracer

CLIENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MASTER, ALICE = UserInfo("admin", groups=("system:masters",)), UserInfo("alice")


def request(method: str, path: str, **headers: bytes) -> Request:
    async def read(limit: int) -> bytes:
        return b""

    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(method, path, b"", named, read)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/healthz", "GET"),
        ("GET", "/apis", "GET"),
        ("GET", "/api/v1/nodes", "GET /api/v1/nodes"),
        ("DELETE", "/api/v1/nodes/n1", "DELETE /api/v1/nodes/{:name}"),
        ("GET", "/api/v1/namespaces/a/pods/b/log", "GET /api/v1/namespaces/{:namespace}/pods/{:name}/log"),
        (
            "PUT",
            "/apis/apps/v1/namespaces/a/deployments/b",
            "PUT /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}",
        ),
        ("GET", "/api/v1/namespaces/a", "GET /api/v1/namespaces/{:namespace}/namespaces/{:name}"),
    ],
)
def test_names_are_upstreams(method: str, path: str, name: str) -> None:
    chosen, kept = tracer()
    one = request(method, path)
    request_spans.begin(chosen, one, ALICE, 0.0, in_process=False)
    request_spans.end(one, Response(200))
    assert [span.name for span in kept] == [name]
    assert kept[0].attributes["http.response.status_code"] == 200 and not kept[0].failure
    assert spans.current() is None


def test_another_server_receives_the_requests_own_span() -> None:
    one = request("GET", "/apis/a/v1/b", traceparent=CLIENT, tracestate=b"a=b", accept=b"*/*")
    assert dict(forwarded_headers(one)) == {b"traceparent": CLIENT, b"tracestate": b"a=b", b"accept": b"*/*"}
    chosen, _ = tracer(0)
    request_spans.begin(chosen, one, MASTER, 0.0, in_process=False)
    request_spans.end(one, Response(200))
    assert one.span is not None and one.span.context.trace_id == int(CLIENT[3:35], 16)
    assert forwarded_headers(one) == [(b"accept", b"*/*"), (b"traceparent", one.span.traceparent.encode())]


def test_clients_in_this_process_continue_the_trace_of_their_task() -> None:
    chosen, kept = tracer()
    with spans.active(chosen.begin("schedule pod")) as above:
        one = request("POST", "/api/v1/namespaces/a/pods/b/binding")
        request_spans.begin(chosen, one, ALICE, 0.0, in_process=True)
        request_spans.end(one, Response(503))
        assert spans.current() is above
    assert kept[1].parent == above.context and kept[1].failure == "503"


def test_a_cancelled_request_leaves_no_span_behind() -> None:
    chosen, kept = tracer()
    one = request("GET", "/api/v1/pods")
    request_spans.begin(chosen, one, ALICE, 0.0, in_process=True)
    request_spans.cancel(one, asyncio.CancelledError())
    request_spans.cancel(one, asyncio.CancelledError())
    assert spans.current() is None and kept[0].ended and kept[0].failure == "CancelledError"
