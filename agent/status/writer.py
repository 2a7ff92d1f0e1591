"""Writes pods' statuses to the API: at once, only what changed, one request a pod at a time.

A pod's newest status waits while an older one is being written, so a burst of changes becomes few requests. The request is a
strategic merge patch of the fields that differ: conditions of others (readiness gates) are left alone. When the API server is
away the newest status is kept and written when it is back; nothing else in the agent waits for that. A status that is too
large for the API server is not sent again: what else than its containers has changed is written.

Others may write too: the node controller marks pods not ready on a node whose lease expires, and a second agent with the
node's name reports containers of its own. What differs from the agent's last write, but for others' fields and conditions, is
overwritten: at once, and then every 10 s at most, as upstream (status_manager.go: syncBatch, needsReconcile), so that two
agents do not overwrite each other all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from agent import step_shares
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.status.patch import difference
from agent.status.rate import StatusRate
from agent.status.record import StatusRecord, revision_of
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.serving.fair_queue import Slots

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 0.2, 10.0
INVALID = 422
REPAIR_SECONDS = 10.0
"""Time between two overwrites of what others have written to one pod."""
STATUSES, DELETIONS = 6, 4
"""Requests under way at a time, round robin over namespaces: each may wait for a webhook that hangs, and leaves the client's
other places to others."""
_KINDS = {
    "init_container_statuses": "init_container",
    "container_statuses": "container",
    "ephemeral_container_statuses": "ephemeral_container",
}
"""The fields of a status with containers, and upstream's names for the kinds in metrics."""


class StatusWriter:
    """Sends statuses and, at a pod's end, the deletion that takes it out of the API."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM, metrics: KubeletMetrics | None = None) -> None:
        self._client, self._clock, self._metrics = client, clock, metrics or KubeletMetrics()
        self._pods: dict[str, StatusRecord] = {}
        self.rate = StatusRate(clock)
        self._statuses, self._deletions = Slots(STATUSES), Slots(DELETIONS)

    def set(self, pod: core_v1.Pod, status: core_v1.PodStatus) -> None:
        """Write a status; returns at once. `pod.status` is the API's when the pod was last read."""
        uid = pod.metadata.uid or ""
        entry = self._pods.get(uid)
        if entry is None:
            entry = StatusRecord(pod.metadata.namespace or "", pod.metadata.name or "", pod.status, status)
            entry.idle.set()
            self._pods[uid] = entry
        entry.see(pod)
        self._count_terminated(entry.wanted or entry.reported, status)
        entry.last = status
        if entry.task is None:
            self._take_in(uid, entry)
        if difference(entry.reported, status) is not None or entry.wanted is not None:
            self._want(uid, entry, status)

    def _want(self, uid: str, entry: StatusRecord, status: core_v1.PodStatus) -> None:
        if entry.wanted is None:
            entry.changed_at = self._clock.monotonic()
        entry.wanted = status
        if entry.task is None:
            entry.idle.clear()
            name = f"status of {entry.namespace}/{entry.name}"
            entry.task = asyncio.create_task(self._send_charged(uid, entry), name=name)

    def _take_in(self, uid: str, entry: StatusRecord) -> None:
        """Compare with what the API has: what somebody else has written is overwritten now, or when it is time."""
        found = entry.written_by_others()
        if found is None:
            return
        now = self._clock.monotonic()
        if entry.repair_at <= now:
            entry.repair_at = now + REPAIR_SECONDS
            entry.reported = found
        elif entry.late is None:
            name = f"repair the status of {entry.namespace}/{entry.name}"
            entry.late = asyncio.create_task(self._repair_late(uid, entry, entry.repair_at - now), name=name)

    async def _repair_late(self, uid: str, entry: StatusRecord, seconds: float) -> None:
        await self._clock.sleep(seconds)
        entry.late = None
        if entry.task is None:  # what is being sent is compared afterwards
            status = entry.reported
            self._take_in(uid, entry)
            if entry.reported is not status:
                self._want(uid, entry, status)

    def _count_terminated(self, before: core_v1.PodStatus, now: core_v1.PodStatus) -> None:
        """Count each container that the new status shows terminated and the one before did not."""
        for part, kind in _KINDS.items():
            ended = _terminated(before, part).keys()
            for name, state in _terminated(now, part).items():
                if name not in ended:
                    self._metrics.terminated_containers.inc(kind, str(state.exit_code), state.reason or "")

    async def _send_charged(self, uid: str, entry: StatusRecord) -> None:
        await step_shares.charged(self._send(uid, entry), entry.namespace)

    async def _send(self, uid: str, entry: StatusRecord) -> None:
        delay = FIRST_RETRY
        try:
            while entry.wanted is not None:
                try:
                    async with self._statuses.slot(entry.namespace):
                        answered = await self._send_newest(uid, entry)
                except Exception:
                    # An answer that cannot be decoded, for one: what the server has done is not known.
                    log.exception("status of pod %s/%s", entry.namespace, entry.name)
                    entry.wanted, answered = entry.wanted or entry.last, False
                if answered:
                    delay = FIRST_RETRY
                else:
                    await self._clock.sleep(delay)
                    delay = min(delay * 2, LAST_RETRY)
        finally:
            entry.task = None
            entry.idle.set()

    async def _send_newest(self, uid: str, entry: StatusRecord) -> bool:
        """Send the status that is wanted now; False if it has to be sent again."""
        assert entry.wanted is not None, "only the sending task takes it"
        status, entry.wanted = entry.wanted, None
        changed_at, shown = entry.changed_at, entry.acceptable(status)
        patch = difference(entry.reported, shown)
        if patch is None:
            return True
        body = {"metadata": {"uid": uid}, "status": patch}
        before = revision_of(entry.seen)
        try:
            answer = await self._client.patch(
                core_v1.Pod, entry.name, entry.namespace, body, type=STRATEGIC, subresource="status"
            )
        except StatusError as error:
            if await self._is_gone(uid, entry.name, entry.namespace, error):
                entry.reported = shown
                return True
            log.warning("status of pod %s/%s: %s", entry.namespace, entry.name, error)
            if error.too_large:
                if shown is status:
                    entry.refused = status
                else:
                    entry.refused_part = shown
                entry.wanted = entry.wanted or status
                return True
            if error.code == INVALID:
                await self._read(uid, entry)
            if entry.wanted is None:
                entry.wanted = status
            return False
        entry.reported, entry.revision = shown, revision_of(answer)
        self._metrics.status_sync.observe(self._clock.monotonic() - changed_at)
        if entry.revision == before:
            entry.settled = before
        entry.see(answer)
        self._take_in(uid, entry)
        if entry.reported is not shown and entry.wanted is None:
            entry.wanted = status
        return True

    async def _is_gone(self, uid: str, name: str, namespace: str, error: StatusError) -> bool:
        """Return whether a request failed because its pod was deleted, or another one has its name.

        A conflict may also be one with other writers.
        """
        if error.not_found or not error.conflict:
            return error.not_found or error.replaced
        try:
            return (await self._client.get(core_v1.Pod, name, namespace)).metadata.uid != uid
        except StatusError as found:
            return found.not_found

    async def _read(self, uid: str, entry: StatusRecord) -> None:
        """Read what the API has: a patch of something else may be invalid (a second address of one family)."""
        try:
            pod = await self._client.get(core_v1.Pod, entry.name, entry.namespace)
        except StatusError as error:
            log.warning("reading pod %s/%s: %s", entry.namespace, entry.name, error)
            return
        if pod.metadata.uid == uid:
            entry.see(pod)
            entry.reported = entry.written_by_others() or entry.reported

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
                async with self._deletions.slot(pod.metadata.namespace or ""):
                    if await self._delete_once(uid, pod.metadata.name or "", pod.metadata.namespace or ""):
                        return
            except Exception:
                # An answer that cannot be decoded, for one: what the server has done is not known.
                log.exception("deleting pod %s/%s", pod.metadata.namespace, pod.metadata.name)
            await self._clock.sleep(delay)
            delay = min(delay * 2, LAST_RETRY)

    async def _delete_once(self, uid: str, name: str, namespace: str) -> bool:
        """Return whether the server has deleted the pod, or had before."""
        try:
            await self._client.delete(core_v1.Pod, name, namespace, uid=uid, grace_period_seconds=0)
        except StatusError as error:
            if not await self._is_gone(uid, name, namespace, error):
                log.warning("deleting pod %s/%s: %s", namespace, name, error)
                return False
        return True

    def reported(self, uid: str) -> core_v1.PodStatus | None:
        """Return the newest status that was set for a pod: it may be ahead of what watches show."""
        entry = self._pods.get(uid)
        return entry.last if entry else None

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone from the API."""
        entry = self._pods.pop(uid, None)
        for task in (entry.task, entry.late) if entry is not None else ():
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """Stop sending."""
        for entry in self._pods.values():
            for task in (entry.task, entry.late):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task


def _terminated(status: core_v1.PodStatus, part: str) -> dict[str, core_v1.ContainerStateTerminated]:
    containers: Sequence[core_v1.ContainerStatus] = getattr(status, part)
    return {c.name: c.state.terminated for c in containers if c.state is not None and c.state.terminated is not None}
