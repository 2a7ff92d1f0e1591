from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from control.event_loop import pacing
from control.storage import codec, listing
from control.storage.entry import Entry
from control.storage.listing import Listing, decode_token, encode_token, list_objects, parse_revision
from kube.errors import StatusError

from .conftest import PODS, Bench, make_bench, pod
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


async def test_a_page_contains_no_change_that_is_written_during_the_check_of_the_store(
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


async def test_pages_with_a_selector_are_full_and_omit_the_remaining_count(bench: Bench) -> None:
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


async def test_an_expired_continue_token_is_410_with_an_inconsistent_one(bench: Bench) -> None:
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
        '{"v":"meta.k8s.io/v1","rv":true,"start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":1.0,"start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":-9223372036854775809,"start":"a"}',
        '{"v":"meta.k8s.io/v1","rv":1,"start":"\\ud800"}',
        "[" * 30_000,
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


async def test_a_token_may_start_after_any_character_of_utf_8(bench: Bench) -> None:
    await fill(bench, 2)
    for revision in (-7, -1, bench.cache.revision, 1):
        for start in ("\ue000", "default/p0\ue000", "\0", "\x01", "\U00010000", "\ud7ff"):
            code, found = await continued(bench, {"v": "meta.k8s.io/v1", "rv": revision, "start": start})
            assert code == 200
            if revision != 1:
                assert found == [name for name in ("p0", "p1") if f"default/{name}" > start]


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 63, 1 << 64, 10**40, -(10**40)]),
    st.floats(),
    st.text(max_size=6),
    st.text("/.a\0\ue000\ud7ff\U0010ffff\U00010000", max_size=6),
    st.lists(st.integers(), max_size=2),
)
_TOKENS = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=40),
    st.fixed_dictionaries(
        {"v": st.sampled_from(["meta.k8s.io/v1", "v2", 1]), "rv": _VALUES, "start": _VALUES}, optional={"x": _VALUES}
    ),
    st.fixed_dictionaries(
        {
            "v": st.just("meta.k8s.io/v1"),
            "rv": st.integers(-2, 9),
            "start": st.builds(str.__add__, st.text(max_size=3), st.sampled_from("a\0\x01\ud7ff\ue000\U00010000")),
        }
    ),
)


@pytest.mark.parametrize("compacted", [False, True])
def test_every_token_is_continued_or_refused(tmp_path: Path, compacted: bool) -> None:
    """504 is for revisions that the server has not reached."""
    with asyncio.Runner() as runner:
        bench = runner.run(make_bench(tmp_path / "state.db"))
        runner.run(bench.start())
        runner.run(fill(bench, 4))
        if compacted:
            runner.run(bench.store.compact(bench.cache.revision - 1))

        @given(token=_TOKENS, limit=st.sampled_from([0, 1]))
        @example(token={"v": "meta.k8s.io/v1", "rv": 1, "start": "\ue000"}, limit=0)
        @settings(deadline=None)
        def check(token: Any, limit: int) -> None:
            code, _ = runner.run(continued(bench, token, limit=limit))
            assert code in (200, 400, 410, 504)

        try:
            check()
        finally:
            runner.run(bench.stop())


async def continued(bench: Bench, token: Any, **options: Any) -> tuple[int, list[str]]:
    """Return the code and names of a list that continues at a token: text, bytes of base64, or the content of JSON."""
    if not isinstance(token, str):
        raw = token if isinstance(token, bytes) else json.dumps(token).encode()
        token = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    try:
        return 200, names(await listed(bench, continue_token=token or "A", **options))
    except StatusError as error:
        error.to_status()
        return error.code, []


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
