"""Which user and group IDs of the node a pod with a user namespace of its own is mapped to (hostUsers: false, KEP-127).

Each such pod has 65536 IDs (or a multiple, by userNamespaces.idsPerPod) that no other pod and no user of the node has; the
first block is the node's. What a pod was given is written into its folder before the sandbox is made, in upstream's form, and
holds as long as that folder: the agent's next life reads it back, and the range is free when the pod's folder was removed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cri.messages import IDMapping, NamespaceMode, UserNamespace
from kube.api import core_v1

FILE = "userns"
LENGTH = 65536
_ALL_IDS = 1 << 32


class UserNamespaceError(Exception):
    """The pod cannot have a user namespace; the message is upstream's."""


class _Range(msgspec.Struct, rename="camel"):
    host_id: int
    container_id: int
    length: int


class _Mappings(msgspec.Struct):
    uids: list[_Range] = msgspec.field(name="uidMappings")
    gids: list[_Range] = msgspec.field(name="gidMappings")


class UserNamespaces:
    """The ranges of a node's pods; at most `limit` of `length` IDs each. `load` and `ensure` block."""

    def __init__(self, pods_dir: Path, limit: int, length: int = LENGTH) -> None:
        self._pods_dir, self._limit, self._length = pods_dir, limit, length
        self._first: dict[str, int] = {}
        """By pod UID: the first ID of its range."""
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read what pods were given in the agent's last life."""
        for path in self._pods_dir.glob(f"*/{FILE}"):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=_Mappings)
            except (OSError, msgspec.MsgspecError):
                continue
            if len(found.uids) == 1 and found.uids == found.gids and found.uids[0].container_id == 0:
                self._first[path.parent.name] = found.uids[0].host_id

    def ensure(self, pod: core_v1.Pod, handler: str, supported: Mapping[str, bool]) -> None:
        """Give a pod its range if it wants one and has none. Raise UserNamespaceError, OSError.

        `supported` says of the runtime's handlers, by name, whether they can make user namespaces.
        """
        if pod.spec.host_users is not False:
            return
        if handler not in supported:
            raise UserNamespaceError(f'the handler "{handler}" is not known')
        if not supported[handler]:
            raise UserNamespaceError(f'RuntimeClass handler "{handler}" does not support user namespaces')
        uid = pod.metadata.uid or ""
        with self._lock:
            if uid in self._first:
                return
            first = self._free()
            _write(self._pods_dir / uid, first, self._length)
            self._first[uid] = first

    def _free(self) -> int:
        for uid in [uid for uid in self._first if not (self._pods_dir / uid / FILE).exists()]:
            del self._first[uid]
        if len(self._first) >= self._limit:
            raise UserNamespaceError(
                f"limit on count of pods with user namespaces exceeded (limit is {self._limit}, "
                f"current pods with userns: {len(self._first)})"
            )
        taken = set(self._first.values())
        for first in range(self._length, _ALL_IDS, self._length):
            if first not in taken:
                return first
        raise UserNamespaceError("could not find an empty slot to allocate a user namespace")

    def ids(self, pod: core_v1.Pod) -> list[IDMapping]:
        """Return the mapping of a pod's IDs, the same for users and groups; none for one that is mapped to itself."""
        first = self._first.get(pod.metadata.uid or "") if pod.spec.host_users is False else None
        return [] if first is None else [IDMapping(host_id=first, container_id=0, length=self._length)]


def options(ids: list[IDMapping]) -> UserNamespace:
    """Return the namespace option for a mapping; without one the pod has the node's users."""
    if not ids:
        return UserNamespace(mode=NamespaceMode.NODE)
    return UserNamespace(mode=NamespaceMode.POD, uids=ids, gids=ids)


def _write(folder: Path, first: int, length: int) -> None:
    given = [_Range(host_id=first, container_id=0, length=length)]
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    temporary = folder / f".{FILE}"
    temporary.write_bytes(msgspec.json.encode(_Mappings(given, given)))
    temporary.rename(folder / FILE)
