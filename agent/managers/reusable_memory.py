"""Memory that ended init containers leave to the containers after them in their pod.

What is used again is recorded for the later container alone, so the blocks of the earlier ones shrink, the oldest first
(pkg/kubelet/cm/memorymanager/policy_static.go: updateInitContainersMemoryBlocks). A block that is used up is not read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from agent.managers.memory_state import Block


class ReusableMemory:
    """Memory of one pod, by NUMA nodes (a mask) and kind."""

    def __init__(self) -> None:
        self._bytes: dict[int, dict[str, int]] = {}
        self._blocks: dict[tuple[int, str], deque[Block]] = {}

    def on(self, mask: int) -> Mapping[str, int]:
        """Return the bytes that are left on exactly these nodes, by kind."""
        return self._bytes.get(mask, {})

    def take(self, mask: int, kind: str, most: int) -> int:
        """Take bytes from the blocks that have some left; return how many there were, at most so many."""
        taken = left = min(self.on(mask).get(kind, 0), most)
        if not taken:
            return 0
        self._bytes[mask][kind] -= taken
        blocks = self._blocks[mask, kind]
        while left:
            part = min(blocks[0].size, left)
            blocks[0].size, left = blocks[0].size - part, left - part
            if not blocks[0].size:
                blocks.popleft()
        return taken

    def leave(self, mask: int, block: Block) -> None:
        """Have a block there for the next containers."""
        kinds = self._bytes.setdefault(mask, {})
        kinds[block.type] = kinds.get(block.type, 0) + block.size
        self._blocks.setdefault((mask, block.type), deque()).append(block)


NOTHING = ReusableMemory()
"""That of a pod whose init containers left none."""
