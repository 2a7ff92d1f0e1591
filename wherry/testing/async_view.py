"""The asyncio interface of a cluster that runs in a thread: any event loop can await its methods."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from wherry.testing.cluster import Cluster
from wherry.testing.pods import Pods


class AsyncView:
    """Has the methods of `AsyncCluster`, which run on the cluster's own event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def pods(self) -> Pods:
        """Control of simulated pods; its methods do not wait for anything."""
        return self._cluster.pods

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster.running, name)
        return self._awaitable(found) if inspect.iscoroutinefunction(found) else found

    def _awaitable(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: Any, **options: Any) -> Any:
            return await asyncio.wrap_future(self._cluster.submit(method(*arguments, **options)))

        return called
