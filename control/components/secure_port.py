"""Secure port of the controllers or of the scheduler: health, metrics and configuration, as upstream's daemons serve them.

In the API server's process each component has its own port, too (10257 and 10259), with the metrics that upstream's daemon
of the name has: one process holds the metrics of all, of which a port shows a part (`belongs`).
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from control import features
from control.components.access import ComponentAccess
from control.server import common_metrics
from control.server.health import Health
from kube import counters
from kube.errors import StatusError, method_not_allowed
from kube.exposition import CONTENT_TYPE
from kube.serving.aiohttp_runner import BoundedRunner

log = logging.getLogger(__name__)

MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
PORTS = {MANAGER: 10257, SCHEDULER: 10259}
_GROUPS = {MANAGER: "kubecontrollermanager.config.k8s.io", SCHEDULER: "kubescheduler.config.k8s.io"}
_LEADER = "leader_election_master_status"
_SERVERS = ("apiserver_", "etcd_", "authentication_", "authorization_", "authenticated_")
"""Beginnings of the names of the API server's metrics."""
_SHARED = ("rest_client_", "leader_election_", "wherry_")
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """A component's port. `tls` returns the settings of a new connection."""

    component: str
    port: int
    access: ComponentAccess
    tls: Callable[[], ssl.SSLContext]
    address: str = "127.0.0.1"
    configuration: Callable[[], Document] = dict
    """Returns the component's configuration file, as /configz shows it."""
    gates: dict[str, bool] = field(default_factory=dict)


def belongs(component: str, metric: str) -> bool:
    """Return whether a metric of this process is one of a component's port."""
    if component == SCHEDULER:
        return metric.startswith(("scheduler_", *_SHARED))
    return not metric.startswith(("scheduler_", *_SERVERS))


class ComponentPort:
    """The application of one port."""

    def __init__(self, settings: PortSettings) -> None:
        self._settings, self._health = settings, Health()
        self._texts: dict[str, Callable[[], bytes]] = {
            "/metrics": lambda: common_metrics.exposed(self._families, process=True),
            "/metrics/slis": lambda: common_metrics.exposed(lambda: common_metrics.checks(self._health)),
        }

    def application(self) -> web.Application:
        """Return the application."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        tls = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        certificate = tls.getpeercert(True) if tls is not None else None
        try:
            await self._settings.access.check(
                request.remote or "",
                certificate,
                request.headers.get("Authorization", ""),
                "get" if request.method == "HEAD" else request.method.lower(),
                request.path,
            )
            if request.method not in ("GET", "HEAD"):
                raise method_not_allowed()
            if request.path == "/metrics/resources" and self._settings.component == SCHEDULER:
                from control.scheduler import pod_resources

                return web.Response(body=await pod_resources.text(), headers={"Content-Type": CONTENT_TYPE})
            return self._document(request.path, {name: request.query.getall(name) for name in request.query})
        except StatusError as error:
            return _json(error.to_status(), error.code)

    def _document(self, path: str, query: Mapping[str, list[str]]) -> web.Response:
        if path in self._texts:
            return web.Response(body=self._texts[path](), headers={"Content-Type": CONTENT_TYPE})
        if path == "/configz":
            return _json({_GROUPS[self._settings.component]: self._settings.configuration()})
        if path.split("/")[1] in ("healthz", "livez", "readyz"):
            found = self._health.answer(path, query)
            if found is not None:
                return web.Response(status=found[0], text=found[1])
        return web.Response(status=404, text="404 page not found\n")

    def _families(self) -> Iterator[Any]:
        component = self._settings.component
        yield common_metrics.build_info()
        yield common_metrics.features(features.state(self._settings.gates))
        for family in counters.families(lambda name: belongs(component, name)):
            if family.name == _LEADER:
                family.samples = [sample for sample in family.samples if sample.labels["name"] == component]
            yield family


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(settings: PortSettings) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port. Raises OSError if the address cannot be bound."""
    runner = BoundedRunner(ComponentPort(settings).application())
    await runner.setup()
    try:
        await runner.listen(settings.address, settings.port, settings.tls)
        log.info("%s: serving on %s:%d", settings.component, settings.address, runner.port)
        yield runner.port
    finally:
        await runner.cleanup()
