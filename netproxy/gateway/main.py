"""A node's gateway as a process: informers, routes, listeners and connections to backends on one event loop.

It listens only once everything has been listed, so that a start does not answer 404 for routes that it does not know yet. A
kind that cannot be listed, for example because its definition was deleted, delays the start for a limited time.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Iterable
from functools import partial

from kube.api import discovery_v1
from kube.clock import SYSTEM, Clock
from kube.informer import Change, wait_listed
from kube.serving.daemon import daemon
from netproxy.endpoints import NodeView
from netproxy.gateway.api import Api, connected
from netproxy.gateway.application import GatewayApplication
from netproxy.gateway.backends import Backends
from netproxy.gateway.configuration import Configuration
from netproxy.gateway.forwarding import Forwarder
from netproxy.gateway.held_sockets import HeldSockets
from netproxy.gateway.limits import BACKENDS, CLIENTS
from netproxy.gateway.listening import Listening
from netproxy.gateway.own_addresses import OwnAddresses
from netproxy.gateway.pool import Pool
from netproxy.model import owner_of
from netproxy.tasks import Task, start

log = logging.getLogger(__name__)
GC_THRESHOLDS = (20_000, 20, 50)
"""The collector's thresholds: objects and routes are trees, which go by reference count. A search for cycles among 8000
conditions of routes takes 0.3 s with Python's defaults."""
LIST_SECONDS = 15.0
"""Time that the start waits for the first lists."""
DRAIN_SECONDS = 3.0
"""Time that requests have when the process ends."""
BEAT_SECONDS = 5.0
"""Seconds between two bytes to the network role, which ends a process that does not send them."""


@daemon
async def run(kubeconfig: str, node_name: str, clock: Clock = SYSTEM) -> None:
    """Serve until cancelled, or until the network role has ended."""
    gc.set_threshold(*GC_THRESHOLDS)
    async with connected(kubeconfig, node_name, clock) as api, asyncio.TaskGroup() as group:
        sockets = HeldSockets(socket.socket(fileno=sys.stdin.fileno()), clock)
        parent = group.create_task(_until_ended(sockets), name="network role")
        serving = group.create_task(_serve(api, node_name, sockets, clock), name="gateway")
        await asyncio.wait((parent, serving), return_when=asyncio.FIRST_COMPLETED)
        parent.cancel()
        serving.cancel()


async def _serve(api: Api, node_name: str, sockets: HeldSockets, clock: Clock) -> None:
    own = OwnAddresses(clock)
    await own.read()
    pool = Pool(BACKENDS)
    backends = Backends(api, lambda: own.addresses, NodeView(node_name))
    _forget_changes(api, backends)
    listening = Listening(GatewayApplication(Forwarder(pool, backends)), CLIENTS, sockets=sockets)
    configuration = Configuration(api, listening, clock)
    try:
        async with asyncio.TaskGroup() as group:
            start(group, _watches(api), clock)
            await sockets.wait_taken()
            for each in await wait_listed(api.informers, clock, LIST_SECONDS):
                log.warning("starting without %s: %s", each.kind.__name__, each.problem or "not listed yet")
            start(
                group,
                (
                    Task("gateway configuration", configuration.run),
                    Task("idle connections to backends", pool.run),
                    Task("own addresses", partial(own.run, backends.forget_all)),
                    Task("heartbeat", lambda: _beat(clock)),
                ),
                clock,
            )
    finally:
        await listening.close(DRAIN_SECONDS)


def _watches(api: Api) -> Iterable[Task]:
    return (Task(f"follow {each.kind.__name__}", each.run) for each in api.informers)


def _forget_changes(api: Api, backends: Backends) -> None:
    """Drop cached endpoints when their Services or slices change."""

    def slice_changed(change: Change[discovery_v1.EndpointSlice]) -> None:
        for each in (change.old, change.new):
            if each is not None and (owner := owner_of(each)):
                backends.forget(*owner.split("/", 1))

    api.objects.services.subscribe(lambda change: backends.forget(*change.key.split("/", 1)))
    api.slices.subscribe(slice_changed)


async def _beat(clock: Clock) -> None:
    while True:
        sys.stdout.write(".")
        sys.stdout.flush()
        await clock.sleep(BEAT_SECONDS)


async def _until_ended(sockets: HeldSockets) -> None:
    """Wait until the network role has closed its end of the channel, which is standard input here."""
    await sockets.parent_ended.wait()
