"""API writes of the scheduler: bindings, the PodScheduled condition, evictions of victims, and their events."""

from __future__ import annotations

from typing import Any

from control.scheduler.podinfo import PodInfo
from control.scheduler.victims import Victims
from kube import disruption_target
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_time
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.object_names import name_of, namespace_of


class Writer:
    """The scheduler's hand in the API."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock
        self._expected: set[str] = set()
        """UIDs of pods whose expected node was written."""

    async def expect(self, info: PodInfo, node: str) -> None:
        """Return where a pod will go once what it waits for is there (KEP 5278); binding it takes that away."""
        await self._patch_status(info.pod, {"nominatedNodeName": node})
        self._expected.add(info.uid)

    def forget(self, info: PodInfo) -> None:
        """The pod is gone: nothing more is written about it."""
        self._expected.discard(info.uid)

    def bound(self, info: PodInfo, node: str) -> None:
        """Tell that a pod was bound."""
        self._expected.discard(info.uid)
        message = f"Successfully assigned {info.key} to {node}"
        self._recorder.event(info.pod, "Normal", "Scheduled", message, action="Binding")

    async def failed(self, info: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None:
        """Return why a pod was not placed, as an event and as its PodScheduled condition.

        `nominated` names the node where room is being made; "" clears it, None leaves it.
        """
        pod = info.pod
        self._recorder.event(pod, "Warning", "FailedScheduling", message, action="Scheduling")
        old = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
        status: dict[str, Any] = {}
        if old is None or (old.status, old.reason, old.message) != ("False", reason, message):
            now = format_time(self._clock.now())
            since = old.last_transition_time if old is not None and old.status == "False" else now
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastProbeTime": None,
                "lastTransitionTime": since,
            }
            if pod.metadata.generation:
                condition["observedGeneration"] = pod.metadata.generation  # type: ignore[assignment]
            status["conditions"] = [condition]
        if info.uid in self._expected:
            status["nominatedNodeName"] = nominated or None
        elif nominated is not None and nominated != (pod.status.nominated_node_name or ""):
            status["nominatedNodeName"] = nominated or None
        try:
            if status:
                await self._patch_status(pod, status)
        except StatusError as error:
            if error.not_found or error.replaced:
                self.forget(info)
            raise
        self._expected.discard(info.uid)

    async def read(self, info: PodInfo) -> core_v1.Pod | None:
        """Return a pod as the server has it now; None if it is gone. Raises StatusError."""
        try:
            return await self._client.get(core_v1.Pod, name_of(info.pod), namespace_of(info.pod))
        except StatusError as error:
            if error.not_found:
                return None
            raise

    async def denominate(self, info: PodInfo) -> None:
        """Take back a pod's nomination, as a more important one gets its room; gone already is no error."""
        try:
            await self._patch_status(info.pod, {"nominatedNodeName": None})
        except StatusError as error:
            if not error.not_found and not error.replaced:
                raise

    async def evict(self, victims: Victims, preemptor: PodInfo) -> None:
        """Delete the victims, each marked with the condition DisruptionTarget."""
        who = preemptor.pod.spec.scheduler_name or "default-scheduler"
        for victim in victims.pods:
            pod = victim.pod
            if pod.metadata.deletion_timestamp is not None:
                continue
            why, now = f"{who}: preempting to accommodate a higher priority pod", format_time(self._clock.now())
            condition = disruption_target.condition("PreemptionByScheduler", why, now, pod.metadata.generation)
            try:
                await self._patch_status(pod, {"conditions": [condition]})
                await self._client.delete(core_v1.Pod, name_of(pod), namespace_of(pod), uid=victim.uid)
            except StatusError as error:
                if not error.not_found and not error.replaced:
                    raise
                continue
            text = f"Preempted by pod {preemptor.uid} on node {victims.node}"
            self._recorder.event(pod, "Normal", "Preempted", text, action="Preempting", related=preemptor.pod)

    async def _patch_status(self, pod: core_v1.Pod, status: dict[str, Any]) -> None:
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._client.patch(
            core_v1.Pod, name_of(pod), namespace_of(pod), patch, type=STRATEGIC, subresource="status"
        )
