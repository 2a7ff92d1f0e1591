"""The container runtime's status: readiness for pods, features, handlers and images.

Part of it is reported in the node's status, part is used to create pods (NodeState). It is read again for each node status,
because the runtime may have been replaced at a restart. A short absence, such as a restart, is not reported as a failure. A
runtime that accepts calls and does not answer counts as absent: a node status does not wait for the calls' deadlines. Images
are listed apart: a list that fails or takes long, for example one that is larger than a message, leaves the last one reported.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from agent.devices import cdi
from agent.node import required_network
from agent.node.state import NodeState
from agent.node.status import RuntimeFacts
from cri.client import Client as RuntimeClient
from cri.errors import CRIError
from cri.messages import StatusResponse
from cri.texts import NAME, shortened
from kube.api import core_v1
from kube.clock import Clock

log = logging.getLogger(__name__)

DOWN_SECONDS = 30.0
"""Time that the runtime may be away before the node reports it (upstream's runtime state threshold)."""
ANSWER_SECONDS = 5.0
"""Seconds that a node status waits for the runtime's answer; a later answer goes into the next status."""
_UNREADY = {
    "RuntimeReady": "container runtime not ready",
    "NetworkReady": "container runtime network not ready",
}


class RuntimeStatus:
    """The runtime's last status; `most_images` of its images are reported, all where it is negative.

    With `network` the runtime's network counts as not ready until it is the one of that name.
    """

    def __init__(
        self, runtime: RuntimeClient, state: NodeState, *, clock: Clock, most_images: int, network: str = ""
    ) -> None:
        self._runtime, self._state, self._clock, self._most_images = runtime, state, clock, most_images
        self._network = network
        self._seen = float("-inf")
        self.facts = RuntimeFacts()
        self._cdi = False
        self._reading: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._list_problem = ""

    def looks_up_cdi(self) -> bool:
        """Return whether the runtime resolves CDI device names."""
        return self._cdi

    async def update(self) -> None:
        """Update `facts` and the node's state; waits `ANSWER_SECONDS` at most."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="runtime status")
        if self._listing is None:
            self._listing = asyncio.create_task(self._list_images(), name="image list of the node status")
        waiting = asyncio.create_task(self._clock.sleep(ANSWER_SECONDS), name="runtime status deadline")
        both = asyncio.create_task(asyncio.wait((self._reading, self._listing)), name="runtime status and image list")
        try:
            await asyncio.wait((both, waiting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._reading.cancel()
            self._listing.cancel()
            raise
        finally:
            waiting.cancel()
            both.cancel()
        if self._listing.done():
            finished, self._listing = self._listing, None
            finished.result()
        if not self._reading.done():
            self._away("no answer")
            return
        finished, self._reading = self._reading, None
        finished.result()

    def _away(self, why: str) -> None:
        if self._clock.monotonic() - self._seen >= DOWN_SECONDS:
            self.facts = replace(self.facts, unready=f"container runtime is down: {why}")

    async def _read(self) -> None:
        try:
            status = await self._runtime.runtime.status(verbose=True)
            about = await self._runtime.runtime.version()
        except CRIError as error:
            self._away(error.message)
            return
        name, version = shortened(about.runtime_name, NAME), shortened(about.runtime_version, NAME)
        self._seen = self._clock.monotonic()
        self._cdi = cdi.runtime_knows(name, version, status.info)
        self._state.runtime = (name, version)
        can = {handler.name: handler.features for handler in status.runtime_handlers}
        self._state.recursive_read_only = {handler: f.recursive_read_only_mounts for handler, f in can.items()}
        self._state.user_namespaces = {handler: f.user_namespaces for handler, f in can.items()}
        self._state.supplemental_groups_policy = status.features.supplemental_groups_policy
        network, unready = _problems(status, "NetworkReady"), _problems(status)
        if not network and (network := required_network.problem(self._network, status.info)):
            unready = "; ".join(filter(None, (unready, network)))
        self._state.network_problem = network
        images = self.facts.images
        self.facts = RuntimeFacts(name, version, unready, _handlers(status), _features(status), images)

    async def _list_images(self) -> None:
        try:
            found = sorted(await self._runtime.images.list_images(), key=lambda image: image.size, reverse=True)
        except CRIError as error:
            if self._list_problem != error.code:
                log.warning("images cannot be listed for the node status: %s", error)
            self._list_problem = error.code
            return
        self._list_problem = ""
        images = tuple(
            core_v1.ContainerImage(names=[*image.repo_digests, *image.repo_tags][:5], size_bytes=image.size)
            for image in (found if self._most_images < 0 else found[: self._most_images])
            if image.repo_digests or image.repo_tags
        )
        self.facts = replace(self.facts, images=images)


def _problems(status: StatusResponse, *kinds: str) -> str:
    """Return why no pods can run by the conditions of these kinds (by default all), "" where they can."""
    return "; ".join(
        f"{_UNREADY[one.type]}: {one.type}=false reason:{shortened(one.reason, NAME)} message:{shortened(one.message)}"
        for one in status.status.conditions
        if one.type in (kinds or _UNREADY) and not one.status
    )


def _handlers(status: StatusResponse) -> tuple[core_v1.NodeRuntimeHandler, ...]:
    return tuple(
        core_v1.NodeRuntimeHandler(
            name=handler.name or None,
            features=core_v1.NodeRuntimeHandlerFeatures(
                recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                user_namespaces=handler.features.user_namespaces,
            ),
        )
        for handler in status.runtime_handlers
    )


def _features(status: StatusResponse) -> core_v1.NodeFeatures | None:
    if not status.HasField("features"):
        return None
    return core_v1.NodeFeatures(supplemental_groups_policy=status.features.supplemental_groups_policy)
