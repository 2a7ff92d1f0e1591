"""Writes pods' statuses to the API: at once, only what changed, one request a pod at a time.

A pod's newest status waits while an older one is being written, so a burst of changes becomes few requests. The request is a
strategic merge patch of the fields that differ: conditions of others (readiness gates) are left alone. When the API server is
away the newest status is kept and written when it is back; nothing else in the agent waits for that.

Others may write too: the node controller marks pods not ready on a node whose lease expires. A status that is newer than the
agent's last write and differs from it in phase or conditions is overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agent.usage.kubelet_metrics import KubeletMetrics
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 0.2, 10.0
STATUSES, DELETIONS = 6, 4
"""Requests under way at a time: each may wait for a webhook that hangs, and leaves the client's other places to others."""
OURS = frozenset(
    "PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled DisruptionTarget PodResizePending "
    "PodResizeInProgress AllContainersRestarting".split()
)
"""The conditions that a kubelet writes; all others are other controllers'."""
SHARED, BY_KUBELET = "DisruptionTarget", "TerminationByKubelet"
"""The condition that others write too, and the reason that a kubelet gives: it adds its own and takes nobody's back."""
_KINDS = {
    "init_container_statuses": "init_container",
    "container_statuses": "container",
    "ephemeral_container_statuses": "ephemeral_container",
}
"""The fields of a status with containers, and upstream's names for the kinds in metrics."""
_BY_KEY = {"conditions": "type", "podIPs": "ip", "hostIPs": "ip", "resourceClaimStatuses": "name"}


@dataclass(slots=True)
class _Pod:
    namespace: str
    name: str
    reported: core_v1.PodStatus
    """The status in the API, as far as it is known."""
    revision: int = 0
    """The object's revision after our last write."""
    seen: core_v1.Pod | None = None
    """The newest version of the object that a watch has shown."""
    wanted: core_v1.PodStatus | None = None
    changed_at: float = 0.0
    """When the oldest unwritten change was set."""
    task: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class StatusWriter:
    """Sends statuses and, at a pod's end, the deletion that takes it out of the API."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM, metrics: KubeletMetrics | None = None) -> None:
        self._client, self._clock, self._metrics = client, clock, metrics or KubeletMetrics()
        self._pods: dict[str, _Pod] = {}
        self._statuses, self._deletions = asyncio.Semaphore(STATUSES), asyncio.Semaphore(DELETIONS)

    def set(self, pod: core_v1.Pod, status: core_v1.PodStatus) -> None:
        """Write a status; returns at once. `pod.status` is the API's when the pod was last read."""
        uid = pod.metadata.uid or ""
        entry = self._pods.get(uid)
        if entry is None:
            entry = _Pod(pod.metadata.namespace or "", pod.metadata.name or "", pod.status)
            entry.idle.set()
            self._pods[uid] = entry
        entry.seen = pod
        if entry.task is None:
            _take_in(entry)
        self._count_terminated(entry.wanted or entry.reported, status)
        if difference(entry.reported, status) is None and entry.wanted is None:
            return
        if entry.wanted is None:
            entry.changed_at = self._clock.monotonic()
        entry.wanted = status
        if entry.task is None:
            entry.idle.clear()
            entry.task = asyncio.create_task(self._send(uid, entry), name=f"status of {entry.namespace}/{entry.name}")

    def _count_terminated(self, before: core_v1.PodStatus, now: core_v1.PodStatus) -> None:
        """Count each container that the new status shows terminated and the one before did not."""
        for part, kind in _KINDS.items():
            ended = _terminated(before, part).keys()
            for name, state in _terminated(now, part).items():
                if name not in ended:
                    self._metrics.terminated_containers.inc(kind, str(state.exit_code), state.reason or "")

    async def _send(self, uid: str, entry: _Pod) -> None:
        delay = FIRST_RETRY
        try:
            while entry.wanted is not None:
                async with self._statuses:
                    answered = await self._send_newest(uid, entry)
                if answered:
                    delay = FIRST_RETRY
                else:
                    await self._clock.sleep(delay)
                    delay = min(delay * 2, LAST_RETRY)
        finally:
            entry.task = None
            entry.idle.set()

    async def _send_newest(self, uid: str, entry: _Pod) -> bool:
        """Send the status that is wanted now; False where it has to be sent again."""
        assert entry.wanted is not None, "only the sending task takes it"
        status, entry.wanted = entry.wanted, None
        changed_at = entry.changed_at
        patch = difference(entry.reported, status)
        if patch is None:
            return True
        body = {"metadata": {"uid": uid}, "status": patch}
        try:
            # Only the answer's status matters, and it is what we sent.
            answer = await self._client.patch(
                core_v1.Pod, entry.name, entry.namespace, body, type=STRATEGIC, subresource="status"
            )
        except StatusError as error:
            if error.not_found or error.conflict:
                # Deleted, or another pod of that name: there is no status to write.
                entry.reported = status
                return True
            log.warning("status of pod %s/%s: %s", entry.namespace, entry.name, error)
            if entry.wanted is None:
                entry.wanted = status
            return False
        entry.reported, entry.revision = status, _revision(answer)
        self._metrics.status_sync.observe(self._clock.monotonic() - changed_at)
        _take_in(entry)
        if entry.reported is not status and entry.wanted is None:
            entry.wanted = status
        return True

    async def flushed(self, uid: str) -> None:
        """Return once the pod's newest status was written."""
        entry = self._pods.get(uid)
        if entry is not None:
            await entry.idle.wait()

    async def delete(self, pod: core_v1.Pod) -> None:
        """Take a pod that has ended out of the API (grace 0, this UID only); tries until the server answers."""
        uid, delay = pod.metadata.uid or "", FIRST_RETRY
        await self.flushed(uid)
        while True:
            try:
                async with self._deletions:
                    await self._client.delete(
                        core_v1.Pod,
                        pod.metadata.name or "",
                        pod.metadata.namespace or "",
                        uid=uid,
                        grace_period_seconds=0,
                    )
                return
            except StatusError as error:
                if error.not_found or error.conflict:
                    return
                log.warning("deleting pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            await self._clock.sleep(delay)
            delay = min(delay * 2, LAST_RETRY)

    def reported(self, uid: str) -> core_v1.PodStatus | None:
        """Return the newest status that was set for a pod: it may be ahead of what watches show."""
        entry = self._pods.get(uid)
        return (entry.wanted or entry.reported) if entry else None

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone from the API."""
        entry = self._pods.pop(uid, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()

    async def close(self) -> None:
        """Stop sending."""
        for entry in self._pods.values():
            if entry.task is not None:
                entry.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await entry.task


def _take_in(entry: _Pod) -> None:
    """Compare with a version that somebody else has written after this agent."""
    if entry.seen is None or _revision(entry.seen) <= entry.revision:
        return
    reported, now = entry.reported, entry.seen.status
    if (reported.phase, _verdicts(reported)) != (now.phase, _verdicts(now)):
        entry.reported = msgspec.structs.replace(reported, phase=now.phase, conditions=now.conditions)


def _verdicts(status: core_v1.PodStatus) -> dict[str, str]:
    return {c.type: c.status for c in status.conditions if _is_ours(c.type, c.reason)}


def _is_ours(condition: str, reason: str | None) -> bool:
    return condition in OURS and (condition != SHARED or reason == BY_KUBELET)


def _revision(pod: core_v1.Pod) -> int:
    text = pod.metadata.resource_version or ""
    return int(text) if text.isdigit() else 0


def difference(old: core_v1.PodStatus, new: core_v1.PodStatus) -> dict[str, Any] | None:
    """Return the strategic merge patch from one status to another, None where they are the same."""
    if old == new:
        return None
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    patch: dict[str, Any] = {}
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        if name == "conditions":
            was, now = _our_conditions(was), _our_conditions(now)
        if was == now:
            continue
        found = _list_difference(was or [], now or [], _BY_KEY[name]) if name in _BY_KEY else now
        if found != [] or name not in _BY_KEY:  # a mark that is left where it is is no difference
            patch[name] = found
    return patch or None


def _our_conditions(conditions: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [condition for condition in conditions or () if _is_ours(condition["type"], condition.get("reason"))]


def _list_difference(old: list[dict[str, Any]], new: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Patch a list whose items are merged by key: changed items whole, with null for removed fields."""
    before = {item[key]: item for item in old}
    kept = {item[key] for item in new}
    result = []
    for item in new:
        known = before.get(item[key])
        if known != item:
            result.append({**{name: None for name in (known or {}) if name not in item}, **item})
    result += [{"$patch": "delete", key: gone} for gone in before if gone not in kept and gone != SHARED]
    return result


def _terminated(status: core_v1.PodStatus, part: str) -> dict[str, core_v1.ContainerStateTerminated]:
    containers: Sequence[core_v1.ContainerStatus] = getattr(status, part)
    return {c.name: c.state.terminated for c in containers if c.state is not None and c.state.terminated is not None}
