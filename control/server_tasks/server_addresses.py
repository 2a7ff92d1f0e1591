"""Endpoints of the Service `kubernetes`: the API servers that share a store.

Like upstream's servers, each has a key `/registry/masterleases/<address>` with a time to live of 15 s, which it writes every
10 s; the endpoints are the addresses with a key. A server that stops deletes its key; one that crashes is removed from the
endpoints within 25 s. Key and endpoints are maintained by separate loops, so errors of the endpoints do not let the key
expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging

from control.server_tasks.bootstrap import Bootstrap
from control.storage import codec
from control.storage.store import KeyExists, KeyNotFound, RevisionConflict, Store, StoreError
from kube.clock import Clock
from kube.errors import StatusError
from kube.loops import Loops

log = logging.getLogger(__name__)

FOLDER = "/registry/masterleases/"
TTL_SECONDS = 15
RENEW_SECONDS = 10.0


class ServerAddresses:
    """Maintains one server's key and, together with the other servers, the endpoints."""

    def __init__(self, store: Store, bootstrap: Bootstrap, address: str, clock: Clock) -> None:
        self._store, self._bootstrap, self._address, self._clock = store, bootstrap, address, clock
        self._present = asyncio.Event()
        self.loops = Loops(clock)

    async def run(self) -> None:
        """Maintain key and endpoints until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in (("this server's key", self._keep_key), ("the servers' endpoints", self._follow)):
                    group.create_task(self.loops.run(name, work), name=name)
        finally:
            # The store is closed after this task has ended; a server that is left without it has 15 s.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await self._store.delete(FOLDER + self._address)
                    await self._reconcile()

    async def _keep_key(self) -> None:
        while True:
            try:
                await self._renew()
                self._present.set()
            except (StoreError, StatusError) as error:
                log.warning("this server's key will be renewed again: %s", error)
            await self._clock.sleep(RENEW_SECONDS)

    async def _follow(self) -> None:
        await self._present.wait()  # or the endpoints would lack this server until the next turn
        while True:
            try:
                await self._reconcile()
            except (StoreError, StatusError) as error:
                log.warning("updating the servers' addresses failed and will be retried: %s", error)
            await self._clock.sleep(RENEW_SECONDS)

    async def _renew(self) -> None:
        key = FOLDER + self._address
        subset = {"addresses": [{"ip": self._address}]}
        value = codec.encode({"kind": "Endpoints", "apiVersion": "v1", "metadata": {}, "subsets": [subset]})
        while True:
            found = await self._store.get(key)
            try:
                if found is None:
                    await self._store.create(key, value, TTL_SECONDS)
                else:
                    await self._store.update(key, value, found.revision, TTL_SECONDS)
                return
            except (KeyExists, KeyNotFound, RevisionConflict):
                continue

    async def _reconcile(self) -> None:
        present = {item.key.removeprefix(FOLDER) for item in (await self._store.list(FOLDER)).items}
        found = sorted(address for text in present if (address := _address(text)) is not None)
        if found:
            await self._bootstrap.endpoints([text for _, text in found])


def _address(text: str) -> tuple[int, str] | None:
    """Return an address with its sort key; None if the key is not an address."""
    try:
        return int(ipaddress.ip_address(text)), text
    except ValueError:
        log.warning("%s%s is no server's key: %r is no address", FOLDER, text, text)
        return None
