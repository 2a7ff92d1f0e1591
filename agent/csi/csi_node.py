"""Reports this node's CSI drivers to the cluster: the CSINode object, the node's topology labels and its annotation.

There is a CSINode for every node, also for one without drivers: an empty list says that there is none, which is not the same as
unknown. Others may write the objects at the same time, so every change is made to the current object and retried on a conflict
(pkg/volume/csi/nodeinfomanager).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

from agent.plugins.handler import PluginError
from kube import serialize
from kube.api import core_v1, meta_v1, storage_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)

NODE_ID = "csi.volume.kubernetes.io/nodeid"
TRIES, PAUSE_SECONDS = 8, 0.1


class CSINodes:
    """The objects of the node of this name."""

    def __init__(self, client: Client, node: str, *, clock: Clock) -> None:
        self._client, self._node, self._clock = client, node, clock
        self._writing = asyncio.Lock()
        """Held between reading an object and writing it: drivers register at the same time."""

    async def ensure(self) -> None:
        """Have the CSINode there; what cannot be made now is made with the first driver."""
        try:
            await self._change(lambda drivers: drivers)
        except StatusError as error:
            log.warning("CSINode %s: %s", self._node, error)

    async def add(self, driver: str, node_id: str, topology: Mapping[str, str], limit: int) -> None:
        """Add a driver: its ID of this node, the node's topology, the number of volumes (0: no limit).

        Raise PluginError if another driver reported another topology, StatusError.
        """
        async with self._writing:
            await self._label(driver, node_id, topology)
        await self.update(driver, node_id, topology, limit)

    async def update(self, driver: str, node_id: str, topology: Mapping[str, str], limit: int) -> None:
        """Record in the CSINode what a registered driver reports now. Raise StatusError."""
        wanted = storage_v1.CSINodeDriver(
            name=driver,
            node_id=node_id,
            topology_keys=sorted(topology),
            allocatable=storage_v1.VolumeNodeResources(count=min(limit, 2**31 - 1)) if limit > 0 else None,
        )
        await self._change(
            lambda drivers: drivers if wanted in drivers else [*(d for d in drivers if d.name != driver), wanted]
        )

    async def remove(self, driver: str) -> None:
        """Take a driver out again; labels stay, since volumes may go by them."""
        try:
            await self._change(lambda drivers: [d for d in drivers if d.name != driver])
            async with self._writing:
                ids = _ids(await self._client.get(core_v1.Node, self._node))
                if ids.pop(driver, None) is not None:
                    text = json.dumps(ids, separators=(",", ":")) if ids else None
                    metadata = {"metadata": {"annotations": {NODE_ID: text}}}
                    await self._client.patch(core_v1.Node, self._node, "", metadata)
        except StatusError as error:
            log.warning("removing CSI driver %s from CSINode and Node: %s", driver, error)

    async def _label(self, driver: str, node_id: str, topology: Mapping[str, str]) -> None:
        node = await self._client.get(core_v1.Node, self._node)
        for key, value in topology.items():
            there = node.metadata.labels.get(key)
            if there is not None and there != value:
                raise PluginError(
                    f'detected topology value collision: driver reported "{key}":"{value}" '
                    f'but existing label is "{key}":"{there}"'
                )
        patch: dict[str, dict[str, str]] = {}
        if missing := {key: value for key, value in topology.items() if key not in node.metadata.labels}:
            patch["labels"] = missing
        ids = _ids(node)
        if ids.get(driver) != node_id:
            patch["annotations"] = {NODE_ID: json.dumps({**ids, driver: node_id}, separators=(",", ":"))}
        if patch:
            await self._client.patch(core_v1.Node, self._node, "", {"metadata": patch})

    async def _change(self, change: Callable[[list[storage_v1.CSINodeDriver]], list[storage_v1.CSINodeDriver]]) -> None:
        for last in (*(False,) * (TRIES - 1), True):
            try:
                async with self._writing:
                    await self._change_once(change)
                return
            except StatusError as error:
                if last or not (error.conflict or error.already_exists):
                    raise
            await self._clock.sleep(PAUSE_SECONDS)

    async def _change_once(
        self, change: Callable[[list[storage_v1.CSINodeDriver]], list[storage_v1.CSINodeDriver]]
    ) -> None:
        try:
            there = await self._client.get(storage_v1.CSINode, self._node)
        except StatusError as error:
            if not error.not_found:
                raise
            node = await self._client.get(core_v1.Node, self._node)
            owner = meta_v1.OwnerReference(api_version="v1", kind="Node", name=self._node, uid=node.metadata.uid or "")
            await self._client.create(
                storage_v1.CSINode(
                    metadata=meta_v1.ObjectMeta(name=self._node, owner_references=[owner]),
                    spec=storage_v1.CSINodeSpec(drivers=change([])),
                )
            )
            return
        drivers = change(there.spec.drivers)
        if drivers != there.spec.drivers:
            changed = serialize.copy(there)
            changed.spec.drivers = drivers
            await self._client.update(changed)


def _ids(node: core_v1.Node) -> dict[str, str]:
    try:
        found = json.loads(node.metadata.annotations.get(NODE_ID, "{}"))
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
