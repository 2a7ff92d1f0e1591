"""allocated_pods_state and actuated_pods_state: what pods' containers were granted, and what they were given when made.

The files and their checksums are upstream's of v1.36 (pkg/kubelet/allocation/state), so an upstream kubelet that takes the
node over restarts nothing for a size that it does not know of. Pods without any requests or limits need no note. A pod
that is gone leaves memory at once and the file with the next note.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from agent.kubelet_configuration import ConfigError
from agent.managers import state_files
from agent.managers.state_files import StateError
from kube.api import core_v1

log = logging.getLogger(__name__)

ALLOCATED, ACTUATED = "allocated_pods_state", "actuated_pods_state"

Sizes = Mapping[str, core_v1.ResourceRequirements]
"""By container name."""


class _Pod(msgspec.Struct):
    ContainerResources: dict[str, core_v1.ResourceRequirements] | None = None
    PodLevelResources: core_v1.ResourceRequirements | None = None


class _Data(msgspec.Struct, omit_defaults=True):
    entries: dict[str, _Pod] | None = None


class ResourceState:
    """One of the files, kept in memory."""

    def __init__(self, path: Path) -> None:
        """Read what the last agent wrote. Raise StateError."""
        self._path = path
        self._pods = _load(path)
        self._changed = False
        self._writing: asyncio.Task[None] | None = None

    def of(self, uid: str) -> Sizes:
        """Return what a pod's containers have; nothing where none has requests or limits, or the pod is not known."""
        found = self._pods.get(uid)
        return (found.ContainerResources or {}) if found is not None else {}

    def put(self, uid: str, sizes: Sizes, together: core_v1.ResourceRequirements | None) -> None:
        """Note what a pod's containers have, and the pod itself."""
        pod = _Pod(dict(sizes), together)
        sized = together is not None or any(size.limits or size.requests for size in sizes.values())
        if self._pods.get(uid) != pod and (sized or uid in self._pods):
            self._pods[uid] = pod
            self._changed = True

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        self._pods = {uid: pod for uid, pod in self._pods.items() if uid in uids}

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)

    async def save(self) -> None:
        """Write what has changed; what cannot be written now is written the next time."""
        if self._changed and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name=f"writing {self._path.name}")
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        while self._changed:  # what changes meanwhile is written with what others change
            self._changed = False
            data = msgspec.json.encode(_Data(self._pods)).decode()
            try:
                await asyncio.to_thread(state_files.write, self._path, {"data": data, "checksum": _checksum(data)})
            except OSError as error:
                self._changed = True
                log.warning("writing %s: %s", self._path, error)
                return


class PodResources:
    """Both files of a node."""

    def __init__(self, root: Path) -> None:
        """Read what the last agent wrote. Raise ConfigError."""
        try:
            self.allocated, self.actuated = ResourceState(root / ALLOCATED), ResourceState(root / ACTUATED)
        except StateError as error:
            raise ConfigError(str(error)) from error

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        self.allocated.keep(uids)
        self.actuated.keep(uids)

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        self.allocated.forget(uid)
        self.actuated.forget(uid)


def _load(path: Path) -> dict[str, _Pod]:
    with state_files.restoring(path, "pod resource information"):
        found = state_files.read(path)
        if found is None:
            return {}
        data = str(found.get("data", ""))
        state_files.check(found.get("checksum", 0), _checksum(data))
        return msgspec.json.decode(data, type=_Data).entries or {}


def _checksum(data: str) -> int:
    return state_files.checksum(f"(string){data}")
