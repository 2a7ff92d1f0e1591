"""Keeps a mirror pod in the API for each static pod: created again when deleted, deleted with its manifest.

Each mirror pod is reconciled separately: one that the API rejects waits for its own retry and delays no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from agent.backoff import BackOff
from agent.pods.static import HASH, MIRROR, mirror_of
from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock
from kube.controller import Controller
from kube.errors import StatusError
from kube.object_names import key_of

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 2.0, 60.0
"""Seconds until a mirror that the API refused is retried, each time longer."""
SERVER_ERROR = 500
"""From this code on the server failed rather than refused, which passes."""
WORKERS = 4
"""Mirrors that are seen to at a time: a webhook may hang for some."""


class MirrorPods:
    """Keeps the API's mirror pods in step with the static pods. `node` names the node object that owns them."""

    def __init__(self, client: Client, node_name: str, *, clock: Clock) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._wanted: dict[str, core_v1.Pod] = {}
        self._shown: dict[str, core_v1.Pod] = {}
        self._failures = BackOff(FIRST_RETRY, LAST_RETRY)
        self._controller: Controller | None = None

    def set_static_pods(self, pods: Mapping[str, core_v1.Pod]) -> None:
        """Show exactly these static pods, by UID."""
        before, self._wanted = self._wanted, {key_of(pod): pod for pod in pods.values()}
        self._enqueue(key for key in {*before, *self._wanted} if before.get(key) is not self._wanted.get(key))

    def update_mirror(self, mirror: core_v1.Pod, *, gone: bool) -> None:
        """Handle a change from the watch of a mirror pod."""
        if gone:
            self._shown.pop(key_of(mirror), None)
        else:
            self._shown[key_of(mirror)] = mirror
        self._enqueue((key_of(mirror),))

    def mirror_of_static(self, pod: core_v1.Pod) -> core_v1.Pod | None:
        """Return the mirror of a static pod where the API has one."""
        mirror = self._shown.get(key_of(pod))
        current = mirror is not None and mirror.metadata.annotations.get(MIRROR) == pod.metadata.annotations.get(HASH)
        return mirror if current else None

    async def run(self) -> None:
        """Create and delete until cancelled; start it once the first list of pods is in."""
        controller = self._controller = Controller("mirror pods", self._reconcile, workers=WORKERS, clock=self._clock)
        self._enqueue({*self._wanted, *self._shown})
        await controller.run()

    def _enqueue(self, keys: Iterable[str]) -> None:
        if self._controller is not None:
            for key in sorted(keys):
                self._controller.enqueue(key)

    async def _reconcile(self, key: str) -> float | None:
        """Bring one mirror to its static pod; return the seconds until the next try where the API refuses it."""
        try:
            shown = await self._show(key)
        except StatusError as error:
            log.warning("mirror pod %s: %s", key, error)
            if error.code >= SERVER_ERROR:
                return FIRST_RETRY
            return self._failures.next(key, self._clock.monotonic())
        self._failures.reset(key)
        return None if shown else LAST_RETRY

    async def _show(self, key: str) -> bool:
        """Delete and create as the static pod requests; False if another pod has the mirror's name. Raise StatusError."""
        mirror, wanted = self._shown.get(key), self._wanted.get(key)
        # A deletion with a grace period is completed here: it terminates nothing that runs, as with upstream.
        if mirror is not None and (
            wanted is None or self.mirror_of_static(wanted) is None or mirror.metadata.deletion_timestamp is not None
        ):
            await self._delete(mirror)
        if self._wanted.get(key) is None or key in self._shown:
            return True
        node = await self._client.get(core_v1.Node, self._node_name)
        owner = core_v1.ObjectReference(name=self._node_name, uid=node.metadata.uid)
        pod = self._wanted.get(key)
        if pod is None:
            return True
        try:
            self._shown[key] = await self._client.create(mirror_of(pod, owner))
        except StatusError as error:
            if not error.already_exists:
                raise
            return key in self._shown
        return True

    async def _delete(self, mirror: core_v1.Pod) -> None:
        metadata = mirror.metadata
        try:
            await self._client.delete(
                core_v1.Pod,
                metadata.name or "",
                metadata.namespace or "",
                uid=metadata.uid or "",
                grace_period_seconds=0,
            )
        except StatusError as error:
            if not (error.not_found or error.conflict):
                raise
        self._shown.pop(key_of(mirror), None)
