"""Builds the API server in the order of its dependencies.

It creates the store, the watch cache, the registry, authentication, admission, the pipeline and the listener, runs their tasks,
and stops them in the reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any

from control import start_steps
from control.aggregation.api_service_controller import APIServiceController
from control.aggregation.remote import FrontProxy
from control.assembly import tracing
from control.assembly.background import Background
from control.assembly.encryption_at_rest import EncryptionAtRest
from control.assembly.groups import NAMES, Resources, Serving
from control.auth.user import UserInfo
from control.components.embedded import embedded_components
from control.config import ControlConfig
from control.controllers.identities import POLICY_CHECKER, account_user
from control.custom.definition_controller import DefinitionController
from control.dialing.node_dialer import Dialer, NodeDialer
from control.event_loop import offload
from control.event_loop.imports import HEAD_START_SECONDS
from control.fairness.flow_schema_controller import FlowSchemaController
from control.interfaces.local_nodes import LocalNodes
from control.registry.context import SERVER
from control.server.health import Health
from control.server.inprocess import InProcessTransport
from control.server.lookup import follow_auth
from control.server.pipeline import request_shares
from control.server_tasks import service_repair
from control.server_tasks.bootstrap import Bootstrap
from control.server_tasks.policy_checking import TypeChecking
from control.server_tasks.server_addresses import ServerAddresses
from control.server_tasks.server_identity import ServerIdentity
from control.storage.cache import WatchCache
from control.storage.catching_up import CatchingUp
from control.storage.engine import Engine, open_engine
from control.storage.evaluation import Evaluations, evaluation_shares
from control.storage.history_reads import PLACES, SHARED_PLACES, HistoryReads
from control.storage.measured import MeasuredStore
from control.storage.store import Store
from kube.build import user_agent
from kube.client import Client
from kube.clock import Clock
from kube.journal import Journal
from kube.tracing.tracer import Tracer

log = logging.getLogger(__name__)


UNFINISHED_SECONDS = 10.0
"""Time that writes whose requests are over have to end, when the server does."""


class ApiServer:
    """A running API server."""

    def __init__(
        self,
        config: ControlConfig,
        clock: Clock,
        store: Store,
        engine: Engine,
        tracer: Tracer | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        self.config, self.clock, self.store, self.engine, self.tracer = config, clock, store, engine, tracer
        self.background = Background(clock)
        shares = request_shares()
        history = HistoryReads(SHARED_PLACES if engine.shared else PLACES)
        self.cache = WatchCache(store, evaluations=Evaluations(evaluation_shares(shares)), history=history)
        self.catching_up = CatchingUp(self.cache, engine.check)
        self.stopping = False
        self.health = self._checks()
        self.journal = Journal(clock, config.journal_bytes) if config.journal_bytes else None
        self.resources = Resources(config, clock, store, self.cache, self.journal)
        self.serving = Serving(config, clock, self.health, self.resources, dialer or NodeDialer(config), shares, tracer)
        self.registry, self.admission = self.resources.registry, self.resources.admission
        self.access, self.auth = self.resources.access, self.resources.access.auth
        self.pipeline, self.listener = self.serving.pipeline, self.serving.listener
        self.watches, self.aggregator = self.serving.watches, self.serving.aggregator

    def _checks(self) -> Health:
        health, engine = Health(), self.engine
        health.add("etcd", engine.check, live=True)
        health.add("etcd-readiness", lambda: engine.check() or engine.check_disk())
        health.add("informer-sync", self.catching_up.check)
        health.expect(*start_steps.STEPS)
        health.add("shutdown", lambda: "process is shutting down" if self.stopping else None)
        return health

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        config: ControlConfig,
        clock: Clock,
        opening: Awaitable[Engine] | None = None,
        *,
        dialer: Dialer | None = None,
    ) -> AsyncIterator[ApiServer]:
        """Start everything; when the block is left, stop everything.

        `opening` is the engine where it is being opened. `dialer` connects to nodes' agents, by default by TLS.
        """
        engine = await (opening or open_engine(config, clock))
        store: Store = MeasuredStore(engine.store, NAMES)
        encryption: EncryptionAtRest | None = None
        tracer: Tracer | None = None
        try:
            tracer = await tracing.start(config)
            if config.encryption_config_file is not None:
                encryption = EncryptionAtRest(config.encryption_config_file, store)
                await encryption.start()
                store = encryption.store
            server = cls(config, clock, store, engine, tracer, dialer)
            server.listener.bind()
            try:
                await server._follow_store(encryption)
                await server._follow_authorization()
                bootstrap = Bootstrap(server.registry, config, server.listener.port, server.health.done)
                await server.background.until(bootstrap.run())
                server._keep_objects()
                try:
                    await server._serve()
                    async with server._among_servers(bootstrap):
                        yield server
                finally:
                    await server._stop_serving()
            finally:
                server.listener.close()
                await server.background.stop()
                await server.serving.mounted.close()
                await server.resources.close()
                await server.serving.auditing.close()
                await offload.close()
        finally:
            await store.close()
            if encryption is not None:
                await encryption.close()
            if tracer is not None:
                await tracer.close()

    # -- the stages of the start, in order ------------------------------------------------------------------------
    async def _follow_store(self, encryption: EncryptionAtRest | None) -> None:
        """Fill the watch cache."""
        background, health = self.background, self.health
        if encryption is not None:
            health.add("kms-providers", encryption.check, live=True)
            health.add("encryption-at-rest", self.cache.check_readable)
            check = functools.partial(encryption.run, self.clock, self.config.configuration_check)
            background.keep(check, "encryption configuration")
        background.start(self.cache.run(), "the watch cache")
        background.keep(self.catching_up.run, "watch cache catching up")
        background.keep(self.engine.compact, "compaction")
        await background.until(self.cache.wait_ready())
        health.done(start_steps.INFORMERS, start_steps.DEFINITION_INFORMERS, start_steps.DEFINITIONS_SYNCED)
        health.done(start_steps.ADMISSION, start_steps.STORAGE, start_steps.DEFINITIONS)

    async def _follow_authorization(self) -> None:
        """Read who may do what, and manage definitions meanwhile."""
        background, followed = self.background, asyncio.Event()
        background.keep(DefinitionController(self.registry, self.resources.custom).run, "definitions")
        background.keep(self.serving.auditing.run, "audit webhook")
        background.keep(self.access.run, "authentication and authorization configuration")
        background.start(follow_auth(self.auth, self.registry, followed), "following roles and pods")
        await background.until(followed.wait())

    def _keep_objects(self) -> None:
        """Start what keeps objects as they are to be, and the state that follows from them."""
        config, clock, registry = self.config, self.clock, self.registry
        keep, done = self.background.keep, self.health.done
        front_proxy = FrontProxy(config.proxy_client_cert_file, config.proxy_client_key_file)
        services = APIServiceController(
            registry, self.aggregator, front_proxy, done, resource_metrics=config.resource_metrics
        )
        keep(services.run, "APIServices")
        client = self.client(SERVER, user_agent("kube-apiserver"))
        keep(functools.partial(self.resources.token_use.run, client), "use of legacy tokens")
        repaired = functools.partial(done, start_steps.SERVICE_REPAIR)
        keep(functools.partial(service_repair.run, registry, clock, repaired), "repair of Service addresses")
        checker = account_user(POLICY_CHECKER)
        client = self.client(checker, user_agent("kube-controller-manager", checker.name))
        keep(TypeChecking(registry, self.resources.custom, client).run, "type checking of policies")
        keep(FlowSchemaController(registry, self.pipeline.fairness, done).run, "flow control")
        renewed = functools.partial(done, start_steps.IDENTITY)
        collected = functools.partial(done, start_steps.IDENTITY_COLLECTOR)
        keep(functools.partial(ServerIdentity(registry, clock).run, renewed, collected), "identity leases")

    async def _serve(self) -> None:
        """Accept connections, and wait until everything else has started."""
        await self.listener.start()
        log.info("serving on %s:%d", self.config.bind_address, self.listener.port)
        await self.background.until(self.health.finished.wait())
        self.background.start(self._load_finite_routes(), "loading the finite routes", may_end=True)

    async def _load_finite_routes(self) -> None:
        """Import the finite routes after the controllers and the scheduler, unless a request for one comes before."""
        await asyncio.sleep(2 * HEAD_START_SECONDS)
        await self.serving.mounted.load()

    @contextlib.asynccontextmanager
    async def _among_servers(self, bootstrap: Bootstrap) -> AsyncIterator[None]:
        """Be one of the servers that clients are sent to, where several share the store."""
        address = self.config.advertise_address
        if not address or not self.engine.shared:
            yield
            return
        work = ServerAddresses(self.store, bootstrap, address, self.clock).run()
        task = asyncio.create_task(work, name="server-addresses")
        try:
            yield
        finally:
            # First of all, while everything still works: no new connections come while the old ones end.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def drain(self) -> None:
        """Say that the server is going, and continue serving for as long as load balancers need to hear of it."""
        self.stopping = True
        await self.clock.sleep(self.config.shutdown_delay)

    async def _stop_serving(self) -> None:
        self.stopping = True
        for cached in self.registry.caches():
            cached.end_watches()
        await self.listener.stop()
        if self.registry.unfinished:
            await asyncio.wait(self.registry.unfinished, timeout=UNFINISHED_SECONDS)

    def busy(self) -> bool:
        """Return whether requests are being served, or the store works; long-running requests such as watches do not count."""
        return self.engine.busy() or any(self.pipeline.in_flight().values())

    def exchanged(self) -> int:
        """Return a number that grows with each request of a client on a socket, and each event that one is sent."""
        return self.serving.edge.exchanged

    def client(self, user: UserInfo, user_agent: str = "") -> Client:
        """Return a client inside this process that acts as a user."""
        return Client(InProcessTransport(self.pipeline, user, user_agent))

    def embedded_components(self, local_nodes: LocalNodes | None = None) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what is to run beside the server, by name: controllers and scheduler, where they are enabled."""
        return embedded_components(self.config, self.client, self.clock, self.tracer, local_nodes, self.journal)
