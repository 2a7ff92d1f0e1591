"""Keeps a mirror pod in the API for each static pod: created again when deleted, deleted with its manifest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from agent.pods.static import HASH, MIRROR, mirror_of
from kube.api import core_v1
from kube.client import Client, key_of
from kube.clock import Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


class MirrorPods:
    """Keeps the API's mirror pods in step with the static pods. `node` names the node object that owns them."""

    def __init__(self, client: Client, node_name: str, *, clock: Clock) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._wanted: dict[str, core_v1.Pod] = {}
        self._shown: dict[str, core_v1.Pod] = {}
        self._changed = asyncio.Event()

    def set_static_pods(self, pods: Mapping[str, core_v1.Pod]) -> None:
        """Show exactly these static pods, by UID."""
        self._wanted = {key_of(pod): pod for pod in pods.values()}
        self._changed.set()

    def update_mirror(self, mirror: core_v1.Pod, *, gone: bool) -> None:
        """Handle a change from the watch of a mirror pod."""
        if gone:
            self._shown.pop(key_of(mirror), None)
        else:
            self._shown[key_of(mirror)] = mirror
        self._changed.set()

    def mirror_of_static(self, pod: core_v1.Pod) -> core_v1.Pod | None:
        """Return the mirror of a static pod where the API has one."""
        mirror = self._shown.get(key_of(pod))
        current = mirror is not None and mirror.metadata.annotations.get(MIRROR) == pod.metadata.annotations.get(HASH)
        return mirror if current else None

    async def run(self) -> None:
        """Create and delete until cancelled; start it once the first list of pods is in."""
        while True:
            self._changed.clear()
            try:
                await self._reconcile()
            except StatusError as error:
                log.warning("mirror pods: %s", error)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def _reconcile(self) -> None:
        for key, mirror in list(self._shown.items()):
            wanted = self._wanted.get(key)
            # A deletion with a grace period is completed here: it terminates nothing that runs, as with upstream.
            if (
                wanted is None
                or self.mirror_of_static(wanted) is None
                or mirror.metadata.deletion_timestamp is not None
            ):
                await self._delete(mirror)
        for key, pod in list(self._wanted.items()):
            if key in self._shown:
                continue
            node = await self._client.get(core_v1.Node, self._node_name)
            owner = core_v1.ObjectReference(name=self._node_name, uid=node.metadata.uid)
            try:
                self._shown[key] = await self._client.create(mirror_of(pod, owner))
            except StatusError as error:
                if not error.already_exists:
                    raise

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
