"""A folder's list is shared until an object changes, and the joined items of the latest lists are cached with it."""

from __future__ import annotations

import gc

import pytest

from control.storage import folder_list
from control.storage.entry import Entry
from control.storage.folder_list import FolderList
from kube import bounded_cache
from tests.unit.control.storage.conftest import PODS, Bench, pod


async def test_lists_of_an_unchanged_folder_are_one(bench: Bench) -> None:
    for name in ("a", "b"):
        await bench.create(pod(name))
    first = bench.pods.list(PODS).entries
    assert bench.pods.list(PODS).entries is first and [entry.key for entry in first] == [
        f"{PODS}default/{n}" for n in "ab"
    ]
    assert len(bench.pods.list(PODS, limit=1).entries) == 1
    assert list(bench.pods.list(PODS, start_after=f"{PODS}default/a").entries) == [first[1]]


async def test_each_change_ends_a_list(bench: Bench) -> None:
    await bench.create(pod("a"))
    seen = [bench.pods.list(PODS).entries]
    await bench.create(pod("b"))
    seen.append(bench.pods.list(PODS).entries)
    await bench.update(pod("a", labels={"app": "db"}))
    seen.append(bench.pods.list(PODS).entries)
    await bench.delete("a")
    seen.append(bench.pods.list(PODS).entries)
    assert [len(entries) for entries in seen] == [1, 2, 2, 1]
    assert [entries[0].labels for entries in seen[1:3]] == [{}, {"app": "db"}]


async def test_another_folder_has_another_list(bench: Bench) -> None:
    await bench.create(pod("a"))
    everywhere, one = bench.pods.list(PODS), bench.pods.list(f"{PODS}other/")
    assert len(everywhere.entries) == 1 and not one.entries
    assert len(bench.pods.list(PODS).entries) == 1


def test_items_are_cached_for_one_form_of_the_latest_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_list, "KEPT_BYTES", 100)
    lists = [FolderList([Entry("a", 1, b"{}", lambda obj: {})]) for _ in range(3)]
    for each in lists:
        assert each.items(b"t") is None
        each.cache_items(b"t", b"x" * 40)
    assert [each.items(b"t") for each in lists] == [None, b"x" * 40, b"x" * 40]
    assert lists[2].items(b"other") is None
    bounded_cache.forget_all()
    assert lists[2].items(b"t") is None


async def test_the_latest_lists_hold_no_objects_that_are_gone(bench: Bench) -> None:
    await bench.create(pod("gone"))
    entries = bench.pods.list(PODS).entries
    assert isinstance(entries, FolderList)
    entries.cache_items(b"t", b"items")
    del entries
    await bench.delete("gone")
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, FolderList) and any("gone" in e.key for e in each)]
    assert not held


async def test_a_list_that_ended_caches_nothing(bench: Bench) -> None:
    await bench.create(pod("a"))
    entries = bench.pods.list(PODS).entries
    assert isinstance(entries, FolderList)
    await bench.create(pod("b"))
    entries.cache_items(b"t", b"items")
    assert entries.items(b"t") is None
