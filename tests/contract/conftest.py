"""Engines that the storage contract is run against: a new, empty store of each kind that can run here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, Gcm
from control.storage.sqlite import SqliteStore
from control.storage.store import Store

Opener = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "sqlite encrypted"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Return a function that opens the same store again (after closing the one before)."""
    opened: list[Store] = []

    async def opener() -> Store:
        store: Store = await SqliteStore.open(tmp_path / "state.db")
        if request.param.endswith("encrypted"):
            store = EncryptedStore(store, Encryption([("", [Gcm(b"k8s:enc:aesgcm:v1:k:", b"k" * 32)])]))
        opened.append(store)
        return store

    yield opener
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Opener) -> Store:
    return await open_store()
