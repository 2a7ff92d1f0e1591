"""Writes to etcd whose answer is lost: none is applied a second time, and what became of it is found out or called unknown."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from control.storage.etcd.store import EtcdStore
from control.storage.store import Event, KeyExists, KeyNotFound, RevisionConflict, Unavailable
from tests.support.etcd import etcd, needs_etcd, open_etcd
from tests.support.lossy_link import LossyLink, lossy_link

pytestmark = needs_etcd
T = TypeVar("T")


class Site:
    """A store behind a link that loses answers, another one that does not, and what happened since."""

    def __init__(self, lossy: EtcdStore, other: EtcdStore, link: LossyLink, start: int) -> None:
        self.lossy, self.other, self.link, self._start = lossy, other, link, start

    async def loses_the_answer_to(self, write: Awaitable[T]) -> asyncio.Future[T]:
        """Begin a write and return when etcd has answered it; the answer is lost and no connection left."""
        self.link.lose_answers()
        task = asyncio.ensure_future(write)
        await asyncio.wait_for(self.link.lost(), 10)
        await asyncio.sleep(0.05)
        self.link.cut()
        return task

    async def history(self, prefix: str = "/") -> list[Event]:
        """Return every event since the start of the keys with a prefix."""
        end, found = await self.other.current_revision(), list[Event]()
        async with contextlib.aclosing(self.other.watch(prefix, self._start)) as watch:
            watch.request_progress()
            async for batch in watch:
                found += batch.events
                if batch.revision >= end:
                    return found
        raise AssertionError("the watch ended")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with etcd(tmp_path / "etcd") as cluster, lossy_link(cluster.members[0].client_port) as link:
        lossy, other = await EtcdStore.open([f"http://127.0.0.1:{link.port}"]), await open_etcd(cluster)
        try:
            yield Site(lossy, other, link, await other.current_revision())
        finally:
            link.heal()
            await lossy.close()
            await other.close()


async def test_a_create_whose_answer_is_lost_is_acknowledged_when_its_key_is_found(site: Site) -> None:
    creating = await site.loses_the_answer_to(site.lossy.create("/a", b"1"))
    site.link.heal()
    item = await asyncio.wait_for(creating, 30)
    assert item == await site.other.get("/a")
    assert [event.type for event in await site.history("/a")] == ["ADDED"]


async def test_a_create_whose_answer_is_lost_does_not_bring_back_what_was_deleted_meanwhile(site: Site) -> None:
    creating = await site.loses_the_answer_to(site.lossy.create("/a", b"1"))
    created = await site.other.get("/a")
    await site.other.delete("/a")
    site.link.heal()
    assert await asyncio.wait_for(creating, 30) == created
    assert await site.other.get("/a") is None
    assert [event.type for event in await site.history("/a")] == ["ADDED", "DELETED"]


async def test_a_create_that_arrives_after_it_was_given_up_does_not_bring_back_what_was_deleted_meanwhile(
    site: Site,
) -> None:
    site.link.hold_requests()
    creating = asyncio.ensure_future(site.lossy.create("/a", b"1"))
    await asyncio.wait_for(site.link.held(), 10)
    site.link.cut()
    assert await asyncio.wait_for(creating, 30) == await site.other.get("/a")
    await site.other.delete("/a")
    await site.link.deliver()
    assert await site.other.get("/a") is None
    assert [event.type for event in await site.history("/a")] == ["ADDED", "DELETED"]


async def test_a_create_whose_answer_is_lost_is_acknowledged_as_created_where_somebody_has_changed_it_since(
    site: Site,
) -> None:
    creating = await site.loses_the_answer_to(site.lossy.create("/a", b"1"))
    found = await site.other.get("/a")
    assert found is not None
    await site.other.update("/a", b"2", found.revision)
    site.link.heal()
    assert await asyncio.wait_for(creating, 30) == found


async def test_a_create_whose_answer_is_lost_is_acknowledged_where_the_key_is_anothers_by_then(site: Site) -> None:
    creating = await site.loses_the_answer_to(site.lossy.create("/a", b"1"))
    found = await site.other.get("/a")
    await site.other.delete("/a")
    await site.other.create("/a", b"another's")
    site.link.heal()
    assert await asyncio.wait_for(creating, 30) == found
    assert [event.value for event in await site.history("/a") if event.type == "ADDED"] == [b"1", b"another's"]


async def test_a_create_of_what_is_there_is_refused_although_the_answer_is_lost(site: Site) -> None:
    await site.other.create("/a", b"another's")
    creating = await site.loses_the_answer_to(site.lossy.create("/a", b"1"))
    site.link.heal()
    with pytest.raises(KeyExists):
        await asyncio.wait_for(creating, 30)
    assert [event.value for event in await site.history("/a")] == [b"another's"]


async def test_a_create_whose_revision_is_compacted_has_an_unknown_outcome(site: Site) -> None:
    creating = await site.loses_the_answer_to(site.lossy.create("/a", b"1"))
    await site.other.delete("/a")
    await site.other.create("/b", b"1")
    await site.other.compact(await site.other.current_revision())
    site.link.heal()
    with pytest.raises(Unavailable, match="history"):
        await asyncio.wait_for(creating, 30)
    assert await site.other.get("/a") is None


@pytest.mark.parametrize("deleted", [False, True])
async def test_an_update_whose_answer_is_lost_is_acknowledged_whatever_others_did_since(
    site: Site, deleted: bool
) -> None:
    first = await site.other.create("/a", b"0")
    updating = await site.loses_the_answer_to(site.lossy.update("/a", b"1", first.revision))
    ours = await site.other.get("/a")
    assert ours is not None and ours.value == b"1"
    if deleted:
        await site.other.delete("/a")
    else:
        await site.other.update("/a", b"2", ours.revision)
    site.link.heal()
    assert await asyncio.wait_for(updating, 30) == ours


async def test_an_update_that_came_too_late_is_a_conflict_although_the_answer_is_lost(site: Site) -> None:
    first = await site.other.create("/a", b"0")
    await site.other.update("/a", b"2", first.revision)
    updating = await site.loses_the_answer_to(site.lossy.update("/a", b"1", first.revision))
    site.link.heal()
    with pytest.raises(RevisionConflict):
        await asyncio.wait_for(updating, 30)


@pytest.mark.parametrize("conditional", [True, False])
async def test_a_deletion_whose_answer_is_lost_does_not_delete_what_was_made_anew(
    site: Site, conditional: bool
) -> None:
    first = await site.other.create("/a", b"0")
    deleting = await site.loses_the_answer_to(site.lossy.delete("/a", first.revision if conditional else 0))
    again = await site.other.create("/a", b"anew")
    site.link.heal()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(deleting, 30)
    assert await site.other.get("/a") == again


async def test_while_answers_are_lost_every_write_is_applied_at_most_once_and_acknowledged_ones_are_there(
    site: Site,
) -> None:
    """Three writers over the link, somebody who deletes half of what comes to be, and a link that breaks again and again."""
    draw, stop = random.Random(7), asyncio.Event()
    acknowledged: dict[str, bytes] = {}
    deleted: set[str] = set()

    async def write(worker: int) -> None:
        index = 0
        while not stop.is_set():
            key, value = f"/w{worker}/{index:05}", f"{worker}.{index}".encode()
            index += 1
            # A conflict or a missing key is the deleter's doing, and only for the keys that it takes.
            with contextlib.suppress(Unavailable, KeyNotFound, RevisionConflict):
                item = await site.lossy.create(key, value)
                acknowledged[key] = value
                acknowledged[key] = (await site.lossy.update(key, value + b"+", item.revision)).value

    async def delete_some() -> None:
        async with contextlib.aclosing(site.other.watch("/w", await site.other.current_revision())) as watch:
            async for batch in watch:
                for event in batch.events:
                    if event.type == "ADDED" and int(event.key[-1]) % 2:
                        with contextlib.suppress(KeyNotFound, RevisionConflict):
                            await site.other.delete(event.key)
                            deleted.add(event.key)

    tasks = [asyncio.create_task(write(worker)) for worker in range(3)]
    deleting = asyncio.create_task(delete_some())
    for _ in range(8):
        await asyncio.sleep(draw.uniform(0.05, 0.2))
        site.link.lose_answers()
        await asyncio.sleep(draw.uniform(0.02, 0.1))
        site.link.heal()
    await asyncio.sleep(1)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    await asyncio.sleep(0.5)
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    events = await site.history("/w")
    added = [event.key for event in events if event.type == "ADDED"]
    assert len(added) == len(set(added)) > 20, "a create was applied twice"
    assert deleted, "nothing was deleted: the test shows nothing"
    present = {item.key: item.value for item in (await site.other.list("/w")).items}
    assert not present.keys() & deleted
    lost = {key for key, value in acknowledged.items() if key not in deleted and not present[key].startswith(value)}
    assert not lost


async def test_a_create_succeeds_at_another_member_when_its_own_hangs_and_once_also_when_that_goes_on(
    tmp_path: Path,
) -> None:
    async with etcd(tmp_path / "etcd", members=3) as cluster:
        store = await open_etcd(cluster)
        first = cluster.members[0].process
        assert first is not None
        start = await store.current_revision()
        try:
            first.send_signal(signal.SIGSTOP)
            items = await asyncio.wait_for(asyncio.gather(*(store.create(f"/k{n}", b"%d" % n) for n in range(20))), 30)
            await asyncio.gather(*(store.delete(item.key, item.revision) for item in items))
            first.send_signal(signal.SIGCONT)
            await cluster.wait_healthy(cluster.members[0])
            await asyncio.sleep(2)
            assert not (await store.list("/k")).items
            found, end = list[Event](), await store.current_revision()
            async with contextlib.aclosing(store.watch("/k", start)) as watch:
                watch.request_progress()
                async for batch in watch:
                    found += batch.events
                    if batch.revision >= end:
                        break
            assert sorted(event.type for event in found) == ["ADDED"] * 20 + ["DELETED"] * 20
        finally:
            first.send_signal(signal.SIGCONT)
            await store.close()
