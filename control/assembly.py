"""All parts of the API server put together in the order they need each other.

Nothing here decides anything: it makes the store, the watch cache, the registry, authentication, admission, the pipeline and
the listener, runs their tasks, and takes them down in the reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any

from control import offload, service_repair, start_steps
from control.access import Access
from control.admission import configuration as admission_configuration
from control.admission import plugins
from control.admission.chain import Chain
from control.admission.plugin import Attributes
from control.admission.policies.type_checking import TypeChecking
from control.admission.webhooks.asking import Asker
from control.admission.webhooks.caller import Caller
from control.aggregation.aggregator import Aggregator
from control.aggregation.keeper import Keeper as Aggregation
from control.aggregation.remote import FrontProxy
from control.audit_sinks import Auditing
from control.auth.legacy_use import LegacyTokenUse
from control.auth.user import UserInfo
from control.background import Background
from control.bootstrap import Bootstrap
from control.companions import companions
from control.config import ControlConfig
from control.controllers.identities import POLICY_CHECKER, account_user
from control.custom.definitions import Definitions
from control.custom.keeper import Keeper
from control.fairness import debug as fairness_debug
from control.fairness.keeper import Keeper as FlowControl
from control.fairness.keeper import list_size
from control.registry.context import SERVER
from control.registry.registry import Registry
from control.registry.strategy import Settings
from control.sealing import Sealing
from control.server.discovery import Discovery
from control.server.edge import Edge
from control.server.health import Health
from control.server.inprocess import InProcessTransport
from control.server.listing import Listing
from control.server.lookup import BY_TARGET, Lookup, follow_auth
from control.server.mounted import Mounted
from control.server.nodes import NodeDialer
from control.server.pipeline import Pipeline
from control.server.resources import ResourceServer
from control.server.serve import Listener
from control.server.subresources.table import handlers
from control.server.verbs import Verbs
from control.server.zpages import ZPages
from control.server_addresses import ServerAddresses
from control.server_identity import ServerIdentity
from control.storage.cache import WatchCache
from control.storage.catching_up import CatchingUp
from control.storage.engine import Engine, open_engine
from control.storage.measured import MeasuredStore
from control.storage.store import Store
from kube.build import user_agent
from kube.client import Client
from kube.clock import Clock
from kube.resources import RESOURCES, Resource

log = logging.getLogger(__name__)


UNFINISHED_SECONDS = 10.0
"""How long writes whose requests are over have to end, when the server does."""
NAMES = {r.storage_prefix: (r.group, r.plural) for r in RESOURCES}
"""Folder in the store -> group and resource."""


class _Late:
    """Stands where the admission chain will be: it needs the registry, and the registry needs it."""

    chain: Chain

    async def admit(self, attributes: Attributes) -> None:
        await self.chain.admit(attributes)

    async def validate(self, attributes: Attributes) -> None:
        await self.chain.validate(attributes)


class ApiServer:
    """A running API server."""

    def __init__(self, config: ControlConfig, clock: Clock, store: Store, engine: Engine) -> None:
        self.config, self.clock, self.store, self.engine = config, clock, store, engine
        self.cache = WatchCache(store)
        admission = _Late()
        settings = Settings(
            tuple(config.service_cidr.split(",")),
            range(config.node_port_range[0], config.node_port_range[1] + 1),
            shared_store=config.store == "etcd",
        )
        self.registry = Registry(store, self.cache, admission, clock, settings, config.event_ttl)
        self.lookup = Lookup(self.registry)
        self.access = Access(config, self.lookup.get, clock)
        self.auth = self.access.auth
        self.webhooks = Caller(self.lookup)
        asker = Asker(self.lookup, self.webhooks, self.auth.authorizer)
        surroundings = plugins.Surroundings(
            self.lookup,
            self.auth.authorizer,
            self.auth.rbac,
            asker,
            admission_configuration.load(config.admission_config_file),
            clock,
            (config.not_ready_toleration_seconds, config.unreachable_toleration_seconds),
        )
        made = plugins.make(surroundings, config.enabled_admission, config.disabled_admission, config.default_admission)
        self.admission = admission.chain = Chain(made)
        self.background = Background(clock)
        self.health = Health()
        self.stopping = False
        self.health.add("etcd", engine.check, live=True)
        self.health.add("etcd-readiness", lambda: engine.check() or engine.check_disk())
        self.catching_up = CatchingUp(self.cache, engine.check)
        self.health.add("informer-sync", self.catching_up.check)
        self.health.expect(*start_steps.STEPS)
        self.health.add("shutdown", lambda: "process is shutting down" if self.stopping else None)
        self.listing = Listing(self.registry, config.min_watch_timeout)
        verbs = Verbs(self.registry, self.listing, config.max_body_bytes, self.auth.authorizer)
        self.custom = self.lookup.custom = Definitions(self.registry, self.webhooks)
        resources = ResourceServer(verbs, handlers(verbs, self.auth, NodeDialer(config)), self.custom)
        self.mounted = Mounted(self.health, self._finite_routes)
        self.aggregator = Aggregator(self.lookup, resources, self.mounted, config.max_body_bytes)
        self.pipeline = Pipeline(config, self.auth, self.aggregator.resources, self.aggregator.finite)
        self.mounted.debug = lambda request: fairness_debug.dump(
            request.path, self.pipeline.fairness, bool(request.option("includeRequestDetails"))
        )
        self.mounted.pages = ZPages(config, clock).answer
        self.pipeline.list_size = functools.partial(list_size, self.registry)
        self.auditing = Auditing(config, clock)
        self.pipeline.auditor = self.auditing.auditor
        self.edge = Edge(self.pipeline)
        self.listener = Listener(config, self.edge)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, config: ControlConfig, clock: Clock, opening: Awaitable[Engine] | None = None
    ) -> AsyncIterator[ApiServer]:
        """Start everything; when the block is left, stop everything. `opening` is the engine where it is being opened."""
        engine = await (opening or open_engine(config, clock))
        store: Store = MeasuredStore(engine.store, NAMES)
        sealing: Sealing | None = None
        try:
            if config.encryption_config_file is not None:
                sealing = Sealing(config.encryption_config_file, store)
                await sealing.start()
                store = sealing.store
            server = cls(config, clock, store, engine)
            server.listener.bind()
            background = server.background
            if sealing is not None:
                server.health.add("kms-providers", sealing.check, live=True)
                server.health.add("encryption-at-rest", server.cache.check_readable)
                background.keep(
                    functools.partial(sealing.run, clock, config.configuration_check), "encryption configuration"
                )
            background.start(server.cache.run(), "the watch cache")
            background.keep(server.catching_up.run, "watch cache catching up")
            background.keep(engine.compact, "compaction")
            try:
                await background.until(server.cache.wait_ready())
                done = server.health.done
                done(start_steps.INFORMERS, start_steps.DEFINITION_INFORMERS, start_steps.DEFINITIONS_SYNCED)
                done(start_steps.ADMISSION, start_steps.DEFINITIONS)
                followed = asyncio.Event()
                background.keep(Keeper(server.registry, server.custom).run, "looking after definitions")
                background.keep(server.auditing.run, "audit webhook")
                background.keep(server.access.run, "authentication and authorization configuration")
                background.start(follow_auth(server.auth, server.registry, followed), "following roles and pods")
                await background.until(followed.wait())
                bootstrap = Bootstrap(server.registry, config, server.listener.port, done)
                await background.until(bootstrap.run())
                front_proxy = FrontProxy(config.proxy_client_cert_file, config.proxy_client_key_file)
                extensions = Aggregation(server.registry, server.aggregator, front_proxy, done)
                background.keep(extensions.run, "looking after APIServices")
                uses = LegacyTokenUse(server.client(SERVER, user_agent("kube-apiserver")), clock)
                server.auth.service_accounts.used = uses.used
                background.keep(uses.run, "use of legacy tokens")
                checker = account_user(POLICY_CHECKER)
                client = server.client(checker, user_agent("kube-controller-manager", checker.name))
                background.keep(
                    functools.partial(service_repair.run, server.registry, clock), "repair of Service addresses"
                )
                checking = TypeChecking(server.registry, server.custom, client)
                background.keep(checking.run, "type checking of policies")
                background.keep(FlowControl(server.registry, server.pipeline.fairness, done).run, "flow control")
                renewed = functools.partial(done, start_steps.IDENTITY)
                collected = functools.partial(done, start_steps.IDENTITY_COLLECTOR)
                identity = ServerIdentity(server.registry, clock)
                background.keep(lambda: identity.run(renewed, collected), "identity leases")
                await server.listener.start()
                background.start(server.mounted.load(), "loading the finite routes", may_end=True)
                log.info("serving on %s:%d", config.bind_address, server.listener.port)
                await background.until(server.health.finished.wait())
                try:
                    async with server._among_servers(bootstrap):
                        yield server
                finally:
                    await server._stop_serving()
            finally:
                await background.stop()
                await server.webhooks.close()
                await server.admission.close()
                await server.access.close()
                await server.auditing.close()
                await offload.close()
        finally:
            await store.close()
            if sealing is not None:
                await sealing.close()

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

    def _finite_routes(self) -> Any:
        from control.server.exposition import Exposition
        from control.server.finite import build

        database = self.config.database if self.config.store == "sqlite" else None
        remotes = self.aggregator.remotes
        told = Exposition(
            self.pipeline,
            self.health,
            self.registry.caches,
            NAMES,
            lambda: [(f"{version}.{group}", remote.available) for (group, version), remote in remotes.items()],
            database,
        )
        documents = {"/metrics": told.metrics, "/metrics/slis": told.slis}
        return build(self.health, Discovery(custom=self.custom), self.auth.signer, documents)

    async def drain(self) -> None:
        """Say that the server is going, and go on serving for as long as load balancers need to hear of it."""
        self.stopping = True
        await self.clock.sleep(self.config.shutdown_delay)

    async def _stop_serving(self) -> None:
        self.stopping = True
        for cached in self.registry.caches():
            cached.end_watches()
        await self.listener.stop()
        if self.registry.unfinished:
            await asyncio.wait(self.registry.unfinished, timeout=UNFINISHED_SECONDS)

    def lookup_resource(self, target: str) -> Resource:
        """Return a resource by target ("pods", "deployments.apps")."""
        return BY_TARGET[target]

    def client(self, user: UserInfo, user_agent: str = "") -> Client:
        """Return a client inside this process that acts as a user."""
        return Client(InProcessTransport(self.pipeline, user, user_agent))

    def companions(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what is to run beside the server, by name: controllers and scheduler, where they are enabled."""
        return companions(self.config, self.client, self.clock)
