"""Configures this node whenever its Node object changes, and again until that succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kube.api import core_v1
from kube.clock import Clock
from kube.informer import Change, Informer
from kube.process import CommandError
from netproxy.errors import WriteError

log = logging.getLogger(__name__)
RETRY = 2.0
"""Seconds before another try to configure this node."""


class NodeController:
    """Calls `steps` in their order with the Node. `node` follows it."""

    def __init__(
        self, node: Informer[core_v1.Node], clock: Clock, *steps: Callable[[core_v1.Node], Awaitable[None]]
    ) -> None:
        self._node, self._clock, self._steps = node, clock, steps
        self._changed = asyncio.Event()
        node.subscribe(self._node_changed)

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        if change.type != "DELETED":
            self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                for node in self._node.list():
                    for step in self._steps:
                        await step(node)
            except (CommandError, WriteError, OSError) as error:
                log.error("this node is not set up yet: %s", error)
                await self._clock.sleep(RETRY)
                self._changed.set()
            except Exception:
                self._changed.set()  # for the next run
                raise
