"""An OpenTelemetry collector for tests: a gRPC server on loopback with OTLP's TraceService, which keeps received spans."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from tests.support.node import eventually


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it was sent, with the attributes of its service."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    kind: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]
    """Trace ID and span ID."""
    failure: str
    """Description of the status, "" unless it is an error."""


class Collector(TraceServiceServicer):
    """A running collector; `delay` is in seconds, and infinity hangs."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.delay = 0.0
        self.requests = 0
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def Export(self, request: Any, context: Any) -> Any:
        self.requests += 1
        await asyncio.sleep(self.delay)
        for group in request.resource_spans:
            resource = _plain(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_received(span, resource) for span in scope.spans]
        return ExportTraceServiceResponse()

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace_id == trace_id]

    async def wait(self, check: Callable[[], object], message: str) -> None:
        """Wait until the received spans meet a condition."""

        async def met() -> object:
            return check()

        try:
            await eventually(met, message)
        except AssertionError as error:
            received = [(span.name, span.trace_id[:8]) for span in self.spans]
            raise AssertionError(f"{message}; received: {received}") from error


def _received(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        kind=span.kind,
        attributes=_plain(span.attributes),
        resource=resource,
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        failure=(span.status.message or "error") if span.status.code == 2 else "",
    )


def _plain(attributes: Iterable[Any]) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    server, found = grpc.aio.server(), Collector()
    add_TraceServiceServicer_to_server(found, server)
    found.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield found
    finally:
        await server.stop(None)
