"""Entries: decoded views that are cached, and those that are evicted."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from control.event_loop.pacing import TimeSlice
from control.storage.entry import Entry, Recent
from control.storage.selection import select_entries


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
    recent = Recent(dropped.append, lambda: (1, 1 << 20))
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


def _named(size: int) -> Entry:
    data = b'{"metadata":{"name":"a","labels":{"b":"c"}},"data":"%b"}' % (b"d" * size)
    return Entry("/a", 1, data, lambda obj: {"data": str(len(obj["data"]))})


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize(("first", "second"), [("labels", "fields"), ("fields", "labels")])
def test_an_entry_is_unread_until_both_kinds_of_selectors_have_compared_it(size: int, first: str, second: str) -> None:
    entry = _named(size)
    assert entry.unread == len(entry.data)
    getattr(entry, first)
    if entry._obj is None:
        assert entry.unread == len(entry.data)
    getattr(entry, second)
    assert entry.unread == 0


async def test_a_selector_of_the_other_kind_takes_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, turns = [_named(200_000) for _ in range(20)], list[int]()
    original = TimeSlice.turn

    async def turn(self: TimeSlice, size: int = 0) -> None:
        turns.append(size)
        await original(self, size)

    monkeypatch.setattr(TimeSlice, "turn", turn)
    await select_entries(entries, lambda entry: entry.labels == {"b": "c"}, costly=False)
    assert len(turns) >= 10
    turns.clear()
    found, _ = await select_entries(entries, lambda entry: entry.fields["data"] == "200000", costly=False)
    assert len(turns) >= 10 and found == entries


def test_a_view_that_another_thread_drops_meanwhile_is_read_once() -> None:
    class Dropped(Entry):
        """Has its decoded view dropped by another thread after each look at it."""

        __slots__ = ()

        @property
        def _obj(self) -> Any:
            found, view = Entry._obj.__get__(self), Entry._obj  # type: ignore[attr-defined]
            view.__set__(self, None)
            return found

        @_obj.setter
        def _obj(self, value: Any) -> None:
            Entry._obj.__set__(self, value)  # type: ignore[attr-defined]

    entry = Dropped("/a", 1, _named(10).data, lambda obj: {})
    for read in (entry.head, entry.parts):
        entry._obj = {"metadata": {"name": "a", "labels": {"b": "c"}}, "data": ""}
        read()
    entry._obj = {"metadata": {"name": "a"}}
    assert entry.head().name == "a" and entry._obj is None
