"""Pods that wait for an object which a volume or a container's environment names: they are woken when one changes.

The informers start with the first such pod: most clusters have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock
from kube.informer import Change, Informer
from kube.loops import Loops

KINDS: tuple[type[Any], ...] = (core_v1.ConfigMap, core_v1.Secret, core_v1.PersistentVolumeClaim)


class MissingObjects:
    """Keys of the pods that wait. `wake` is called with a key when an object of the pod's namespace has changed."""

    def __init__(self, client: Client, clock: Clock, wake: Callable[[str], None]) -> None:
        self._client, self._clock, self._wake = client, clock, wake
        self._waiting: dict[str, set[str]] = {}
        """By namespace."""
        self._following: list[asyncio.Task[None]] = []

    def add(self, key: str, group: asyncio.TaskGroup, loops: Loops) -> None:
        """Wake this pod at changes from now on."""
        self._waiting.setdefault(key.partition("/")[0], set()).add(key)
        if not self._following:
            self._following = [group.create_task(self._follow(kind, loops)) for kind in KINDS]

    def discard(self, key: str) -> None:
        """Wake this pod no more."""
        namespace = key.partition("/")[0]
        if (waiting := self._waiting.get(namespace)) is not None:
            waiting.discard(key)
            if not waiting:
                del self._waiting[namespace]

    async def _follow(self, kind: type[Any], loops: Loops) -> None:
        informer: Informer[Any] = Informer(self._client, kind, clock=self._clock)
        informer.subscribe(self._changed)
        await loops.run(f"{kind.__name__} objects of waiting pods", informer.run)

    def _changed(self, change: Change[Any]) -> None:
        for key in sorted(self._waiting.get(change.new.metadata.namespace or "", ())):
            self._wake(key)
