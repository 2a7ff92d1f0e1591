"""Node affinity of PersistentVolumes: a volume of other nodes is not set up here (storage/volume.CheckNodeAffinity upstream).

The scheduler compares it too, but a pod with a `nodeName` passes no scheduler: a path of a local volume would name other files
on this node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.volumes.payload import VolumeError
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.volume_binding import node_fits


class VolumeNodeAffinity:
    """Compares volumes with this node; `labels` returns the Node's last known labels, None if they were not read yet."""

    def __init__(self, client: Client, node_name: str, labels: Callable[[], Mapping[str, str] | None]) -> None:
        self._client, self._node_name, self._labels = client, node_name, labels

    async def check(self, persistent: core_v1.PersistentVolume) -> None:
        """Raise VolumeError if this node cannot use a volume. A mismatch is checked with the Node as it is now.

        Drivers add labels to the Node shortly before pods use their volumes.
        """
        labels = self._labels()
        metadata = meta_v1.ObjectMeta(name=self._node_name, labels=dict(labels or {}))
        if labels is not None and node_fits(persistent, core_v1.Node(metadata=metadata)):
            return
        step = f"{'MapVolume' if persistent.spec.volume_mode == 'Block' else 'MountVolume'}.NodeAffinity check"
        try:
            node = await self._client.get(core_v1.Node, self._node_name)
        except StatusError as error:
            raise VolumeError(f"error retrieving node: {error}", step=step) from error
        if not node_fits(persistent, node):
            raise VolumeError("no matching NodeSelectorTerms", step=step)
