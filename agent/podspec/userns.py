"""Assigns user and group IDs of the node to pods with a user namespace of their own (hostUsers: false, KEP-127).

Each such pod has 65536 IDs (or a multiple, by userNamespaces.idsPerPod) that no other pod and no user of the node has, out of
those of `subordinate_ids.py`. They are written into the pod's directory before the sandbox is created, in upstream's form, and
are assigned for as long as that directory exists: a restarted agent reads them back, and the range is free when the directory
is removed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from agent.podspec.subordinate_ids import UNIT, IdRange
from cri.messages import IDMapping, NamespaceMode, UserNamespace
from kube.api import core_v1
from kube.files import write_file

log = logging.getLogger(__name__)

FILE = "userns"
LENGTH = UNIT
_CANNOT = "can't set `spec.hostUsers: false`, "


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
    """The ranges of a node's pods, `length` IDs each out of `room`. `load`, `look_again` and `ensure` block."""

    def __init__(self, pods_dir: Path, room: IdRange, length: int = LENGTH) -> None:
        self._pods_dir, self._room, self._length = pods_dir, room, length
        self._given: dict[str, IdRange] = {}
        """By pod UID."""
        self._unknown: set[Path] = set()
        """Files of pods whose ranges are not known."""
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read what pods were given in the agent's last life; they keep it, also where the node's range is another now.

        Raise OSError if the pods' folders cannot be listed.
        """
        for folder in os.listdir(self._pods_dir) if self._pods_dir.exists() else ():
            self._read(self._pods_dir / folder / FILE)

    def _read(self, path: Path) -> None:
        """Read one pod's range. A file that is there and cannot be read may mean any, until it can be or is gone."""
        self._unknown.add(path)
        try:
            found = decode_json(path, _Mappings)
        except (FileNotFoundError, NotADirectoryError):
            self._unknown.discard(path)
        except (OSError, DamagedFileError) as error:
            log.warning("%s: %s", path, error)
        else:
            if len(found.uids) == 1 and found.uids == found.gids and found.uids[0].container_id == 0:
                self._given[path.parent.name] = IdRange(found.uids[0].host_id, found.uids[0].length)
                self._unknown.discard(path)

    def load_unread(self) -> None:
        """Read what could not be read before."""
        with self._lock:
            for path in tuple(self._unknown):
                self._read(path)

    def ensure(self, pod: core_v1.Pod, handler: str, supported: Mapping[str, bool]) -> None:
        """Assign a range of IDs to a pod that needs one and has none. Raise UserNamespaceError, OSError.

        `supported`: by name of a runtime handler, whether it supports user namespaces.
        """
        if pod.spec.host_users is not False:
            return
        if not supported.get(handler, False):
            what = f'RuntimeClass handler "{handler}"' if handler else "runtime"
            why = "" if handler in supported else f': the handler "{handler}" is not known'
            raise UserNamespaceError(f"{_CANNOT}{what} does not support user namespaces{why}")
        uid = pod.metadata.uid or ""
        self.load_unread()
        with self._lock:
            if uid in self._given:
                return
            if self._unknown:
                raise UserNamespaceError(f"{_CANNOT}record pod mappings: cannot read {min(self._unknown)}")
            given = self._free()
            _write(self._pods_dir / uid, given)
            self._given[uid] = given

    def _free(self) -> IdRange:
        for uid in [uid for uid in self._given if not (self._pods_dir / uid / FILE).exists()]:
            del self._given[uid]
        # A pod of another idsPerPod may have a piece of several parts, or several of one.
        taken = {
            part
            for given in self._given.values()
            for part in range(given.first // self._length, -(-(given.first + given.count) // self._length))
        }
        for first in range(self._room.first, self._room.first + self._room.count, self._length):
            if first // self._length not in taken:
                return IdRange(first, self._length)
        raise UserNamespaceError("create user namespace: could not find an empty slot to allocate a user namespace")

    def ids(self, pod: core_v1.Pod) -> list[IDMapping]:
        """Return the mapping of a pod's IDs, the same for users and groups; none for one that is mapped to itself.

        Raise UserNamespaceError if it is not known: without a mapping the pod would have the node's users.
        """
        if pod.spec.host_users is not False:
            return []
        given = self._given.get(pod.metadata.uid or "")
        if given is None:
            raise UserNamespaceError(f"{_CANNOT}the IDs that the pod was given are not known")
        return [IDMapping(host_id=given.first, container_id=0, length=given.count)]


def options(ids: list[IDMapping]) -> UserNamespace:
    """Return the namespace option for a mapping; without one the pod has the node's users."""
    if not ids:
        return UserNamespace(mode=NamespaceMode.NODE)
    return UserNamespace(mode=NamespaceMode.POD, uids=ids, gids=ids)


def _write(folder: Path, ids: IdRange) -> None:
    given = [_Range(host_id=ids.first, container_id=0, length=ids.count)]
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    write_file(folder / FILE, msgspec.json.encode(_Mappings(given, given)), 0o600)
