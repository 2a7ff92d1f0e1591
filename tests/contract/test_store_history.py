"""A property of every engine: a list at a revision, and the watch from it, give the state at any later time.

Hypothesis makes up histories of writes, deletions, compactions and restarts; a model keeps what each revision looked like.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.storage.sqlite import SqliteStore
from control.storage.store import Compacted, Store
from tests.support.etcd import etcd, open_etcd

Opener = Callable[[], Awaitable[Store]]
KEYS = ["/a/1", "/a/2", "/a/21", "/b/1", "/ab/1"]
State = dict[str, tuple[bytes, int, int]]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.binary(max_size=3)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS), st.just(b"")),
        st.tuples(st.just("compact"), st.floats(0, 1), st.just(b"")),
        st.tuples(st.just("restart"), st.just(""), st.just(b"")),
    ),
    max_size=40,
)


async def play(opener: Opener, history: list[tuple[str, object, bytes]]) -> tuple[Store, dict[int, State], int]:
    """Carry out a history; return the store, the state after each revision, and the compacted revision."""
    store = await opener()
    state: State = {}
    states: dict[int, State] = {await store.current_revision(): {}}
    compacted = 0
    for verb, argument, value in history:
        if verb == "restart":
            await store.close()
            store = await opener()
        elif verb == "compact":
            revision = int(float(str(argument)) * max(states))
            if revision > compacted:
                await store.compact(revision)
                compacted = revision
        else:
            key = str(argument)
            before = state.get(key)
            if verb == "put":
                item = await (store.update(key, value, before[1]) if before else store.create(key, value))
                state = {**state, key: (value, item.revision, item.create_revision)}
            elif before:
                item = await store.delete(key, before[1])
                state = {k: v for k, v in state.items() if k != key}
            else:
                continue
            assert item.revision > max(states)
            states[item.revision] = state
    return store, states, compacted


async def state_at(store: Store, prefix: str, revision: int, page: int) -> State:
    found: State = {}
    after = ""
    while True:
        part = await store.list(prefix, revision=revision, start_after=after, limit=page)
        found |= {item.key: (item.value, item.revision, item.create_revision) for item in part.items}
        if not part.more:
            return found
        after = part.items[-1].key


async def check(opener: Opener, history: list[tuple[str, object, bytes]], page: int) -> None:
    store, states, compacted = await play(opener, history)
    try:
        newest = max(states)
        for start in sorted(states):
            for prefix in ("/", "/a/", "/a"):
                if start < max(compacted, 1):
                    if start:
                        try:
                            await store.list(prefix, revision=start)
                            raise AssertionError(f"revision {start} is readable after compaction at {compacted}")
                        except Compacted:
                            continue
                    continue
                state = await state_at(store, prefix, start, page)
                assert state == {k: v for k, v in states[start].items() if k.startswith(prefix)}
                async with aclosing(store.watch(prefix, start, previous=True)) as watch:
                    position = start
                    while position < newest:
                        watch.request_progress()
                        batch = await asyncio.wait_for(anext(watch), 30)
                        for event in batch.events:
                            assert event.revision > position
                            position = event.revision
                            old = state.pop(event.key, None)
                            before = event.previous
                            assert (before and (before.value, before.revision, before.create_revision)) == old
                            if event.type != "DELETED":
                                assert event.type == ("MODIFIED" if old else "ADDED")
                                state[event.key] = (event.value, event.revision, event.create_revision)
                            assert state == {k: v for k, v in states[position].items() if k.startswith(prefix)}
                        assert batch.revision >= position
                        position = batch.revision
                assert state == {k: v for k, v in states[newest].items() if k.startswith(prefix)}
    finally:
        await store.close()


async def check_sqlite(history: list[tuple[str, object, bytes]], page: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await check(lambda: SqliteStore.open(Path(folder) / "state.db"), history, page)


async def check_etcd(history: list[tuple[str, object, bytes]], page: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with etcd(Path(folder)) as cluster:
            await check(lambda: open_etcd(cluster), history, page)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(0, 4))
def test_a_list_at_any_revision_and_the_watch_from_it_equal_the_state_in_sqlite(
    history: list[tuple[str, object, bytes]], page: int
) -> None:
    asyncio.run(check_sqlite(history, page))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(0, 4))
def test_a_list_at_any_revision_and_the_watch_from_it_equal_the_state_in_etcd(
    history: list[tuple[str, object, bytes]], page: int
) -> None:
    asyncio.run(check_etcd(history, page))
