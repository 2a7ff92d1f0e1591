"""Opens the storage engine of the configuration, with its compactor.

Only the modules of the configured engine are imported: grpc would be half of a small server's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from control.config import ControlConfig
from control.storage.compactor import Compactor
from control.storage.memory import MemoryStore
from control.storage.store import Store, StoreError
from kube.clock import Clock


class Engine(msgspec.Struct, frozen=True):
    """An open store, its compactor and its health checks."""

    store: Store
    compact: Callable[[], Coroutine[Any, Any, None]]
    """Runs compaction until cancelled."""
    shared: bool = False
    """True if other servers may use the store too."""
    check: Callable[[], str | None] = lambda: None
    """Returns why the engine does not work; None if it does."""
    check_disk: Callable[[], str | None] = lambda: None
    """Returns what cannot be read from or written to the disk; None if the disk works."""
    busy: Callable[[], bool] = lambda: False
    """Returns whether a call of the store has not returned yet, where that is known."""


class UnknownEngine(StoreError):
    """The configuration names an unknown engine."""


async def open_engine(config: ControlConfig, clock: Clock) -> Engine:
    """Open the configured engine, and create the folder of its data; raises Unavailable, Corrupt, UnknownEngine, OSError."""
    config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if config.store == "sqlite":
        from control.storage.sqlite import SqliteStore

        store = await SqliteStore.open(config.database, clock)
        return Engine(store, Compactor(store, clock).run, check_disk=store.check_disk, busy=store.busy)
    if config.store == "memory":
        return memory_engine(MemoryStore(clock), clock)
    if config.store != "etcd":
        raise UnknownEngine(f"store {config.store!r}: it is sqlite, etcd or memory")
    from control.storage.etcd.cluster import Tls
    from control.storage.etcd.compactor import EtcdCompactor
    from control.storage.etcd.store import EtcdStore

    tls = Tls(config.etcd_ca_file, config.etcd_cert_file, config.etcd_key_file)
    shared = await EtcdStore.open(config.etcd_servers, tls, config.etcd_prefix, clock)
    return Engine(shared, EtcdCompactor(shared, clock).run, True, shared.check)


def memory_engine(store: MemoryStore, clock: Clock) -> Engine:
    """Return the engine of a store in memory, which may have objects already."""
    return Engine(store, Compactor(store, clock).run)
