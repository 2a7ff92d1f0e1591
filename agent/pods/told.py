"""What is told of one pod: its status to the API, its events, the server's view; made on demand from what is known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import msgspec

from agent.contracts import PodView
from agent.lifecycle import End, find_container
from agent.pods.allocation import sizes
from agent.pods.setup import field_path
from agent.pods.state import PodState
from agent.pods.toolbox import Toolbox
from agent.records import PodRuntime
from agent.status.container import Known
from agent.status.phase import ENDED_PHASES
from agent.status.pod import NodeFacts, pod_status, rejected_status
from agent.status.writer import OURS
from kube.api import core_v1

LATE_SECONDS = 0.5
"""How long a step may take before the status tells of what was reached before it."""


class ToldPod(PodState):
    """A pod that the API, events and the server tell of."""

    def __init__(
        self,
        pod: core_v1.Pod,
        tools: Toolbox,
        runtime: PodRuntime | None = None,
        *,
        static: bool = False,
        rejected: End | None = None,
    ) -> None:
        super().__init__(pod, tools, runtime, static=static, rejected=rejected)
        self._quiet = False
        self._late: asyncio.Task[None] | None = None

    def basis(self) -> core_v1.Pod:
        """Return the pod with the status that the API was last told, and others' conditions as they are now."""
        shown = self.api_pod
        told = self.tools.writer.told(shown.metadata.uid or "") if shown is not None else None
        told = told or self.last_status
        if told is None:
            return self.pod
        conditions = [c for c in told.conditions if c.type in OURS]
        conditions += [c for c in self.pod.status.conditions if c.type not in OURS]
        return msgspec.structs.replace(self.pod, status=msgspec.structs.replace(told, conditions=conditions))

    def status(self) -> core_v1.PodStatus:
        """Return the pod's status as it is now."""
        basis = self.basis()
        if not self.runtime.sandboxes and not self.runtime.containers:
            if basis.status.phase in ENDED_PHASES:
                return basis.status  # what it came to was told, and nothing is left to tell more
            if self.rejected is not None:
                return rejected_status(basis, self.rejected, self.tools.now())
        known = Known(
            outcomes=self.outcomes(),
            waiting=self.waiting,
            ended=self.end is not None or self.finished,
            applied=self.applied or {},
            held=self.held,
            allocated=sizes(self.allocated) if self.held is not None else {},
            resize_error=self.resize_error,
        )
        status = pod_status(
            basis,
            self.runtime,
            known,
            NodeFacts(self.tools.node.host_ips),
            self.tools.now(),
            end=self.end,
            finished=self.finished,
        )
        self.tools.managers.tell_health(self.pod, status)
        return status

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Tell the API nothing meanwhile."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def publish(self) -> None:
        """Tell the API the pod's status where it changed."""
        self.cancel_late()
        if self._quiet:
            return
        status = self.last_status = self.status()
        self.tools.starts.look(self.pod, status, self.tools.now())
        shown = self.api_pod
        if self.in_api and shown is not None:
            self.tools.writer.set(shown, status)

    def publish_late(self) -> None:
        """Tell the status only if the step that follows takes long: soon there will be more to tell."""
        if self._late is None:

            async def later() -> None:
                await self.tools.clock.sleep(LATE_SECONDS)
                self._late = None
                self.publish()

            self._late = asyncio.create_task(later(), name=f"late status of pod {self.uid}")

    def cancel_late(self) -> None:
        """Tell nothing late any more."""
        if self._late is not None and self._late is not asyncio.current_task():
            self._late.cancel()
        self._late = None

    def event(self, kind: str, reason: str, message: str, container: str = "") -> None:
        """Record an event about the pod, or about one of its containers."""
        found = find_container(self.pod, container) if container else None
        path = field_path(found[1], container) if found else ""
        self.tools.recorder.event(self.pod, kind, reason, message, field_path=path)

    def view(self) -> PodView:
        """Return the pod as the server shows it."""
        told = self.last_status
        pod = msgspec.structs.replace(self.pod, status=told) if told is not None else self.pod
        return PodView(pod, self.runtime.containers, self.runtime.sandbox, self.ending, self.static)
