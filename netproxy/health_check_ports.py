"""Serves the health check node ports of load-balanced Services under the external policy Local.

A load balancer asks each node whether it has endpoints of the Service: 200 and their number, or 503. It answers 503 also
while the proxy itself is behind, so that traffic goes to nodes whose rules are right (upstream: pkg/proxy/healthcheck).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from kube.serving.aiohttp_runner import BoundedRunner
from netproxy.health import Health, serve
from netproxy.model import ServicePort

log = logging.getLogger(__name__)


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
    """Keeps a server on every health check node port that a Service asks for."""

    def __init__(self, health: Health, hosts: Sequence[str] = ("0.0.0.0",)) -> None:
        self._health, self._hosts = health, hosts
        self._checks: dict[int, Check] = {}
        self._numbers: dict[str, int] = {}
        """Service -> its port, of those that ask for one."""
        self._runners: dict[int, list[BoundedRunner]] = {}

    async def update(self, changed: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Open, close and change the ports of Services that changed; () for one that is gone.

        A port that cannot be opened is logged and retried at the next change.
        """
        for key, ports in changed.items():
            self._checks.pop(self._numbers.pop(key, 0), None)
            for number, check in checks({key: ports}).items():
                self._checks[number], self._numbers[key] = check, number
        for number in self._runners.keys() - self._checks.keys():
            await self._close(number)
        for number in self._checks.keys() - self._runners.keys():
            runners = self._runners[number] = []
            try:
                for host in self._hosts:
                    runners.append(await serve(self._app(number), host, number))
            except OSError as error:
                log.error("health check node port %d: %s", number, error.strerror)
                await self._close(number)

    async def _close(self, number: int) -> None:
        for runner in self._runners.pop(number):
            await runner.cleanup()

    async def close(self) -> None:
        """Close all ports."""
        await self.update(dict.fromkeys(self._numbers, ()))

    def _app(self, number: int) -> web.Application:
        async def answer(_: web.Request) -> web.Response:
            check = self._checks[number]
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
