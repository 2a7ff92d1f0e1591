"""Begins traces and decides which of them are recorded.

A decision depends on the trace ID's 56 rightmost bits alone (W3C Trace Context level 2: they are random; the rule is that of
OpenTelemetry's consistent probability sampling), so that all processes with one rate decide the same without a message. The
64 bits that OpenTelemetry's TraceIdRatioBased compares would not do: a UUID's variant is in their first byte, so a rate
below 50 % would select no pod at all.

The trace of a pod's start has the pod's UID as its ID. The API server records its root, "create pod", whose span ID is the
first half of the UID, so that scheduler and kubelet know their parent from the pod alone, and nothing is written into objects.
The trace is another one than that of the request, because a ReplicaSet's request creates many pods and the client's sampling
decision reaches no other process; the two are linked in both directions.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from typing import Protocol

from kube.tracing import traceparent
from kube.tracing.configuration import MILLION
from kube.tracing.spans import Attributes, Kind, Recorded, Span
from kube.tracing.traceparent import SpanContext

_RANDOM_BITS = (1 << 56) - 1
_UID = re.compile(r"[0-9a-f]{32}")


MOST_ATTEMPTS = 100
"""Attempts to schedule or to sync a pod that belong to its start: one that never starts has an endless number."""


class Recorder(Protocol):
    """Receiver of recorded spans, as kube/tracing/otlp.py."""

    def start(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: Attributes | None,
        kind: Kind,
        links: Sequence[SpanContext],
        start: int,
    ) -> Recorded: ...

    async def close(self) -> None: ...


class Tracer:
    """Makes spans of one service; `rate` is the number of traces out of a million that are recorded."""

    def __init__(self, recorder: Recorder, rate: int) -> None:
        self._recorder = recorder
        self._threshold = (MILLION - rate) * (1 << 56) // MILLION
        """Smallest value of the random bits that is recorded."""

    def samples(self, trace_id: int) -> bool:
        """Return whether a trace that begins here is recorded."""
        return trace_id & _RANDOM_BITS >= self._threshold

    def begin(
        self,
        name: str,
        attributes: Attributes | None = None,
        kind: Kind = Kind.INTERNAL,
        links: Sequence[SpanContext] = (),
        start: int = 0,
    ) -> Span:
        """Begin a trace with a random ID. `start` is in nanoseconds since the epoch, 0 for now."""
        trace_id = random.getrandbits(128) or 1
        return self._span(name, trace_id, _new_id(), None, self.samples(trace_id), attributes, kind, links, start)

    def start(
        self,
        name: str,
        parent: SpanContext,
        attributes: Attributes | None = None,
        kind: Kind = Kind.INTERNAL,
        links: Sequence[SpanContext] = (),
        start: int = 0,
    ) -> Span:
        """Continue the trace of a parent, which has decided whether it is recorded."""
        return self._span(name, parent.trace_id, _new_id(), parent, parent.sampled, attributes, kind, links, start)

    def accept(self, name: str, header: str, attributes: Attributes, start: int, *, trusted: bool) -> Span:
        """Begin the span of a request with a traceparent header, "" for none, that was received at `start`.

        Only a trusted client's trace is continued; another's is a link.
        """
        parent = traceparent.parse(header) if header else None
        if parent is not None and trusted:
            return self.start(name, parent, attributes, Kind.SERVER, (), start)
        return self.begin(name, attributes, Kind.SERVER, [parent] if parent is not None else (), start)

    def pod_root(self, uid: str) -> SpanContext | None:
        """Return the root span of a pod's trace; None for a UID that is no 128-bit number."""
        digits = uid.replace("-", "")
        if not _UID.fullmatch(digits) or not (span_id := int(digits[:16], 16)):
            return None
        trace_id = int(digits, 16)
        return SpanContext(trace_id, span_id, self.samples(trace_id))

    def pod_step(
        self, name: str, uid: str, attributes: Attributes, kind: Kind = Kind.INTERNAL, *, starting: bool
    ) -> Span:
        """Begin work on a pod: while it is `starting` in the pod's trace, later in a trace of its own, linked to that.

        A pod may run for years, and collectors expect that a trace ends.
        """
        root = self.pod_root(uid)
        if starting and root is not None:
            return self.start(name, root, attributes, kind)
        return self.begin(name, attributes, kind, [root] if root is not None and root.sampled else ())

    def create_pod(self, root: SpanContext, attributes: Attributes, request: SpanContext | None, start: int) -> None:
        """Record the root span of a pod's trace, from `start` until now, linked to the request that created the pod."""
        if root.sampled:
            links = [request] if request is not None and request.sampled else []
            self._recorder.start("create pod", root, None, attributes, Kind.INTERNAL, links, start).end()

    async def close(self) -> None:
        """Send what has been recorded, for as long as a stopping process may wait."""
        await self._recorder.close()

    def _span(
        self,
        name: str,
        trace_id: int,
        span_id: int,
        parent: SpanContext | None,
        sampled: bool,  # noqa: FBT001
        attributes: Attributes | None,
        kind: Kind,
        links: Sequence[SpanContext],
        start: int,
    ) -> Span:
        context, start = SpanContext(trace_id, span_id, sampled), start or time.time_ns()
        recorded = self._recorder.start(name, context, parent, attributes, kind, links, start) if sampled else None
        return Span(self, context, start, recorded)


def _new_id() -> int:
    return random.getrandbits(64) or 1
