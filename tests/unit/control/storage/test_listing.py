from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from control import pacing
from control.storage import codec, listing
from control.storage.entry import Entry
from control.storage.listing import Listing, decode_token, encode_token, list_objects, parse_revision
from kube.errors import StatusError

from .conftest import PODS, Bench, pod
from .test_cache import is_web


def names(listing: Listing) -> list[str]:
    return [entry.key.rpartition("/")[2] for entry in listing.entries]


async def listed(bench: Bench, **options: Any) -> Listing:
    return await list_objects(bench.cache, bench.pods, PODS, **options)


async def fill(bench: Bench, count: int) -> None:
    for i in range(count):
        await bench.create(pod(f"p{i}", labels={"app": "web" if i % 2 else "db"}))


async def test_pages_show_the_state_of_the_first_page_through_later_changes(bench: Bench) -> None:
    await fill(bench, 7)
    first = await listed(bench, limit=3)
    assert names(first) == ["p0", "p1", "p2"] and first.remaining == 4
    await bench.delete("p3")
    await bench.create(pod("p35"))
    second = await listed(bench, limit=3, continue_token=first.continue_token)
    assert names(second) == ["p3", "p4", "p5"] and second.remaining == 1
    assert second.revision == first.revision
    third = await listed(bench, limit=3, continue_token=second.continue_token)
    assert names(third) == ["p6"] and third.remaining is None and not third.continue_token


async def test_a_page_shows_no_change_that_comes_while_the_store_is_asked_whether_it_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(bench, 4)
    first = await listed(bench, limit=2)
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}
    written = await bench.store.create("/registry/minions/n", json.dumps(node).encode())
    await bench.cache.wait_fresh(written.revision)  # so that the page is one of the past, though no pod has changed
    compacted = bench.store.compacted_revision

    async def meanwhile() -> int:
        found = await compacted()
        await bench.create(pod("p9"))
        await bench.delete("p2")
        return found

    monkeypatch.setattr(bench.store, "compacted_revision", meanwhile)
    second = await listed(bench, limit=9, continue_token=first.continue_token)
    assert names(second) == ["p2", "p3"] and second.revision == first.revision


async def test_pages_with_a_selector_are_full_and_do_not_say_how_many_are_left(bench: Bench) -> None:
    await fill(bench, 9)
    first = await listed(bench, limit=2, predicate=is_web)
    assert names(first) == ["p1", "p3"] and first.remaining is None
    await bench.create(pod("p4a", labels={"app": "web"}))
    second = await listed(bench, limit=2, predicate=is_web, continue_token=first.continue_token)
    assert names(second) == ["p5", "p7"] and not second.continue_token


@pytest.mark.parametrize("selected", [False, True])
async def test_a_page_of_large_old_states_ends_early_and_the_next_one_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, selected: bool
) -> None:
    await fill(bench, 9)
    predicate = is_web if selected else None
    expected = [f"p{n}" for n in range(9) if n % 2 or not selected]
    version = str(bench.cache.revision)
    await bench.delete("p5")  # from now on the state is one of the past
    size = len(codec.encode(pod("p0", labels={"app": "web"})))
    monkeypatch.setattr(listing, "PAGE_BYTES", 2 * size)
    found = await listed(bench, limit=8, predicate=predicate, resource_version=version, match="Exact")
    seen = names(found)
    while found.continue_token:
        assert len(names(found)) <= 3
        assert found.remaining == (None if selected else 9 - len(seen))
        found = await listed(bench, limit=8, predicate=predicate, continue_token=found.continue_token)
        assert str(found.revision) == version
        seen += names(found)
    assert seen == expected
    assert names(await listed(bench, resource_version=version, match="Exact", predicate=predicate)) == expected


async def test_an_expired_token_says_gone_and_offers_to_go_on_inconsistently(bench: Bench) -> None:
    await fill(bench, 4)
    first = await listed(bench, limit=2)
    item = await bench.create(pod("p9"))
    await bench.store.compact(item.revision)
    with pytest.raises(StatusError) as caught:
        await listed(bench, limit=2, continue_token=first.continue_token)
    status = caught.value.to_status()
    assert (status["code"], status["reason"]) == (410, "Expired")
    rest = await listed(bench, continue_token=status["metadata"]["continue"])
    assert names(rest) == ["p2", "p3", "p9"] and rest.revision == bench.cache.revision


async def test_exact_shows_that_revision_and_other_matches_what_is_not_older(bench: Bench) -> None:
    first = await bench.create(pod("a"))
    await bench.create(pod("b"))
    version = str(first.revision)
    assert names(await listed(bench, resource_version=version, match="Exact")) == ["a"]
    assert names(await listed(bench, resource_version=version, limit=10)) == ["a"]
    assert names(await listed(bench, resource_version=version, match="NotOlderThan")) == ["a", "b"]
    assert names(await listed(bench, resource_version=version)) == ["a", "b"]
    assert names(await listed(bench, resource_version="0", limit=1)) == ["a", "b"]


async def test_exact_after_compaction_is_gone(bench: Bench) -> None:
    first = await bench.create(pod("a"))
    second = await bench.create(pod("b"))
    await bench.store.compact(second.revision)
    with pytest.raises(StatusError) as caught:
        await listed(bench, resource_version=str(first.revision), match="Exact")
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


async def test_a_revision_ahead_of_the_server_times_out_as_too_large(bench: Bench) -> None:
    with pytest.raises(StatusError) as caught:
        await listed(bench, resource_version="99999", match="Exact")
    assert (caught.value.code, caught.value.reason) == (504, "Timeout")
    assert caught.value.message == f"Timeout: Too large resource version: 99999, current: {bench.cache.revision}"
    assert caught.value.details["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_one_object_is_listed_by_its_key_at_a_revision_too(bench: Bench) -> None:
    item = await bench.create(pod("a"))
    await bench.create(pod("ab"))
    await bench.update(pod("a", labels={"x": "y"}))
    for at in ({}, {"resource_version": str(item.revision), "match": "Exact"}):
        listing = await list_objects(bench.cache, bench.pods, PODS + "default/a", **at)  # type: ignore[arg-type]
        assert names(listing) == ["a"]


def test_a_token_has_upstreams_form() -> None:
    token = encode_token(7, "default/nginx")
    assert "=" not in token
    decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert decoded == {"v": "meta.k8s.io/v1", "rv": 7, "start": "default/nginx\0"}
    assert decode_token(token) == (7, "default/nginx")


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '{"v":"v2","rv":1,"start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":0,"start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":"1","start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":1,"start":""}',
        '{"v":"meta.k8s.io/v1","rv":1,"start":"/../secrets/a"}',
        '{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}',
    ],
)
def test_tokens_that_were_made_up_are_refused(content: str) -> None:
    token = base64.urlsafe_b64encode(content.encode()).decode()
    with pytest.raises(StatusError) as caught:
        decode_token(token)
    assert caught.value.code == 400 and caught.value.message.startswith("continue key is not valid")
    with pytest.raises(StatusError):
        decode_token("%%%")


@pytest.mark.parametrize("text", ["1" * 5000, str(1 << 64), "0" * 5000 + str(1 << 64)])
def test_a_revision_past_64_bits_is_a_bad_request(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_revision(text)
    assert caught.value.code == 400 and str(caught.value).endswith("value out of range")


def test_revisions_up_to_64_bits_are_read() -> None:
    assert [parse_revision(text) for text in ("", "0", "0" * 5000 + "7", str((1 << 64) - 1))] == [
        0,
        0,
        7,
        (1 << 64) - 1,
    ]


@pytest.mark.parametrize("options", [{}, {"limit": 3}, {"limit": 4}, {"limit": 5}, {"resource_version": "0"}])
async def test_a_costly_selector_lists_the_same_pages(bench: Bench, options: dict[str, Any]) -> None:
    await fill(bench, 9)
    cheap = await listed(bench, predicate=is_web, **options)
    costly = await listed(bench, predicate=is_web, costly=True, **options)
    assert costly == cheap and names(cheap)
    if cheap.continue_token:
        options["continue_token"] = cheap.continue_token
        more = await listed(bench, predicate=is_web, costly=True, **options)
        assert more == await listed(bench, predicate=is_web, **options)
        await bench.create(pod("p9"))  # the page is read from the store
        later = await listed(bench, predicate=is_web, costly=True, **options)
        assert names(later) == names(more) and later.revision == more.revision


async def test_others_have_their_turns_while_a_costly_selector_is_compared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(bench, 20)
    seconds, rounds, seen = [0.0], [0], set[int]()

    def costs_a_millisecond(entry: Entry) -> bool:
        seconds[0] += 0.001
        seen.add(rounds[0])
        return True

    def next_round() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(next_round)

    monkeypatch.setattr(pacing.time, "perf_counter", lambda: seconds[0])
    next_round()
    assert len(names(await listed(bench, predicate=costs_a_millisecond, costly=True))) == 20
    assert len(seen) >= 10
