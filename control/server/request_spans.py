"""Spans of requests: one for each, named after its route, with a child for authorization, waiting and the handler.

As upstream (apiserver/pkg/endpoints/filters/traces.go), a request's span begins when the request is received, and is created
once its user is known: only system:masters and system:monitoring, and clients in this process, continue their own trace with
its sampling decision. For everybody else the API server is a public endpoint: a new trace begins, linked to the client's, so
that nobody can have all requests recorded. A watch's span ends when the watch has begun. The query of a request is not
recorded: it contains the words of commands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable

from control.auth.user import SYSTEM_MASTERS, UserInfo
from control.http.exchange import Answer, Handler, Request, Upgrade
from control.interfaces.requestinfo import RequestInfo
from kube.tracing import spans
from kube.tracing.spans import Attribute, Span, active
from kube.tracing.tracer import Tracer

MONITORING = "system:monitoring"
LONGEST_NAME = 200
"""Characters of the name of a span: paths may be longer."""
_HANDLERS = {
    "create": "Create",
    "update": "Update",
    "patch": "Patch",
    "delete": "Delete",
    "deletecollection": "DeleteCollection",
    "get": "Get",
    "list": "List",
    "watch": "Watch",
}
"""Upstream's names of the spans of handlers, by verb."""


def begin(tracer: Tracer, request: Request, user: UserInfo, elapsed: float, *, in_process: bool) -> None:
    """Begin the span of a request that was received `elapsed` seconds ago, and make it the current one."""
    start = time.time_ns() - int(elapsed * 1e9)
    name, attributes = _name(request.method, request.info), _attributes(request)
    span: Span | None = None
    if in_process:
        parent = spans.current()
        if parent is not None:
            span = tracer.start(name, parent.context, attributes, spans.Kind.SERVER, (), start)
    else:
        trusted = SYSTEM_MASTERS in user.groups or MONITORING in user.groups
        header = request.headers.get(b"traceparent", b"").decode("latin-1")
        span = tracer.accept(name, header, attributes, start, trusted=trusted)
    request.span = span or tracer.begin(name, attributes, spans.Kind.SERVER, (), start)
    request.active_span = active(request.span)
    request.active_span.__enter__()


def end(request: Request, answer: Answer) -> None:
    """End the span of a request with the status of its response."""
    assert request.span is not None and request.active_span is not None
    status = 101 if isinstance(answer, Upgrade) else answer.status
    request.span.set_attribute("http.response.status_code", status)
    if status >= 500:
        request.span.fail(str(status))
    request.active_span.__exit__(None, None, None)
    request.active_span = None


def cancel(request: Request, error: BaseException) -> None:
    """End the span of a request without a response, whose client has left."""
    if request.active_span is not None:
        request.active_span.__exit__(type(error), error, None)
        request.active_span = None


def handled(handler: Handler, info: RequestInfo) -> Handler:
    """Return a handler that is recorded as a child of the request's span."""
    name = _HANDLERS.get(info.verb, "")

    def traced(request: Request) -> Awaitable[Answer]:
        return spans.within(name, handler(request), {"audit-id": request.audit_id})

    return traced if name and info.is_resource else handler


def _name(method: str, info: RequestInfo) -> str:
    """Return the name of a request's span: method and route (upstream: getSpanNameFromRequestInfo)."""
    if not info.is_resource:
        return method
    parts = [method, " /apis/" + info.group if info.group else " /api", "/", info.version]
    if info.namespace:
        parts.append("/namespaces/{:namespace}")
    parts += ["/", info.resource]
    if info.name:
        parts.append("/{:name}")
    if info.subresource:
        parts += ["/", info.subresource]
    return "".join(parts)[:LONGEST_NAME]


def _attributes(request: Request) -> dict[str, Attribute]:
    return {
        "http.request.method": request.method,
        "url.path": request.path,
        "user_agent.original": request.header(b"user-agent"),
        "audit-id": request.audit_id,
    }
