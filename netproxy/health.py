"""Health of the proxy: /healthz and /livez as upstream's proxy serves them, beside /metrics and /proxyMode.

The proxy is healthy unless a change has waited for two minutes to be written. /healthz is also unhealthy while the node is
being deleted, or tainted for deletion by the cluster autoscaler, so that load balancers drain it; /livez is not, because a
restart would not help (KEP-3836).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import datetime

from aiohttp import web

from kube.api import core_v1
from kube.clock import SYSTEM, Clock
from kube.serving.aiohttp_runner import FEW, BoundedRunner
from kube.serving.limits import ServingLimits
from kube.serving.table import ConnectionTable
from netproxy import metrics
from netproxy.config import ProxyConfig
from netproxy.errors import ConfigError
from netproxy.exposition import Exposition, Update
from netproxy.prometheus_metrics import Counter
from netproxy.validation import host_port

log = logging.getLogger(__name__)
TIMEOUT = 120.0
DELETION_TAINT = "ToBeDeletedByClusterAutoscaler"


class Health:
    """The proxy's state as health checks see it."""

    def __init__(self, clock: Clock = SYSTEM, families: tuple[int, ...] = (4,)) -> None:
        self._clock, self._families = clock, families
        self._queued: float | None = None
        self._updated: float | None = None
        self._updated_at = clock.now()
        self.node_eligible = True

    def queued(self) -> None:
        """Record that a change came in."""
        if self._queued is None:
            self._queued = self._clock.monotonic()

    def updated(self) -> None:
        """Record that all changes are in force."""
        self._queued = None
        self._updated = self._clock.monotonic()
        self._updated_at = self._clock.now()

    def set_node(self, node: core_v1.Node | None) -> None:
        """Record whether the node is leaving the cluster."""
        self.node_eligible = node is not None and not (
            node.metadata.deletion_timestamp or any(taint.key == DELETION_TAINT for taint in node.spec.taints)
        )

    @property
    def live(self) -> bool:
        """True if rules keep up with changes; also true at the start, for the first two minutes of waiting."""
        return self._queued is None or self._clock.monotonic() - self._queued < TIMEOUT

    @property
    def healthy(self) -> bool:
        return self.live and self._updated is not None and self.node_eligible

    def body(self) -> str:
        """Return the JSON that upstream's endpoint answers with."""
        now = self._clock.now()
        shown = now if self.live and self._updated is not None else self._updated_at

        def text(moment: datetime) -> str:
            return moment.isoformat().replace("+00:00", "Z")

        # Both families are written in one go, so they are in one state.
        family = {"lastUpdated": text(shown), "healthy": self.live}
        return json.dumps(
            {
                "lastUpdated": text(shown),
                "currentTime": text(now),
                "healthy": self.live,
                "nodeEligible": self.node_eligible,
                "status": {metrics.family_label(each): family for each in self._families},
            },
            separators=(",", ":"),
        )


def health_app(health: Health) -> web.Application:
    """Build the server of the health port."""

    async def healthz(_: web.Request) -> web.Response:
        return _answer(good=health.healthy, health=health, counter=metrics.HEALTHZ)

    async def livez(_: web.Request) -> web.Response:
        return _answer(good=health.live, health=health, counter=metrics.LIVEZ)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/livez", livez)
    return app


def _answer(*, good: bool, health: Health, counter: Counter) -> web.Response:
    status = 200 if good else 503
    counter.labels(str(status)).inc()
    return web.Response(
        status=status,
        text=health.body(),
        content_type="application/json",
        headers={"X-Content-Type-Options": "nosniff"},
    )


def metrics_app(mode: str, updates: Iterable[Update] = ()) -> web.Application:
    """Build the server of the metrics port; `updates` bring metrics up to date before they are read."""

    async def proxy_mode(_: web.Request) -> web.Response:
        return web.Response(text=mode)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", Exposition(updates).handle)
    app.router.add_get("/proxyMode", proxy_mode)
    app.router.add_get("/healthz", healthz)
    return app


async def serve(
    app: web.Application, host: str, port: int, limits: ServingLimits = FEW, table: ConnectionTable | None = None
) -> BoundedRunner:
    """Start serving; OSError where the address cannot be bound. The caller cleans the runner up."""
    runner = BoundedRunner(app, limits, table)
    await runner.setup()
    try:
        await runner.listen(host, port)
    except OSError:
        await runner.cleanup()
        raise
    return runner


async def serve_both(
    config: ProxyConfig, mode: str, state: Health, updates: Iterable[Update] = ()
) -> list[BoundedRunner]:
    """Serve health and metrics at the configured addresses; raises ConfigError if that fails and is required."""
    runners = []
    for path, address, app in (
        ("healthzBindAddress", config.healthz_bind_address, health_app(state)),
        ("metricsBindAddress", config.metrics_bind_address, metrics_app(mode, updates)),
    ):
        if not address:
            continue
        host, port = host_port(address, path)
        try:
            runners.append(await serve(app, host, port))
        except OSError as error:
            if config.bind_address_hard_fail:
                raise ConfigError(f"{path}: {address}: {error.strerror}") from error
            log.error("%s: %s: %s", path, address, error.strerror)
    return runners
