"""allocated_pods_state and actuated_pods_state: checkpoints of the sizes allocated to pods, and actuated in them.

The files and their checksums are upstream's of v1.36 (pkg/kubelet/allocation/state), so an upstream kubelet that takes the node
over restarts nothing for a size that it does not know. Pods without any requests or limits need no entry. A pod that is gone
leaves memory at once, and the file with the next write.

A size is saved before anything acts on it: an agent that is killed in between would take the spec's for it, which may have
been changed meanwhile. Entries of several pods are written together.

Upstream's checksum is a step for each byte. So a pod's entry has a size limit, the newest entries are last in the file, and
only what follows the first change is summed again, in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import msgspec

from agent.kubelet_configuration import ConfigError
from agent.managers import state_files
from agent.managers.checkpoint_writer import CheckpointWriter
from agent.managers.list_checksum import ListChecksum
from agent.managers.state_files import StateError
from agent.pods.allocation import Size
from kube.api import core_v1

ALLOCATED, ACTUATED = "allocated_pods_state", "actuated_pods_state"

LARGEST = 64 * 1024
"""Largest size of a pod's entry in bytes: 300 containers with requests and limits of processors and memory."""

_PRINTED, _HEAD, _TAIL = b"(string)", b'{"entries":{', b"}}"
"""Go's printed type of the data, and the JSON around the pods' entries."""


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
        self._parts = {uid: _part(uid, pod) for uid, pod in self._pods.items()}
        """By pod UID: what the file has of a pod. Changed pods move to the end."""
        self._saved = dict(self._parts)
        """Entries that the file has on disk."""
        self._sum = ListChecksum[bytes](_PRINTED + _HEAD, b",", bytes)
        self._writer = CheckpointWriter(path.name, self._prepare)

    def of(self, uid: str) -> Size | None:
        """Return a pod's size; None if the pod is not known, or neither it nor a container has requests or limits."""
        found = self._pods.get(uid)
        return Size(found.ContainerResources or {}, found.PodLevelResources) if found is not None else None

    def put(self, uid: str, size: Size) -> None:
        """Set a pod's size, unless it takes more than LARGEST."""
        pod = _Pod(dict(size.containers), size.together)
        sized = size.together is not None or any(own.limits or own.requests for own in size.containers.values())
        if self._pods.get(uid) == pod or not (sized or uid in self._pods):
            return
        part, saved = _part(uid, pod), self._saved.get(uid)
        part = saved if saved is not None and saved == part else part
        self.forget(uid)
        if len(part) <= LARGEST:
            self._pods[uid], self._parts[uid] = pod, part
            self._writer.mark()

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        for uid in [uid for uid in self._pods if uid not in uids]:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._parts.pop(uid, None)

    async def save(self, uid: str) -> None:
        """Return when the file has the pod's size. Raise OSError: `retry` writes it then."""
        if not self._is_saved(uid):
            await self._writer.save_all()

    async def try_save(self, uid: str) -> None:
        """Return when the file has the pod's size; if it cannot be written, log the error."""
        if not self._is_saved(uid):
            await self._writer.try_save_all()

    async def retry(self) -> None:
        """Write what could not be written before."""
        await self._writer.retry()

    def _is_saved(self, uid: str) -> bool:
        return self._saved.get(uid) is self._parts.get(uid)

    def _prepare(self) -> Callable[[], None]:
        return partial(self._replace, dict(self._parts))

    def _replace(self, by_uid: dict[str, bytes]) -> None:
        parts = list(by_uid.values())
        data = (_HEAD + b",".join(parts) + _TAIL).decode()
        state_files.write(self._path, {"data": data, "checksum": self._sum.of(parts, _TAIL)})
        self._saved = by_uid


class PodResourceStates:
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

    async def retry(self) -> None:
        """Write what could not be written before."""
        await self.allocated.retry()
        await self.actuated.retry()


def _load(path: Path) -> dict[str, _Pod]:
    with state_files.restoring(path, "pod resource information"):
        found = state_files.read(path)
        if found is None:
            return {}
        data = str(found.get("data", ""))
        state_files.check(found.get("checksum", 0), state_files.checksum(_PRINTED + data.encode()))
        return msgspec.json.decode(data, type=_Data).entries or {}


def _part(uid: str, pod: _Pod) -> bytes:
    return msgspec.json.encode({uid: pod})[1:-1]


def refusal(uid: str, size: Size) -> str:
    """Return why a pod cannot have this size, "" if it can."""
    length = len(_part(uid, _Pod(dict(size.containers), size.together)))
    return f"requests and limits of the pod take {length} bytes, {LARGEST} are allowed" if length > LARGEST else ""
