"""Limit on the size that one more sandbox or container may add to the runtime's list, which has to fit into one message.

A runtime lists all it has in one message, of 16 MiB at most (gRPC's limit in containerd and here). If labels and annotations
of pods exceed it, the agent lists nothing of the node. So each new entry has a share of what is left of `LIST_BYTES`: it gets
smaller as the list grows, also by pods that have ended and are still listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message

from cri.channel import MESSAGE_BYTES

LIST_BYTES = MESSAGE_BYTES * 3 // 4
"""Bytes of a list up to which optional labels and annotations are passed."""
PAIR_BYTES = 32
"""Bytes that a pair counts beside its key and value: more than protobuf has, for a pair costs time also if it is short."""
ENTRY_BYTES = 1024
"""Bytes of an entry's other fields, until the next list: IDs, names, image, the agent's own labels and annotations."""
SANDBOX_BYTES, SANDBOX_PARTS = 64 << 10, 64
CONTAINER_BYTES, CONTAINER_PARTS = 4 << 10, 512
"""Largest share of an entry, and into how many parts what is left of the list is divided."""


class ListBudget:
    """The bytes of one of the runtime's lists: as it was listed last, and of what was created since then."""

    def __init__(self, most: int, parts: int) -> None:
        self._most, self._parts = most, parts
        self._used = 0

    def listed(self, entries: Iterable[Message]) -> None:
        """Measure a whole list."""
        self._used = sum(entry.ByteSize() for entry in entries)

    def created(self, *pairs: Mapping[str, str]) -> None:
        """Count an entry with these labels and annotations until the next list."""
        self._used += ENTRY_BYTES + sum(pair_bytes(key, text) for each in pairs for key, text in each.items())

    def share(self) -> int:
        """Return how many bytes of labels and annotations the next entry may have that the agent does not need."""
        return min(self._most, max(0, LIST_BYTES - self._used) // self._parts)


def pair_bytes(key: str, text: str) -> int:
    """Return the bytes of a label or annotation that count; characters of more than one byte count for that."""
    return PAIR_BYTES + sum(len(part) if part.isascii() else len(part.encode(errors="replace")) for part in (key, text))


def fitting(pairs: Mapping[str, str], share: int) -> tuple[dict[str, str], int]:
    """Return the pairs that fit into a share, in order, without those that do not; and what is left of the share."""
    kept: dict[str, str] = {}
    for key, text in pairs.items():
        size = pair_bytes(key, text)
        if size <= share:
            kept[key], share = text, share - size
    return kept, share
