"""Objects that change all the time, for reads and watches: ConfigMaps whose labels, values and finalizers users change."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from kube.client import Client
from kube.errors import StatusError
from simulation.history import History
from simulation.writes import Writes

NAMESPACES = ("default", "shop", "batch")
NAMES = ("one", "two", "three")
COLOURS = ("red", "blue")
FINALIZER = "simulation.example/hold"


def path_of(namespace: str, name: str = "") -> str:
    """Return the path of a register, or of their collection."""
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


class Writer:
    """Writes a register now and then, about one each `pause` seconds."""

    def __init__(self, client: Client, rng: random.Random, history: History, pause: float) -> None:
        self._writes, self._rng, self._pause = Writes(client, history), rng, pause
        self._number = 0
        self.until = float("inf")

    async def run(self) -> None:
        """Write until the time is over; then remove all finalizers."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.until:
            with contextlib.suppress(StatusError):  # refused, or nobody knows
                await self._write()
            await asyncio.sleep(self._rng.expovariate(1 / self._pause))
        for namespace in NAMESPACES:
            for name in NAMES:
                await self._release(namespace, name)

    async def _write(self) -> None:
        namespace, name = self._rng.choice(NAMESPACES), self._rng.choice(NAMES)
        path, self._number = path_of(namespace, name), self._number + 1
        labels, data = {"colour": self._rng.choice(COLOURS)}, {"number": str(self._number)}
        action = self._rng.choice(("change", "change", "label", "label", "delete", "hold", "release", "release"))
        changes: dict[str, dict[str, Any]] = {
            "change": {"data": data},
            "label": {"metadata": {"labels": labels}},
            "hold": {"metadata": {"finalizers": [FINALIZER]}},
            "release": {"metadata": {"finalizers": None}},
        }
        try:
            if action == "delete":
                await self._writes.send("DELETE", path, None)
            else:
                await self._writes.send("PATCH", path, changes[action])
        except StatusError as error:
            if error.code != 404:
                raise
            metadata: dict[str, Any] = {"name": name, "labels": labels}
            body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}
            await self._writes.send("POST", path_of(namespace), body)

    async def _release(self, namespace: str, name: str) -> None:
        while True:
            try:
                await self._writes.send("PATCH", path_of(namespace, name), {"metadata": {"finalizers": None}})
                return
            except StatusError as error:
                if error.code in (404, 422):
                    return
            await asyncio.sleep(5)
