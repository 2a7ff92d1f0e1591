"""CSI volumes of the pods on each node, cached between scheduling cycles.

The volumes of a pod are looked up again when one of its claims or their volumes changes, those of a node when its pods change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, storage_v1
from kube.informer import Change, Informer
from kube.volume_binding import class_of

Handles = Mapping[str, str]
"""Volumes, and the driver of each."""
SPARE = 16


class Attachments:
    """Answers for pods and nodes."""

    def __init__(
        self,
        claims: Informer[core_v1.PersistentVolumeClaim],
        volumes: Informer[core_v1.PersistentVolume],
        classes: Informer[storage_v1.StorageClass],
    ) -> None:
        self._claims, self._volumes, self._classes = claims, volumes, classes
        self._pods: dict[str, tuple[PodInfo, Handles]] = {}
        self._users: dict[str, set[str]] = {}
        """Claims, and volumes that claims name, with the pods that were looked up by them."""
        self._nodes: dict[str, Attached] = {}
        claims.subscribe(lambda change: self._forget(f"claim {change.key}"))
        volumes.subscribe(lambda change: self._forget(f"volume {change.key}"))
        classes.subscribe(self._class_changed)

    def _class_changed(self, change: Change[Any]) -> None:
        self._pods.clear()
        self._users.clear()

    def _forget(self, used: str) -> None:
        for pod in self._users.pop(used, ()):
            self._pods.pop(pod, None)

    def of(self, pod: PodInfo) -> Handles:
        """Return the CSI volumes that a pod has or will have."""
        known = self._pods.get(pod.key)
        if known is not None and known[0] is pod:
            return known[1]
        found = dict(self._handles(pod))
        self._pods[pod.key] = (pod, found)
        return found

    def _handles(self, pod: PodInfo) -> Iterator[tuple[str, str]]:
        for key in pod.claims:
            self._users.setdefault(f"claim {key}", set()).add(pod.key)
            claim = self._claims.get(key)
            if claim is None:
                continue
            if claim.spec.volume_name:
                self._users.setdefault(f"volume {claim.spec.volume_name}", set()).add(pod.key)
            volume = self._volumes.get(claim.spec.volume_name or "") if claim.spec.volume_name else None
            if volume is not None:
                if volume.spec.csi is not None:
                    yield f"{volume.spec.csi.driver}/{volume.spec.csi.volume_handle}", volume.spec.csi.driver
                continue
            found = self._classes.get(class_of(claim))
            if found is not None:
                yield f"{found.provisioner}/{key}", found.provisioner

    def on(self, node: NodeInfo) -> Attached:
        """Return the volumes of the pods on a node."""
        attached = self._nodes.setdefault(node.name, Attached())
        attached.follow(node, self.of)
        return attached

    def shed(self, nodes: Mapping[str, NodeInfo]) -> None:
        """Forget nodes and pods that have gone, when there are about as many of them as of others."""
        if len(self._nodes) > 2 * len(nodes) + SPARE:
            self._nodes = {name: found for name, found in self._nodes.items() if name in nodes}
        if len(self._pods) > 2 * sum(len(node.pods) for node in nodes.values()) + SPARE:
            self._pods.clear()
            self._users.clear()


class Attached:
    """The volumes on one node: how many pods have each, and how many there are of each driver."""

    def __init__(self) -> None:
        self._pods: dict[str, Handles] = {}
        self.uses: Counter[str] = Counter()
        self.drivers: Counter[str] = Counter()

    def follow(self, node: NodeInfo, of: Callable[[PodInfo], Handles]) -> None:
        """Process the pods that were added, removed or have other volumes than before."""
        there = {key: of(pod) for key, pod in node.pods.items() if pod.claims}
        for key in [key for key, handles in self._pods.items() if there.get(key) is not handles]:
            self._count(self._pods.pop(key), -1)
        for key, handles in there.items():
            if key not in self._pods:
                self._pods[key] = handles
                self._count(handles, 1)

    def _count(self, handles: Handles, sign: int) -> None:
        for handle, driver in handles.items():
            before = self.uses[handle]
            self.uses[handle] += sign
            if not before or not self.uses[handle]:
                self.drivers[driver] += sign
            if not self.uses[handle]:
                del self.uses[handle]
