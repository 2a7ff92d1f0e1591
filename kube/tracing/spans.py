"""Spans, and the span of the running task, whose children record the steps of its work.

A step records a span only inside of another one, as upstream's component-base does: a call site needs no tracer, and costs a
look at a context variable without one. A span that has ended has no children: a task that outlives the request that created
it records nothing. Attributes are short and contain no bodies, no header values and no texts of errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from enum import IntEnum
from types import TracebackType
from typing import Protocol, TypeVar

from kube.tracing.traceparent import SpanContext

T = TypeVar("T")
Attribute = str | int | bool
Attributes = Mapping[str, Attribute]
LONGEST_ATTRIBUTE = 256
"""Characters of an attribute's value that are recorded."""


class Kind(IntEnum):
    """Kinds of spans, numbered as in the OpenTelemetry API."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2


def of_pod(namespace: str, name: str, uid: str) -> dict[str, Attribute]:
    """Return the attributes that name a pod, as in upstream's syncPod."""
    return {
        "k8s.pod.uid": uid,
        "k8s.pod": f"{namespace}/{name}",
        "k8s.pod.name": name,
        "k8s.namespace.name": namespace,
    }


class SpanFactory(Protocol):
    """The part of a tracer that spans use (kube/tracing/tracer.py)."""

    def start(
        self, name: str, parent: SpanContext, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL
    ) -> Span: ...

    def pod_root(self, uid: str) -> SpanContext | None: ...

    def create_pod(
        self, root: SpanContext, attributes: Attributes, request: SpanContext | None, start: int
    ) -> None: ...


class Recorded(Protocol):
    """A recorder's side of a span."""

    def set_attribute(self, key: str, value: Attribute) -> None: ...

    def fail(self, reason: str) -> None: ...

    def link(self, context: SpanContext) -> None: ...

    def end(self) -> None: ...


class Span:
    """One step of a trace; without `recorded` it is not sampled, and only passes the trace on."""

    __slots__ = ("_entry", "_recorded", "context", "ended", "start", "tracer")

    def __init__(self, tracer: SpanFactory, context: SpanContext, start: int, recorded: Recorded | None) -> None:
        self.tracer, self.context, self._recorded = tracer, context, recorded
        self.start = start
        """Nanoseconds since the epoch."""
        self.ended = False
        self._entry: Span | None = None

    @property
    def entry(self) -> Span:
        """The span of the request that this step is a part of."""
        return self._entry or self

    def child(self, name: str, attributes: Attributes | None, kind: Kind) -> Span:
        """Begin a step of this one."""
        span = self.tracer.start(name, self.context, attributes, kind)
        span._entry = self.entry
        return span

    @property
    def recording(self) -> bool:
        """True until the end of a span that is sampled."""
        return self._recorded is not None

    @property
    def traceparent(self) -> str:
        return self.context.traceparent

    def set_attribute(self, key: str, value: Attribute) -> None:
        if self._recorded is not None:
            self._recorded.set_attribute(key, value)

    def fail(self, reason: str) -> None:
        """Mark the step as failed; `reason` is a code or the name of a class, never the text of an error."""
        if self._recorded is not None:
            self._recorded.fail(reason)

    def link(self, context: SpanContext) -> None:
        """Link to a span of another trace that is recorded."""
        if self._recorded is not None and context.sampled:
            self._recorded.link(context)

    def end(self) -> None:
        self.ended = True
        recorded, self._recorded = self._recorded, None
        if recorded is not None:
            recorded.end()


_current: ContextVar[Span | None] = ContextVar("span", default=None)


def current() -> Span | None:
    """Return the span of the running task, None without one that has not ended."""
    span = _current.get()
    return None if span is None or span.ended else span


def trace_id() -> str:
    """Return the ID of the running task's trace, "" without one."""
    span = current()
    return f"{span.context.trace_id:032x}" if span is not None else ""


class active:
    """Make a span the current one, and end it with the block; an exception marks it as failed."""

    __slots__ = ("_before", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Span:
        self._before = _current.get()
        _current.set(self._span)
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.set(self._before)
        if error is not None:
            self._span.fail(reason_of(error))
        self._span.end()


class child:
    """Record a block as a child of the current span, and make it the current one; None if nothing is recorded."""

    __slots__ = ("_active", "_attributes", "_kind", "_name")

    def __init__(
        self,
        name: str,
        attributes: Attributes | None = None,
        kind: Kind = Kind.INTERNAL,
    ) -> None:
        self._name, self._attributes, self._kind = name, attributes, kind
        self._active: active | None = None

    def __enter__(self) -> Span | None:
        parent = _current.get()
        if parent is None or not parent.recording:
            return None  # as upstream: a step is recorded inside of another one only
        self._active = active(parent.child(self._name, self._attributes, self._kind))
        return self._active.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active is not None:
            self._active.__exit__(kind, error, trace)


async def within(name: str, work: Awaitable[T], attributes: Attributes | None = None) -> T:
    """Await work as a child of the current span."""
    with child(name, attributes):
        return await work


def reason_of(error: BaseException) -> str:
    """Return an error's code if it has one (a Status's reason, gRPC's code), otherwise the name of its class."""
    for name in ("reason", "code"):
        found = getattr(error, name, None)
        if isinstance(found, str) and found:
            return found[:LONGEST_ATTRIBUTE]
    return type(error).__name__
