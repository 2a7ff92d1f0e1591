"""The control plane's process: store, watch cache, API server, and the embedded components, on one event loop.

Start: open the store, fill the cache, create the objects that every cluster has, listen, notify readiness. A thread checks the
database while the server's modules are imported: each takes some tenths of a second. Stop (SIGTERM or cancellation): report
not ready, stop accepting connections, end the watches, complete requests in flight, close the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable

from control.config import ControlConfig
from control.storage.engine import open_engine
from kube.clock import SYSTEM, Clock
from kube.collecting import short_full_collections, uncollected
from kube.serving.daemon import daemon

log = logging.getLogger(__name__)

COLLECT = (20_000, 10, 2)
"""The collector's thresholds. Objects here are trees, which go by reference count; looking for cycles as often as
Python does by default costs a tenth of all time. A full collection follows two of young objects (400 000 at the most), so that
it has few objects to go through (`kube.collecting.short_full_collections`)."""


@daemon
async def run(
    config: ControlConfig,
    *,
    ready: Callable[[], None] = lambda: None,
    clock: Clock = SYSTEM,
    stop: asyncio.Event | None = None,
) -> None:
    """Run until SIGTERM, SIGINT or `stop`; `ready` is called once the server serves and everything else has started.

    Raises BackgroundFailed if a part that the server cannot do without has died.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.set)
    gc.set_threshold(*COLLECT)
    opening = asyncio.create_task(open_engine(config, clock), name="opening the store")
    await asyncio.sleep(0)  # its thread begins
    with uncollected():
        from control.assembly.api_server import ApiServer

    async with ApiServer.open(config, clock, opening) as server:
        with short_full_collections():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work, name=name) for name, work in server.embedded_components()]
                # No garbage: `ready` may collect, and to go through 50 000 objects would block the first requests for 70 ms.
                gc.freeze()
                ready()
                await server.background.until(stop.wait())
                log.info("stopping")
                await server.drain()
                for task in tasks:
                    task.cancel()


def main(config: ControlConfig) -> None:
    """Run on uvloop until SIGTERM."""
    import uvloop

    uvloop.run(run(config))
