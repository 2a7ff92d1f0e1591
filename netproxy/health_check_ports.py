"""Serves the health check node ports of load-balanced Services under the external policy Local.

A load balancer asks each node whether it has endpoints of the Service: 200 and their number, or 503. It answers 503 also
while the proxy itself is behind, so that traffic goes to nodes whose rules are right (upstream: pkg/proxy/healthcheck).

Ports change within the sync of all Services, which must not wait for a client: a port that is removed closes its connections
at once, and what is left of its server ends in a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from kube.serving.aiohttp_runner import FEW, BoundedRunner
from kube.serving.table import ConnectionTable
from netproxy.health import Health, serve
from netproxy.model import ServicePort

log = logging.getLogger(__name__)
CLEANUP_TIMEOUT = 10.0
"""Seconds until the cleanup of a removed port is cancelled."""
CLOSE_TIMEOUT = 2.0
"""Seconds that `close` waits for cleanups."""


@dataclass(frozen=True, slots=True)
class Check:
    """The answer of a Service's health check node port."""

    namespace: str
    name: str
    local_endpoints: int


def checks(services: Mapping[str, tuple[ServicePort, ...]]) -> dict[int, Check]:
    """Return the checks by node port; endpoints count by address, however many ports the Service has."""
    found: dict[int, Check] = {}
    for ports in services.values():
        number = next((port.health_check_node_port for port in ports if port.health_check_node_port), 0)
        if number:
            ready = {each.ip for port in ports for each in port.local_endpoints if each.local and each.ready}
            found[number] = Check(ports[0].name.namespace, ports[0].name.name, len(ready))
    return found


class HealthCheckPorts:
    """Keeps a server on every health check node port that a Service requests."""

    def __init__(self, health: Health, hosts: Sequence[str] = ("0.0.0.0",)) -> None:
        self._health, self._hosts = health, hosts
        self._checks: dict[int, Check] = {}
        self._numbers: dict[str, int] = {}
        """Service -> its port, of those that request one."""
        self._services: dict[int, str] = {}
        """Port -> the Service that requested it last: a new Service may come before the deletion of the old one."""
        self._runners: dict[int, list[BoundedRunner]] = {}
        self._failed: dict[int, str] = {}
        """Port -> why it could not be opened."""
        self._cleanups: set[asyncio.Task[None]] = set()
        self._updating = asyncio.Lock()
        self._table = ConnectionTable(FEW)

    async def update(self, changed: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Open, close and change the ports of Services that changed; () for one that is gone.

        A port that cannot be opened is logged and retried at the next call, also one without changes.
        """
        async with self._updating:
            await self._update(changed)

    async def _update(self, changed: Mapping[str, tuple[ServicePort, ...]]) -> None:
        for key, ports in changed.items():
            before = self._numbers.pop(key, 0)
            if self._services.get(before) == key:
                del self._services[before]
                self._checks.pop(before, None)
            for number, check in checks({key: ports}).items():
                self._checks[number], self._numbers[key], self._services[number] = check, number, key
        for number in self._failed.keys() - self._checks.keys():
            del self._failed[number]
        for number in self._runners.keys() - self._checks.keys():
            self._close(number)
        for number in self._checks.keys() - self._runners.keys():
            runners = self._runners[number] = []
            try:
                for host in self._hosts:
                    runners.append(await serve(self._app(number), host, number, FEW, self._table))
                self._failed.pop(number, None)
            except OSError as error:
                why = error.strerror or str(error)
                if self._failed.get(number) != why:
                    self._failed[number] = why
                    log.error("health check node port %d: %s", number, why)
                self._close(number)

    def _close(self, number: int) -> None:
        for runner in self._runners.pop(number):
            runner.abort()
            task = asyncio.create_task(_clean_up(runner, number), name="cleanup of a health check node port")
            self._cleanups.add(task)
            task.add_done_callback(self._cleanups.discard)

    async def close(self) -> None:
        """Close all ports; what is not cleaned up after `CLOSE_TIMEOUT` seconds is cancelled."""
        await self.update(dict.fromkeys(self._numbers, ()))
        if self._cleanups:
            _, late = await asyncio.wait(set(self._cleanups), timeout=CLOSE_TIMEOUT)
            for task in late:
                task.cancel()

    def _app(self, number: int) -> web.Application:
        async def answer(_: web.Request) -> web.Response:
            check = self._checks.get(number)
            if check is None:  # the Service is gone
                gone = web.Response(status=503)
                gone.force_close()
                return gone
            healthy = self._health.healthy
            body = {
                "service": {"namespace": check.namespace, "name": check.name},
                "localEndpoints": check.local_endpoints,
                "serviceProxyHealthy": healthy,
            }
            headers = {
                "X-Content-Type-Options": "nosniff",
                "X-Load-Balancing-Endpoint-Weight": str(check.local_endpoints),
            }
            return web.json_response(body, status=200 if healthy and check.local_endpoints else 503, headers=headers)

        app = web.Application()
        app.router.add_get("/{tail:.*}", answer)
        return app


async def _clean_up(runner: BoundedRunner, number: int) -> None:
    try:
        async with asyncio.timeout(CLEANUP_TIMEOUT):
            await runner.cleanup()
    except Exception as error:
        log.error("cleanup of health check node port %d: %r", number, error)
