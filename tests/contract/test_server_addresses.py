"""The keys by which servers on one store say that they run, and the endpoints made of them, beside errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.server_tasks import server_addresses
from control.server_tasks.server_addresses import FOLDER, ServerAddresses
from control.storage.sqlite import SqliteStore
from control.storage.store import Item, Page
from kube import loops
from kube.clock import SYSTEM

OWN = "192.0.2.1"


class Endpoints:
    """Stands for the endpoints of the Service `kubernetes`; fails as often as it is set to."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.failures: list[Exception] = []

    async def endpoints(self, addresses: list[str]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.addresses = addresses


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "state.db")
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_addresses, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.05)


@contextlib.asynccontextmanager
async def among(store: Any, endpoints: Endpoints) -> AsyncIterator[asyncio.Task[None]]:
    work = ServerAddresses(store, endpoints, OWN, SYSTEM).run()  # type: ignore[arg-type]
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_endpoints(endpoints: Endpoints, wanted: list[str]) -> None:
    async with asyncio.timeout(10):
        while endpoints.addresses != wanted:
            await asyncio.sleep(0.01)


async def renewed_after(store: SqliteStore, item: Item | None) -> None:
    async with asyncio.timeout(10):
        while (found := await store.get(FOLDER + OWN)) is None or found == item:
            await asyncio.sleep(0.01)


async def test_an_unforeseen_error_does_not_end_the_work(store: SqliteStore) -> None:
    endpoints = Endpoints()
    endpoints.failures = [RuntimeError("a bug"), TypeError("another")]
    async with among(store, endpoints) as task:
        await until_endpoints(endpoints, [OWN])
        await renewed_after(store, await store.get(FOLDER + OWN))
        assert not task.done()
    assert await store.get(FOLDER + OWN) is None


async def test_the_key_is_renewed_while_the_endpoints_cannot_be_written(store: SqliteStore) -> None:
    endpoints = Endpoints()
    endpoints.failures = [RuntimeError("a bug")] * 1000
    async with among(store, endpoints):
        await renewed_after(store, None)
        for _ in range(5):
            await renewed_after(store, await store.get(FOLDER + OWN))


async def test_a_key_that_is_no_address_is_passed_over(store: SqliteStore) -> None:
    endpoints = Endpoints()
    await store.create(f"{FOLDER}not-an-address", b"{}")
    await store.create(f"{FOLDER}192.0.2.9", b"{}")
    async with among(store, endpoints):
        await until_endpoints(endpoints, [OWN, "192.0.2.9"])


async def test_a_store_whose_list_hangs_does_not_keep_the_key_from_being_renewed(store: SqliteStore) -> None:
    class Hanging:
        """A store that never answers a list."""

        get, create, update, delete = store.get, store.create, store.update, store.delete

        async def list(self, prefix: str) -> Page:
            await asyncio.Event().wait()
            raise AssertionError

    async with among(Hanging(), Endpoints()):
        await renewed_after(store, None)
        for _ in range(5):
            await renewed_after(store, await store.get(FOLDER + OWN))
