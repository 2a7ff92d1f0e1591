"""Entries of a listing's pages, and the listing that a watch cache starts with."""

from __future__ import annotations

from typing import Any

import pytest

from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.loading import Loading
from control.storage.store import Item
from tests.unit.control.storage.conftest import NODES, PODS, Bench, pod

STORED = codec.encode(pod("a"))


def loaded(*items: Item) -> Loading:
    loading = Loading("Pod", "v1", lambda obj: {})
    loading.add(items)
    return loading


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
    loading = loaded(damaged, encrypted, Item("/c", STORED, 3, 3))
    assert list(loading.entries) == ["/c"]
    assert loading.unreadable == {"/b": (2, "no key")}


async def test_a_cache_starts_with_all_objects_of_its_resources_over_many_pages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.storage.cache.PAGE", 7)
    for n in range(20):
        await bench.store.create(f"{PODS}default/p{n:02}", codec.encode(pod(f"p{n:02}")))
        await bench.store.create(f"/registry/unknown/u{n:02}", b"{}")
        await bench.store.create(f"{NODES}n{n:02}", codec.encode({"kind": "Node", "apiVersion": "v1"}))
    await bench.start()
    assert [entry.key for entry in bench.pods.list().entries] == [f"{PODS}default/p{n:02}" for n in range(20)]
    assert len(bench.nodes) == 20


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
