"""The groups of components of an API server: served resources, and the stages of a request."""

from __future__ import annotations

import functools

from control import features
from control.admission import configuration as admission_configuration
from control.admission import plugins
from control.admission.chain import Chain
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.invoker import WebhookInvoker
from control.aggregation.aggregator import Aggregator, Extensions
from control.assembly.access import Access
from control.assembly.audit_sinks import Auditing
from control.auth.legacy_use import LegacyTokenUse
from control.config import ControlConfig
from control.custom.definitions import Definitions
from control.dialing.node_dialer import Dialer
from control.fairness import debug as fairness_debug
from control.fairness.flow_schema_controller import list_size
from control.http.exchange import Handler, Request
from control.registry.registry import Registry
from control.registry.strategy_context import Settings
from control.resource_metrics.objects import RESOURCES as METRICS
from control.server.discovery import Discovery
from control.server.edge import Edge
from control.server.health import Health
from control.server.lookup import Lookup, StoredObjects
from control.server.metrics import RequestMetrics
from control.server.mounted import Mounted
from control.server.pipeline import Pipeline, fairness_of
from control.server.resources import ResourceServer
from control.server.serve import Listener
from control.server.subresources.table import handlers
from control.server.verbs import Verbs
from control.server.watch_streams import WatchStreams
from control.server.zpages import ZPages
from control.storage.cache import WatchCache
from control.storage.store import Store
from kube.clock import Clock
from kube.journal import PATH as JOURNAL_PATH
from kube.journal import Journal
from kube.resources import RESOURCES
from kube.step_shares import Shares
from kube.tracing.tracer import Tracer

NAMES = {r.storage_prefix: (r.group, r.plural) for r in RESOURCES}
"""Folder in the store -> group and resource."""


class Resources:
    """Served resources and their access: the registry, custom resources, authentication, admission."""

    def __init__(
        self, config: ControlConfig, clock: Clock, store: Store, cache: WatchCache, journal: Journal | None = None
    ) -> None:
        self.admission = Chain()
        settings = Settings(
            tuple(config.service_cidr.split(",")),
            range(config.node_port_range[0], config.node_port_range[1] + 1),
            shared_store=config.store == "etcd",
            event_ttl=config.event_ttl,
            gates=features.turned_on(config.feature_gates),
            load_balancer_ports=config.load_balancer_ports if config.service_load_balancer else "",
            api_port=config.port,
        )
        self.registry = Registry(store, cache, self.admission, clock, settings, journal)
        objects = StoredObjects(self.registry)
        self.token_use = LegacyTokenUse(clock)
        self.access = Access(config, objects.get, clock, self.token_use.used)
        configurations = admission_configuration.load(config.admission_config_file)
        plugins.check(configurations, config.enabled_admission, config.disabled_admission)
        self.webhooks = Caller(objects, plugins.webhook_credentials(configurations))
        self.built_in = (*RESOURCES, *METRICS) if config.resource_metrics else RESOURCES
        self.custom = Definitions(self.registry, self.webhooks, self.built_in)
        self.lookup = Lookup(self.registry, self.custom)
        auth = self.access.auth
        plugin_context = plugins.PluginContext(
            self.lookup,
            auth.authorizer,
            auth.rbac,
            WebhookInvoker(self.lookup, self.webhooks, auth.authorizer),
            configurations,
            clock,
            (config.not_ready_toleration_seconds, config.unreachable_toleration_seconds),
        )
        enabled, disabled = config.enabled_admission, config.disabled_admission
        self.admission.install(plugins.make(plugin_context, enabled, disabled, config.default_admission))

    async def close(self) -> None:
        """Release connections to webhooks."""
        await self.webhooks.close()
        await self.admission.close()
        await self.access.close()


class Serving:
    """Stages of a request, from the listener to the handlers."""

    def __init__(
        self,
        config: ControlConfig,
        clock: Clock,
        health: Health,
        resources: Resources,
        dialer: Dialer,
        shares: Shares,
        tracer: Tracer | None = None,
    ) -> None:
        """`shares` limits the time of requests and of the selectors of watches."""
        registry, auth = resources.registry, resources.access.auth
        self.watches = WatchStreams(registry, config.min_watch_timeout)
        verbs = Verbs(registry, self.watches, config.max_body_bytes, auth.authorizer)
        table = handlers(verbs, auth, dialer, resource_metrics=config.resource_metrics)
        served = ResourceServer(verbs, table, resources.custom)
        fairness, metrics = fairness_of(config), RequestMetrics()
        extensions = Extensions()

        def finite_routes() -> Handler:
            from control.server.exposition import Exposition
            from control.server.finite import build
            from control.server.journal_page import JournalPage
            from control.server.node_journal import NodeJournals

            database = config.database if config.store == "sqlite" else None
            exposition = Exposition(
                metrics,
                fairness,
                health,
                registry.caches,
                NAMES,
                extensions.availability,
                database,
                features.state(config.feature_gates),
            )
            documents = {"/metrics": exposition.metrics, "/metrics/slis": exposition.slis}
            discovery = Discovery(resources.built_in, resources.custom)
            journals = NodeJournals(registry, dialer)
            page = JournalPage(registry.journal, resources.custom, auth.authorizer, registry, journals)
            return build(health, discovery, auth.signer, documents, {JOURNAL_PATH: page})

        def debug(request: Request) -> str | None:
            return fairness_debug.dump(request.path, fairness, details=bool(request.option("includeRequestDetails")))

        self.mounted = Mounted(health, finite_routes, debug, ZPages(config, clock).answer)
        self.aggregator = Aggregator(resources.lookup, served, self.mounted, extensions)
        self.auditing = Auditing(config, clock)
        self.pipeline = Pipeline(
            config,
            auth,
            self.aggregator.resources,
            self.aggregator.finite,
            fairness,
            metrics,
            functools.partial(list_size, registry),
            self.auditing.auditor,
            tracer,
            shares,
            registry.journal,
        )
        self.edge = Edge(self.pipeline)
        self.listener = Listener(config, self.edge)
