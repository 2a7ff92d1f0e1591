"""Properties of the etcd engine: members that fail, several servers on one etcd, its keys as other clients see them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest

from control.registry.storing import storage_error
from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.etcd import watch
from control.storage.etcd.cluster import MAX_RESPONSE_BYTES, Tls
from control.storage.etcd.compactor import COMPACT_KEY, EtcdCompactor
from control.storage.etcd.messages import RangeResponse, StatusRequest, StatusResponse, WatchResponse
from control.storage.etcd.store import EtcdStore
from control.storage.store import Compacted, Item, KeyExists, NoSpace, RevisionConflict, Store, StoreError, Unavailable
from tests.support.clock import FakeClock
from tests.support.etcd import Etcd, etcd, needs_etcd, needs_etcdctl, open_etcd

pytestmark = needs_etcd
PODS = "/registry/pods/"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Etcd]:
    async with etcd(tmp_path / "etcd") as one:
        yield one


@pytest.fixture
async def store(cluster: Etcd) -> AsyncIterator[EtcdStore]:
    opened = await open_etcd(cluster)
    yield opened
    await opened.close()


class History:
    """Follows a store in the background and notes every event."""

    def __init__(self, store: Store, after: int) -> None:
        self.revisions: list[int] = []
        self.state: dict[str, bytes] = {}
        self._store, self._after = store, after
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async with aclosing(self._store.watch("/", self._after)) as watch:
            async for batch in watch:
                for event in batch.events:
                    self.revisions.append(event.revision)
                    if event.type == "DELETED":
                        del self.state[event.key]
                    else:
                        self.state[event.key] = event.value

    async def reached(self, revision: int) -> None:
        async with asyncio.timeout(30):
            while not self.revisions or self.revisions[-1] < revision:
                assert not self._task.done(), self._task
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def write_steadily(store: Store, worker: int, acknowledged: list[Item], stop: asyncio.Event) -> None:
    """Create keys one after the other; a write without an answer is looked up, as a client would."""
    index = 0
    while not stop.is_set():
        key = f"/w{worker}/{index:05}"
        try:
            acknowledged.append(await store.create(key, f"{worker}.{index}".encode()))
        except Unavailable:
            continue  # the same key again: KeyExists shows that it had been stored
        except KeyExists as error:
            assert error.current is not None and error.current.value == f"{worker}.{index}".encode()
            acknowledged.append(error.current)
        index += 1


async def more_than(acknowledged: list[Item], count: int) -> None:
    async with asyncio.timeout(60):
        while len(acknowledged) <= count:
            await asyncio.sleep(0.02)


# -- members die ------------------------------------------------------------------------------------------------------
async def test_a_killed_etcd_comes_back_and_watches_go_on_without_gap_or_duplicate(
    cluster: Etcd, store: EtcdStore
) -> None:
    history, stop = History(store, await store.current_revision()), asyncio.Event()
    acknowledged: list[Item] = []
    async with asyncio.TaskGroup() as group:
        for worker in range(4):
            group.create_task(write_steadily(store, worker, acknowledged, stop))
        for _ in range(3):
            await more_than(acknowledged, len(acknowledged) + 100)
            cluster.members[0].kill()
            cluster.members[0].start()
            await cluster.wait_healthy(cluster.members[0])
        await more_than(acknowledged, len(acknowledged) + 100)
        stop.set()
    await history.reached(max(item.revision for item in acknowledged))
    await history.close()
    present = {item.key: item.value for item in (await store.list("/")).items}
    assert history.revisions == sorted(set(history.revisions))
    assert history.state == present
    assert {item.key: item.value for item in acknowledged} == present


async def test_writes_go_on_when_one_member_of_three_is_lost(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd", members=3) as cluster:
        store = await open_etcd(cluster)
        history, stop = History(store, await store.current_revision()), asyncio.Event()
        acknowledged: list[Item] = []
        try:
            async with asyncio.TaskGroup() as group:
                for worker in range(4):
                    group.create_task(write_steadily(store, worker, acknowledged, stop))
                for member in cluster.members:  # one after the other, so that the leader is among them
                    await more_than(acknowledged, len(acknowledged) + 50)
                    member.kill()
                    await more_than(acknowledged, len(acknowledged) + 50)
                    member.start()
                    await cluster.wait_healthy(member)
                stop.set()
            await history.reached(max(item.revision for item in acknowledged))
            present = {item.key: item.value for item in (await store.list("/")).items}
            assert history.revisions == sorted(set(history.revisions))
            assert history.state == present == {item.key: item.value for item in acknowledged}
            assert len({item.revision for item in acknowledged}) == len(acknowledged)
        finally:
            await history.close()
            await store.close()


async def test_a_store_without_any_member_reports_it_and_serves_again_when_one_is_back(
    cluster: Etcd, store: EtcdStore
) -> None:
    item = await store.create("/a", b"1")
    cluster.members[0].kill()
    with pytest.raises(Unavailable, match="etcd"):
        await store.cluster.call("/etcdserverpb.Maintenance/Status", StatusRequest(), StatusResponse, deadline=0.5)
    cluster.members[0].start()
    await cluster.wait_healthy(cluster.members[0])
    assert await store.get("/a") == item


async def test_an_etcd_that_requires_certificates_refuses_a_client_without_one(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd", tls=True) as cluster:
        with pytest.raises(Unavailable):
            store = await EtcdStore.open(cluster.servers, Tls(cluster.ca_file))
            await store.close()
        missing = Tls(cluster.directory / "no-such-file")
        with pytest.raises(Unavailable, match="no-such-file"):
            await EtcdStore.open(cluster.servers, missing)


# -- several servers --------------------------------------------------------------------------------------------------
async def test_a_server_reads_at_once_what_another_one_wrote(cluster: Etcd, store: EtcdStore) -> None:
    other = await open_etcd(cluster)
    cache = WatchCache(other)
    pods = cache.resource(PODS, "Pod", "v1")
    running = asyncio.create_task(cache.run())
    try:
        await cache.wait_ready()
        for index in range(50):
            item = await store.create(f"{PODS}default/p{index}", codec.encode({"metadata": {"name": f"p{index}"}}))
            assert await cache.wait_current() >= item.revision
            assert pods.get(item.key) is not None
        # Also where the newest revision is of a key that no cache knows.
        foreign = await store.create("/elsewhere", b"1")
        assert await cache.wait_current() >= foreign.revision
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await other.close()


async def test_of_two_servers_writing_at_one_revision_one_wins(cluster: Etcd, store: EtcdStore) -> None:
    other = await open_etcd(cluster)
    first = await store.create("/k", b"0")
    results = await asyncio.gather(
        store.update("/k", b"1", first.revision), other.update("/k", b"2", first.revision), return_exceptions=True
    )
    assert sorted(type(result) for result in results if isinstance(result, Exception)) == [RevisionConflict]
    await other.close()


async def test_history_is_compacted_once_an_interval_by_whichever_server_comes_first(store: EtcdStore) -> None:
    clocks = [FakeClock(), FakeClock()]
    tasks = [asyncio.create_task(EtcdCompactor(store, clock).run()) for clock in clocks]

    async def mark() -> Item:
        async with asyncio.timeout(30):
            while (kv := await store.get(COMPACT_KEY)) is None or kv.revision in marks:
                await asyncio.sleep(0.01)
        marks.append(kv.revision)
        return kv

    marks: list[int] = []
    try:
        await mark()
        for _ in range(3):
            before = await store.create("/a", b"1")
            await store.delete("/a")
            for clock in clocks:
                await clock.sleeping()
                await clock.advance(300)
            kv = await mark()
            await asyncio.sleep(0.2)
            assert (await store.get(COMPACT_KEY)) == kv, "two servers compacted in one interval"
        # What was written in the interval before the last one is forgotten, the last one's is not.
        assert 0 < await store.compacted_revision() <= before.revision
        with pytest.raises(Compacted):
            await store.list("/", revision=marks[0])
        assert (await store.list("/", revision=before.revision)).items
    finally:
        for task in tasks:
            task.cancel()


# -- what others see --------------------------------------------------------------------------------------------------
@needs_etcdctl
async def test_etcdctl_shows_an_object_under_upstreams_key(cluster: Etcd, store: EtcdStore) -> None:
    obj = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "nginx", "namespace": "default"}}
    await store.create("/registry/deployments/default/nginx", codec.encode(obj))
    shown = cluster.etcdctl("get", "/registry/deployments/default/nginx", "--print-value-only")
    assert json.loads(shown)["metadata"]["name"] == "nginx"


@needs_etcdctl
async def test_a_page_of_large_objects_ends_before_it_is_too_large(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, keys = list[int](), [f"{PODS}default/{number:03}" for number in range(60)]
    for number, key in enumerate(keys):
        await store.create(key, b"x" * ((1 << 20) if 20 <= number < 45 else 10))
    original = RangeResponse.FromString

    def read(data: bytes) -> RangeResponse:
        sizes.append(len(data))
        return original(data)

    monkeypatch.setattr(store.cluster, "_calls", [{}])
    monkeypatch.setattr("control.storage.etcd.kv.RangeResponse", SimpleNamespace(FromString=read))
    page = await store.list(PODS, limit=500)
    found, at = list(page.items), page.revision
    assert len(found) < 60 and page.more and page.remaining == 60 - len(found)
    await store.create(f"{PODS}default/0", b"later")
    while page.more:
        page = await store.list(PODS, at, found[-1].key, 500)
        found += page.items
        assert page.remaining == 60 - len(found) and page.revision == at
    assert [item.key for item in found] == keys
    everything = await store.list(PODS, revision=at)
    assert [item.key for item in everything.items] == keys and everything.revision == at and not everything.more
    assert max(sizes) <= MAX_RESPONSE_BYTES and sum(sizes) < 3 * 60 << 20
    assert len((await store.list(PODS, at, keys[49], 7)).items) == 7
    assert await store.lifetimes(PODS) == {}


async def test_clusters_with_prefixes_of_their_own_share_an_etcd(cluster: Etcd, store: EtcdStore) -> None:
    other = await open_etcd(cluster, "/clusters/b")
    try:
        await store.create(PODS + "default/a", b"1")
        item = await other.create(PODS + "default/a", b"2")
        assert cluster.etcdctl("get", "/clusters/b/pods/default/a", "--print-value-only").strip() == "2"
        assert [i.value for i in (await other.list(PODS)).items] == [b"2"]
        async with aclosing(other.watch("/registry/", item.revision)) as watch:
            await store.create(PODS + "default/b", b"1")
            await other.create(PODS + "default/c", b"2")
            seen: list[str] = []
            while not seen:
                seen += [event.key for event in (await asyncio.wait_for(anext(watch), 30)).events]
        assert seen == [PODS + "default/c"]
    finally:
        await other.close()


@needs_etcdctl
async def test_events_written_close_together_hang_on_one_lease(cluster: Etcd, store: EtcdStore) -> None:
    for index in range(10):
        await store.create(f"/registry/events/default/e{index}", b"1", ttl=3600)
    await store.create("/registry/events/default/short", b"1", ttl=60)
    assert cluster.etcdctl("lease", "list").splitlines()[0] == "found 2 leases"


def test_a_server_on_sqlite_does_not_carry_grpc() -> None:
    modules = "sys, control.assembly.api_server, control.main, wherry.roles, wherry.control_settings"
    program = f"import {modules}; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_a_watch_that_meets_what_nobody_foresaw_raises_and_is_not_silent(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await store.create("/registry/a", b"1")
    async with aclosing(store.watch("/registry/", item.revision - 1)) as watch:
        monkeypatch.setattr(watch, "_append", lambda answer: 1 // 0)
        with pytest.raises(Unavailable, match="failed: "):
            await asyncio.wait_for(anext(watch), 10)


@pytest.mark.parametrize("change", ["update", "delete"])
async def test_a_replay_ends_if_the_states_before_its_changes_are_compacted_meanwhile(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    item = await store.create("/registry/a", b"1")
    await (store.update(item.key, b"2", item.revision) if change == "update" else store.delete(item.key))
    async with aclosing(store.watch("/registry/", item.revision, previous=True)) as watch:
        append = watch._append

        async def without_previous(response: WatchResponse) -> None:
            """etcd reads the states before when it sends; those that it cannot read are left out."""
            for event in response.events:
                event.ClearField("prev_kv")
            await append(response)

        monkeypatch.setattr(watch, "_append", without_previous)
        with pytest.raises(Compacted):
            await asyncio.wait_for(anext(watch), 10)


async def test_a_watch_that_was_left_while_it_was_being_opened_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "OPEN_SECONDS", 0.5)
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, and is no etcd
    silent.setblocking(False)
    port = silent.getsockname()[1]
    async with etcd(tmp_path / "etcd", tls=True) as cluster:
        proof = Tls(cluster.ca_file, cluster.cert_file, cluster.key_file)
        store = await EtcdStore.open([cluster.servers[0], f"https://127.0.0.1:{port}"], proof)
        await goes_on(store, silent)


async def goes_on(store: EtcdStore, silent: socket.socket) -> None:
    try:
        history = History(store, await store.current_revision())
        await asyncio.sleep(0)
        store.cluster.fail_over(0, "the test says so")  # the watch is opened at the silent one
        async with asyncio.timeout(30):
            taken, _ = await asyncio.get_running_loop().sock_accept(silent)
            store.cluster.fail_over(1, "the test says so")  # and is left again while it connects
            made = await store.create(PODS + "default/a", b"1")
            while made.revision not in history.revisions:
                await asyncio.sleep(0.02)
        await history.close()
        taken.close()
    finally:
        await store.close()
        silent.close()


async def test_an_etcd_without_space_refuses_writes_in_its_words_and_is_read_and_deleted_from(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd", quota=1 << 20) as cluster:
        store = await open_etcd(cluster)
        written: list[Item] = []
        refusal: StoreError | None = None
        while refusal is None:
            try:
                written.append(await store.create(f"/k{len(written)}", b"x" * 200_000))
            except StoreError as error:
                refusal = error
        assert isinstance(refusal, NoSpace) and str(refusal) == "etcdserver: mvcc: database space exceeded"
        refused = storage_error(refusal)
        assert (refused.code, refused.reason, refused.message) == (500, "", str(refusal))
        with pytest.raises(NoSpace):
            await store.update("/k0", b"x" * 200_000, written[0].revision)
        assert {item.key for item in (await store.list("/")).items} == {item.key for item in written}
        await store.delete("/k0")
        assert await store.get("/k0") is None
        await store.close()


async def test_of_writes_that_meet_the_end_of_the_space_those_that_are_stored_are_acknowledged(tmp_path: Path) -> None:
    """etcd carries out the write that takes it past its quota, and refuses it: writes beside each other show that."""
    async with etcd(tmp_path / "etcd", quota=1 << 20) as cluster:
        store = await open_etcd(cluster)
        old = [await store.create(f"/old{number}", b"") for number in range(400)]
        acknowledged, refused, after = set[str](), 0, 0
        wave = -1
        while (
            after < 20
        ):  # etcd knows its size when it has committed, ten times a second: however many waves that takes
            wave += 1
            after += refused > 0
            writes = [store.update(item.key, b"x" * 60_000, item.revision) for item in old[wave * 2 : wave * 2 + 2]]
            writes += [store.create(f"/new{wave}-{number}", b"x" * 60_000) for number in range(2)]
            answers = await asyncio.gather(*writes, return_exceptions=True)
            assert all(isinstance(answer, Item | NoSpace) for answer in answers), answers
            acknowledged |= {answer.key for answer in answers if isinstance(answer, Item)}
            refused += sum(isinstance(answer, NoSpace) for answer in answers)
        assert refused
        assert acknowledged == {item.key for item in (await store.list("/")).items if item.value}
        await store.close()
