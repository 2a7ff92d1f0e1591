"""A disk that gives blocks back no more (EIO): an error with a reason, never an empty answer, until it does again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from control.storage import reader, writer
from control.storage.sqlite import SqliteStore
from control.storage.store import Unavailable
from tests.support.control import ApiUnderTest, api_server
from tests.support.failing_reads import FailingReads, failing_reads

LARGE, NUMBER = b"x" * 20_000, 300
"""Together more than SQLite keeps in memory."""
MAPS = "/api/v1/namespaces/default/configmaps"
HEAD = 8192
"""The first pages are in memory as long as a connection is."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reader, writer):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)


async def filled(path: Path) -> SqliteStore:
    """Return a store whose values are in the database file and not in memory."""
    store = await SqliteStore.open(path)
    await asyncio.gather(*(store.create(f"/a/{number:03}", LARGE) for number in range(NUMBER)))
    await store.close()
    return await SqliteStore.open(path)


async def until_well(look: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(30):
        while not await look():
            await asyncio.sleep(0.02)


async def test_reads_of_bad_blocks_fail_and_succeed_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with failing_reads(path) as disk:
        store = await filled(path)
        last = await store.current_revision()
        disk.on, disk.first = True, HEAD
        reads: list[Callable[[], Awaitable[object]]] = [
            lambda: store.list("/a/"),
            lambda: store.list("/a/", limit=5),
            lambda: store.list("/a/", revision=last - 1),
            lambda: store.get("/a/100"),
            lambda: store.get("/nowhere"),
            lambda: anext(store.watch("/a/", 1)),
            lambda: anext(store.watch("/a/", last - 1, previous=True)),
        ]
        for read in reads:
            with pytest.raises(Unavailable, match="storage cannot be read"):
                await read()
        assert disk.failed >= len(reads)
        assert "storage cannot be read" in (store.check_disk() or "")
        disk.on = False

        async def well() -> bool:
            return store.check_disk() is None

        await until_well(well)
        assert len((await store.list("/a/")).items) == NUMBER
        assert await store.get("/nowhere") is None
        reported = 0
        async with contextlib.aclosing(store.watch("/a/", 0)) as watch:
            while reported < NUMBER:  # in batches of some MiB
                reported += len((await anext(watch)).events)
        assert reported == NUMBER
        await store.close()


async def test_a_write_that_has_to_read_a_bad_block_fails_alone_and_is_done_later(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with failing_reads(path) as disk:
        store = await filled(path)
        last = await store.current_revision()
        disk.on, disk.first = True, HEAD
        with pytest.raises(Unavailable):  # the answer to a deletion has the last state in it
            await store.delete("/a/100")
        assert store.check_disk()
        disk.on = False

        async def deleted() -> bool:
            try:
                return (await store.delete("/a/100")).value == LARGE
            except Unavailable:
                return False

        await until_well(deleted)
        assert store.check_disk() is None
        found = await store.list("/a/")
        assert len(found.items) == NUMBER - 1 and found.revision > last
        await store.close()


@pytest.mark.parametrize("first", [0, HEAD])
async def test_a_database_that_cannot_be_read_at_the_start_is_not_called_damaged(tmp_path: Path, first: int) -> None:
    """An administrator who learns that it is damaged restores a snapshot, and loses what was written since."""
    path = tmp_path / "state.db"
    with failing_reads(path) as disk:
        await (await filled(path)).close()
        disk.on, disk.first = True, first
        with pytest.raises(Unavailable):
            await SqliteStore.open(path)
        disk.on = False
        store = await SqliteStore.open(path)
        assert len((await store.list("/a/")).items) == NUMBER
        await store.close()


async def refusals(api: ApiUnderTest, disk: FailingReads, old: str) -> None:
    """Ask for what is only on the disk: a list and a watch at an old revision."""
    exact = f"{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact&limit=500"
    answer = await api.request("GET", exact)
    assert (answer.status, answer.json["kind"], answer.json["reason"]) == (500, "Status", "InternalError"), answer.json
    assert "storage cannot be read" in answer.json["message"]
    watched = await api.request("GET", f"{MAPS}?watch=1&resourceVersion={old}&timeoutSeconds=5")
    text = watched.body.decode()
    assert "storage cannot be read" in text and '"code":500' in text.replace(" ", ""), (watched.status, text)
    assert disk.failed


async def test_the_api_returns_an_error_and_is_not_ready(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        old = (await api.request("GET", MAPS)).json["metadata"]["resourceVersion"]
        for number in range(NUMBER):
            body = {"metadata": {"name": f"m{number}"}, "data": {"text": LARGE.decode()}}
            assert (await api.request("POST", MAPS, body)).status == 201
        database = api.api.config.database
    with failing_reads(database) as disk:
        async with api_server(tmp_path) as api:  # its cache does not have what was before it
            disk.on, disk.first = True, HEAD
            await refusals(api, disk, old)
            readiness = await api.request("GET", "/readyz?verbose=true")
            assert readiness.status == 500 and b"[-]etcd-readiness failed" in readiness.body
            assert (await api.request("GET", "/livez")).status == 200
            cached = (await api.request("GET", MAPS)).json["items"]
            assert len(cached) > NUMBER - 1, "what is in memory is answered"
            disk.on = False

            async def ready() -> bool:
                return (await api.request("GET", "/readyz")).status == 200

            await until_well(ready)
            created = await api.request("POST", MAPS, {"metadata": {"name": "after"}})
            assert created.status == 201
