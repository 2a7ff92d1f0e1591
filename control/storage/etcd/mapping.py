"""Maps keys and revisions of the store interface to etcd's.

Keys are equal except for the first folder, "/registry", which is configurable for clusters that share an etcd (upstream's
--etcd-prefix). The store's revisions are etcd's plus an offset. The offset is 0 unless the data comes from elsewhere (a
snapshot restored into a new etcd, a move from SQLite): clients know revisions from there, a new etcd starts at 1, and etcd
cannot skip revisions. The offset is set once, in an empty etcd (restore.py), and every server reads it when it opens the
store.
"""

from __future__ import annotations

from dataclasses import dataclass

from control.storage.etcd.messages import KeyValue
from control.storage.store import Item

ROOT = "/registry"
ALL_KEYS = (b"\0", b"\0")
"""The range of all keys that etcd has."""


@dataclass(frozen=True, slots=True)
class EtcdMapping:
    prefix: str = ROOT
    offset: int = 0

    @property
    def offset_key(self) -> bytes:
        """Key of the offset: outside of the prefix, one for each."""
        return f"wherry{self.prefix}/revision-offset".encode()

    def etcd_key(self, name: str) -> bytes:
        if self.prefix != ROOT and name.startswith(ROOT):
            name = self.prefix + name[len(ROOT) :]
        return name.encode()

    def store_key(self, key: bytes) -> str | None:
        """Return the contract's name of one of etcd's keys; None if it is none of ours."""
        try:
            text = key.decode()
        except UnicodeDecodeError:
            return None
        if self.prefix == ROOT:
            return text
        return ROOT + text[len(self.prefix) :] if text.startswith(self.prefix + "/") else None

    def key_range(self, prefix: str, start_after: str = "") -> tuple[bytes, bytes]:
        """Return the range of the keys with a prefix, after `start_after`."""
        first = self.etcd_key(prefix)
        last = first[:-1] + bytes([first[-1] + 1]) if first else b"\0"
        begin = self.etcd_key(start_after) + b"\0" if start_after else b""
        return max(first, begin) or b"\0", last

    def store_revision(self, etcd_revision: int) -> int:
        return etcd_revision + self.offset

    def etcd_revision(self, revision: int) -> int:
        """Return etcd's revision, which is less than 1 for what was before the data came here."""
        return revision - self.offset

    def item(self, kv: KeyValue, name: str) -> Item:
        return Item(name, kv.value, self.store_revision(kv.mod_revision), self.store_revision(kv.create_revision))
