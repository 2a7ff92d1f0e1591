"""Starts what a cluster for tests consists of: the API server with controllers and scheduler, and simulated nodes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from control.assembly.api_server import ApiServer
from control.auth.user import UserInfo
from control.config import ControlConfig
from control.dialing.node_dialer import NodeDialer
from control.interfaces.local_nodes import LocalNodes
from control.storage.engine import Engine as StoreEngine
from control.storage.engine import memory_engine
from control.storage.memory import MemoryStore
from kube import pki_layout
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.collecting import seldom_collected
from kube.files import write_file
from kube.node_names import NODE_PREFIX, NODES_GROUP
from wherry.testing import default_objects
from wherry.testing.kubeconfig import ADMIN, kubeconfig_text
from wherry.testing.kubelet.dialer import KubeletDialer
from wherry.testing.nodes.handlers import Handlers
from wherry.testing.nodes.nodes import SimulatedNodes
from wherry.testing.nodes.references import CachedReferences
from wherry.testing.nodes.scripts import Scripts

if TYPE_CHECKING:
    from wherry.testing.saving.cluster_state import ClusterState

COLLECT = (5_000, 10, 10)
"""Thresholds of the garbage collector: Python's own take a tenth of all time, a control plane's keep ended clusters."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder in it has a random name and mode 0700
COMPONENTS = ("control.controllers.manager", "control.scheduler.main", "control.scheduler.configuration")
"""Modules that the API server imports in a thread when it has served for a moment; here the first start waits for them."""


def import_components() -> None:
    """Import the components, whose import by the server would be idle time in virtual time."""
    for each in COMPONENTS:
        importlib.import_module(each)


class Engine(msgspec.Struct):
    """A running cluster."""

    api: ApiServer
    store: MemoryStore
    keys: pki_layout.ClusterPKI
    folder: Path
    scripts: Scripts
    handlers: Handlers
    nodes: SimulatedNodes
    client: Client
    """Acts as the administrator, in this process."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.api.listener.port}"

    def kubeconfig(self) -> Path:
        """Write the administrator's kubeconfig, unless it is there, and return its path."""
        path = self.folder / "kubeconfig"
        if not path.exists():
            write_file(path, self.kubeconfig_text().encode(), 0o600)
        return path

    def kubeconfig_text(self) -> str:
        """Return a kubeconfig of the administrator, with certificates and key in it."""
        # It is checked by the cluster's time here, and by the machine's in TLS.
        return kubeconfig_text(self.url, self.keys, min(datetime.now(UTC), self.api.clock.now()))


@contextlib.asynccontextmanager
async def engine(
    nodes: int, clock: Clock = SYSTEM, *, port: int = 0, state: ClusterState | None = None
) -> AsyncIterator[Engine]:
    """Run a cluster with so many new nodes, in a temporary folder, until the block is left. Port 0 is a free one.

    `state` is that of a file: the cluster begins with its objects, keys and nodes.
    """
    with seldom_collected(*COLLECT), tempfile.TemporaryDirectory(prefix="wherry-testing-", dir=_memory()) as name:
        folder = Path(name)
        store = MemoryStore(clock)
        if state is not None:
            state.write_keys(folder / "pki")
            state.load_objects(store)
        else:
            default_objects.load(store, clock.now())
        # Not in a thread, which would write on into the folder when the start is interrupted.
        keys = pki_layout.ensure(folder / "pki", now=datetime.now(UTC), hosts=("127.0.0.1",))
        config, handlers = config_of(folder, port), Handlers()
        kubelets = KubeletDialer(NodeDialer(config), handlers, clock)
        async with ApiServer.open(config, clock, opened(store, clock), dialer=kubelets) as api:
            local = LocalNodes()
            components = [asyncio.create_task(work, name=name) for name, work in api.embedded_components(local)]
            scripts = Scripts()
            client, references = api.client(ADMIN, "wherry.testing"), CachedReferences(api.registry)
            simulated = SimulatedNodes(client, partial(_node_client, api), clock, scripts, references, local)
            kubelets.serve(simulated)
            components.append(asyncio.create_task(simulated.run(), name="simulated nodes"))
            try:
                if state is not None:
                    await state.load_nodes(simulated, scripts)
                await asyncio.gather(*(simulated.add() for _ in range(nodes)))
                yield Engine(api, store, keys, folder, scripts, handlers, simulated, client)
            finally:
                await kubelets.close()
                for task in components:
                    task.cancel()
                await asyncio.gather(*components, return_exceptions=True)


def _node_client(api: ApiServer, node: str) -> Client:
    """Return a client that acts as a node's kubelet."""
    return api.client(UserInfo(NODE_PREFIX + node, groups=(NODES_GROUP,)), f"kubelet/{node}")


async def opened(store: MemoryStore, clock: Clock) -> StoreEngine:
    """Open a store of objects in memory."""
    return memory_engine(store, clock)


def _memory() -> str | None:
    """Return the folder of shared memory, if there is one: a disk takes long to store certificates that nobody needs later."""
    return str(SHARED_MEMORY) if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None


def config_of(folder: Path, port: int) -> ControlConfig:
    """Return the configuration of a server with keys in `folder/pki`."""
    pki = folder / "pki"
    return ControlConfig(
        data_dir=folder / "data",
        cert_file=pki / "apiserver.crt",
        key_file=pki / "apiserver.key",
        client_ca_file=pki / "ca.crt",
        ca_key_file=pki / "ca.key",
        service_account_key_file=pki / "sa.key",
        kubelet_client_cert_file=pki / "apiserver-kubelet-client.crt",
        kubelet_client_key_file=pki / "apiserver-kubelet-client.key",
        proxy_client_cert_file=pki / "front-proxy-client.crt",
        proxy_client_key_file=pki / "front-proxy-client.key",
        requestheader_client_ca_file=pki / "front-proxy-ca.crt",
        bind_address="127.0.0.1",
        port=port,
        shutdown_timeout=1.0,
        resource_metrics=False,
        store="memory",
    )
