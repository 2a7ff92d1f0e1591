"""Engines that the storage contract is run against: a new, empty store of each kind that can run here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, Gcm
from control.storage.memory import MemoryStore
from control.storage.sqlite import SqliteStore
from control.storage.store import Store
from tests.support.etcd import Etcd, etcd, open_etcd

Opener = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "sqlite encrypted", "etcd", "etcd encrypted tls", "memory"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Return a function that opens the same store again (after closing the one before)."""
    if request.param == "memory" and "store" not in request.fixturenames:
        pytest.skip("what is in memory cannot be opened again")
    opened: list[Store] = []
    async with AsyncExitStack() as stack:
        cluster: Etcd | None = None
        if request.param.startswith("etcd"):
            cluster = await stack.enter_async_context(etcd(tmp_path / "etcd", tls=request.param.endswith("tls")))

        async def opener() -> Store:
            store: Store
            if cluster is not None:
                store = await open_etcd(cluster)
            elif request.param == "memory":
                store = MemoryStore()
            else:
                store = await SqliteStore.open(tmp_path / "state.db")
            if "encrypted" in request.param:
                store = EncryptedStore(store, Encryption([("", [Gcm(b"k8s:enc:aesgcm:v1:k:", b"k" * 32)])]))
            opened.append(store)
            return store

        yield opener
        for store in opened:
            await store.close()


@pytest.fixture
async def store(open_store: Opener) -> Store:
    return await open_store()
