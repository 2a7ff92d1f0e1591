"""Entries: what is kept of decoded views, by whoever makes them and whoever has them forgotten."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from control.storage.entry import Entry, _Recent


class _Interrupted(deque[Any]):
    """Lets another thread work between a look at the length and what follows it."""

    other: threading.Thread
    looks = 0

    def __len__(self) -> int:
        length = super().__len__()
        self.looks += 1
        if self.looks == 2:  # whether there are any, and whether there are too many
            self.other.start()
            self.other.join(0.2)  # over at once, or waiting for this thread
        return length


def test_entries_may_be_forgotten_by_one_thread_while_another_drops_them() -> None:
    dropped = list[Entry]()
    recent = _Recent(dropped.append, lambda: (1, 1 << 20))
    entries = [Entry(f"/{number}", 1, b"{}", lambda obj: {}) for number in range(2)]
    recent.add(entries[0], 2)
    interrupted = _Interrupted([(entries[0], 2)])
    interrupted.other = threading.Thread(target=recent.forget)
    recent._entries = interrupted
    recent.forget()
    interrupted.other.join()
    assert dropped == [entries[0]]
    recent.add(entries[1], 2)
    recent.add(entries[0], 2)
    assert dropped == entries
