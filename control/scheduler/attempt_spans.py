"""Spans of attempts to schedule a pod: in the trace of the pod's start, from the queue to the binding or the report.

Upstream's scheduler has no OpenTelemetry spans: these are what joins the pod's creation and the kubelet's work on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control.scheduler.decisions import Failed, Placed
from control.scheduler.queued_pod import QueuedPod
from kube.tracing import spans
from kube.tracing.tracer import MOST_ATTEMPTS, Tracer


def begin(tracer: Tracer, queued: QueuedPod) -> None:
    """Begin the span of an attempt."""
    metadata = queued.info.pod.metadata
    attributes = spans.of_pod(metadata.namespace or "", metadata.name or "", queued.info.uid) | {
        "k8s.pod.resource_version": metadata.resource_version or "",
        "attempt": queued.attempts,
    }
    starting = queued.attempts <= MOST_ATTEMPTS
    queued.span = tracer.pod_step("schedule pod", queued.info.uid, attributes, starting=starting)


@contextmanager
def carried_out(queued: QueuedPod, decision: Placed | Failed) -> Iterator[None]:
    """Make the attempt's span the current one while its decision is written, and end it then."""
    span, queued.span = queued.span, None
    if span is None:
        yield
        return
    with spans.active(span):
        if isinstance(decision, Placed):
            span.set_attribute("k8s.node.name", decision.node)
        else:
            span.fail(decision.reason)
        yield
