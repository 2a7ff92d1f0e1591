"""Spans of a pod's syncs and of its termination, with upstream's names and attributes (pkg/kubelet: syncPod).

Syncs until all containers have been started once belong to the trace of the pod's start; its root is recorded here for a
static pod, which no request has created. Later ones have a trace each, as upstream's.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine

from agent.pods.state import PodState
from kube.tracing import spans
from kube.tracing.spans import Attribute
from kube.tracing.tracer import MOST_ATTEMPTS, Tracer

Work = Coroutine[None, None, None]


class SyncSpans:
    """Records the work of one pod's worker; without a tracer nothing."""

    def __init__(self, tracer: Tracer | None, state: PodState) -> None:
        self._tracer, self._state = tracer, state
        self._syncs = 0

    def sync(self, kind: str, work: Work) -> Work:
        """Return a sync as work that is recorded; `kind` is create, update or sync."""
        if self._tracer is None:
            return work
        self._syncs += 1
        attributes = self._attributes()
        if self._syncs == 1 and self._state.static and (root := self._tracer.pod_root(self._state.uid)) is not None:
            self._tracer.create_pod(root, attributes, None, time.time_ns())
        attributes["k8s.pod.update_type"] = kind
        starting = self._syncs <= MOST_ATTEMPTS and not self._started()
        return _recorded(self._tracer, "syncPod", self._state.uid, attributes, work, starting=starting)

    def termination(self, work: Work) -> Work:
        """Return the pod's termination as work that is recorded."""
        if self._tracer is None:
            return work
        name, attributes = "syncTerminatingPod", self._attributes()
        return _recorded(self._tracer, name, self._state.uid, attributes, work, starting=False)

    def _started(self) -> bool:
        runtime = self._state.runtime
        return all(runtime.latest(container.name) is not None for container in self._state.pod.spec.containers)

    def _attributes(self) -> dict[str, Attribute]:
        metadata = self._state.pod.metadata
        found = spans.of_pod(metadata.namespace or "", metadata.name or "", self._state.uid)
        return found | {"k8s.pod.resource_version": metadata.resource_version or ""}


async def _recorded(
    tracer: Tracer, name: str, uid: str, attributes: dict[str, Attribute], work: Work, *, starting: bool
) -> None:
    with spans.active(tracer.pod_step(name, uid, attributes, starting=starting)):
        await work
