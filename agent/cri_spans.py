"""Spans of calls to the container runtime, which receives the trace as gRPC metadata (upstream: otelgrpc's client handler).

Only calls inside of another span are recorded: the relist, statistics and probes, which make up most calls, are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cri.channel import Metadata
from kube.tracing import spans, traceparent


@contextmanager
def call(path: str) -> Iterator[Metadata]:
    """Record the call of a path as /runtime.v1.RuntimeService/RunPodSandbox; the value is its metadata."""
    above = spans.current()
    if above is None:
        yield ()
        return
    name = path.removeprefix("/")
    service, _, method = name.partition("/")
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
    with spans.child(name, attributes, spans.Kind.CLIENT) as span:
        yield ((traceparent.HEADER, (span or above).traceparent),)
