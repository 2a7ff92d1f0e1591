"""Entries of a listing's pages, and the listing that a watch cache starts with."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from control.event_loop.pacing import SLICE_BYTES
from control.storage import codec, loading
from control.storage.cache import WatchCache
from control.storage.loading import Loading
from control.storage.resource_cache import ResourceCache
from control.storage.store import Item
from kube.nesting import is_deep
from tests.unit.control.storage.conftest import NODES, PODS, Bench, make_bench, pod

STORED = codec.encode(pod("a"))


def loaded(*items: Item) -> Loading:
    found = Loading("Pod", "v1", lambda obj: {})
    found.add(items)
    return found


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(STORED, id="as stored by this server"),
        pytest.param(codec.with_revision(STORED, 99), id="with a revision"),
        pytest.param(codec.encode({**pod("a"), "apiVersion": "v2"}), id="in another version"),
        pytest.param(b'{"metadata":{"name":"a"},"apiVersion":"v1","kind":"Pod"}', id="in another order"),
        pytest.param(STORED.replace(b'"resourceVersion":"",', b""), id="without a place for the revision"),
    ],
)
def test_values_get_their_revision_whatever_their_layout(value: bytes) -> None:
    (entry,) = loaded(Item(f"{PODS}default/a", value, 7, 3)).entries.values()
    assert entry.data == codec.with_revision(value, 7)
    assert entry.obj["metadata"] == {**codec.decode(value)["metadata"], "resourceVersion": "7"}
    assert (entry.key, entry.revision) == (f"{PODS}default/a", 7)


def test_damaged_and_encrypted_values_are_no_entries_and_the_latter_are_reported() -> None:
    damaged, encrypted = Item("/a", b"\x00k8s", 1, 1), Item("/b", b"", 2, 2, "no key")
    found = loaded(damaged, encrypted, Item("/c", STORED, 3, 3))
    assert list(found.entries) == ["/c"]
    assert found.unreadable == {"/b": (2, "no key")}


async def test_a_cache_starts_with_all_objects_of_its_resources_over_many_pages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.storage.loading.PAGE", 7)
    for n in range(20):
        await bench.store.create(f"{PODS}default/p{n:02}", codec.encode(pod(f"p{n:02}")))
        await bench.store.create(f"/registry/unknown/u{n:02}", b"{}")
        await bench.store.create(f"{NODES}n{n:02}", codec.encode({"kind": "Node", "apiVersion": "v1"}))
    await bench.start()
    assert [entry.key for entry in bench.pods.list().entries] == [f"{PODS}default/p{n:02}" for n in range(20)]
    assert len(bench.nodes) == 20


class Steps:
    """Bytes of stored values that are loaded in each iteration of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes, self._iteration = Counter[int](), 0
        monkeypatch.setattr(loading, "is_deep", self._checked)

    def _checked(self, value: bytes) -> bool:
        self.sizes[self._iteration] += len(value)
        return is_deep(value)

    def next(self) -> None:
        self._iteration += 1
        asyncio.get_running_loop().call_soon(self.next)


@pytest.mark.parametrize(("objects", "size"), [(12, 80_000), (3, SLICE_BYTES + 1), (3 * loading.STEP_ITEMS, 1)])
async def test_resources_are_loaded_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objects: int, size: int
) -> None:
    bench, folder = await make_bench(tmp_path / "state.db"), "/registry/x.io/widgets/"
    for number in range(objects):
        for prefix, kind, version in ((PODS, "Pod", "v1"), (folder, "Widget", "x.io/v1")):
            value = {"kind": kind, "apiVersion": version, "metadata": {"name": "a"}, "spec": "x" * size}
            await bench.store.create(f"{prefix}default/{number}", codec.encode(value))
    steps = Steps(monkeypatch)
    steps.next()
    try:
        await bench.start()
        widgets = await bench.cache.add_resource(folder, "Widget", "x.io/v1")
        assert len(bench.pods) == len(widgets) == objects
    finally:
        await bench.stop()
    assert steps.sizes.total() >= 2 * objects * size
    assert max(steps.sizes.values()) <= max(SLICE_BYTES, size + 1000)
    assert len(steps.sizes) >= 2 * 3


async def test_a_change_during_each_step_of_loading_is_neither_lost_nor_older_than_the_listing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, original = "/registry/x.io/widgets/", Loading.add
    value = codec.encode({"kind": "Widget", "apiVersion": "x.io/v1", "metadata": {"name": "a"}})
    items = [await bench.store.create(f"{folder}default/{number}", value) for number in range(5)]
    await bench.cache.wait_fresh(items[-1].revision)

    async def change(items: Sequence[Item]) -> None:
        for item in items:
            original(changing, [item])
            changed = await bench.store.update(item.key, value, item.revision)
            await bench.cache.wait_fresh(changed.revision)

    changing = Loading("Widget", "x.io/v1", lambda obj: {})
    monkeypatch.setattr(changing, "add_page", change)
    monkeypatch.setattr(ResourceCache, "loading", lambda self: changing)
    widgets = await bench.cache.add_resource(folder, "Widget", "x.io/v1")
    assert [entry.revision > items[-1].revision for entry in widgets.list().entries] == [True] * 5


async def test_objects_that_were_listed_before_the_rule_for_fields_changed_follow_the_new_one(bench: Bench) -> None:
    listed = bench.pods.loading()
    listed.add([Item(f"{PODS}default/a", STORED, 1, 1)])
    assert "spec.nodeName" in listed.entries[f"{PODS}default/a"].fields
    bench.pods.renew(lambda obj: {"metadata.uid": "u"})
    bench.pods.load(listed, 1)
    found = bench.pods.get(f"{PODS}default/a")
    assert found is not None
    assert found.fields.keys() == {"metadata.name", "metadata.namespace", "metadata.uid"}


async def test_the_first_listing_does_not_count_what_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    original = bench.store.list

    async def list_(*args: Any, **options: Any) -> Any:
        asked.append(options)
        return await original(*args, **options)

    monkeypatch.setattr(bench.store, "list", list_)
    cache = WatchCache(bench.store)
    cache.resource(PODS, "Pod", "v1")
    await cache._load()
    assert asked == [{"counted": False}]
