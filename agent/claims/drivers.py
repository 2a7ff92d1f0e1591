"""Registry of the DRA drivers; deletes the ResourceSlices of drivers that are gone.

A driver publishes its node's slices itself. When it has been gone for half a minute its slices are deleted, so that nothing is
scheduled onto devices that cannot be prepared; and all of the node's when the agent starts, because no driver has registered
yet (pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.claims.device_health import DeviceHealthCache
from agent.managers.errors import DynamicResourceError
from agent.plugins.handler import DRA, PluginError
from cri.channel import PLUGIN_SECONDS
from cri.errors import CRIError
from kube import cancellation
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError

if TYPE_CHECKING:
    from agent.claims.driver import DRAClient

log = logging.getLogger(__name__)

_VERSIONS = {"v1.DRAPlugin": "v1", "v1beta1.DRAPlugin": "v1beta1"}
"""The services that drivers register, the better first."""
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_HEALTH_VERSIONS = {"v1beta1.DRAResourceHealth": "v1beta1", "v1alpha1.DRAResourceHealth": "v1alpha1"}
WIPE_SECONDS = 30.0
FOLLOW_SECONDS = 5.0
"""Delay before a driver that ended its health stream is called again."""
FIRST_RETRY, LAST_RETRY = 1.0, 300.0


class DRADrivers:
    """By the driver's name, the newest plugin last (agent.plugins.handler.PluginHandler)."""

    kind = DRA

    def __init__(
        self, client: Client, node_name: str, *, clock: Clock, health_changed: Callable[[], None] = lambda: None
    ) -> None:
        """`health_changed` is called when a device is in another state than before."""
        self._client, self._node_name, self._clock = client, node_name, clock
        self.health = DeviceHealthCache(health_changed)
        self._health_streams: dict[str, tuple[DRAClient, str]] = {}
        """Drivers that report devices' health and the version in which they do, by endpoint."""
        self._following: dict[str, asyncio.Task[None]] = {}
        self._drivers: dict[str, list[DRAClient]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Delete slices of drivers that are gone, until cancelled. After an error it may be called again."""
        first = "" not in self._wipes
        cut_off = [name for name, task in self._wipes.items() if task.cancelled() or task.exception() is not None]
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for name in ("",) if first else cut_off:
                    self._start_wipe(group, name)
                for driver, version in self._health_streams.values():
                    self._start_following(group, driver, version)
                await asyncio.Event().wait()
        finally:
            self._group = None

    def _start_wipe(self, group: asyncio.TaskGroup, name: str) -> None:
        wipe = partial(self._wipe, name, WIPE_SECONDS if name else 0.0)
        whose = name or "the last agent's drivers"
        self._wipes[name] = cancellation.start(group, wipe, f"slices of {whose}")

    def _start_following(self, group: asyncio.TaskGroup, driver: DRAClient, version: str) -> None:
        follow = partial(self._follow, driver, version)
        self._following[driver.endpoint] = cancellation.start(group, follow, f"health of {driver.name}'s devices")

    def get(self, name: str) -> DRAClient:
        """Return a driver. Raise DynamicResourceError if it is not there."""
        found = self._drivers.get(name)
        if not found:
            raise DynamicResourceError(f"DRA driver {name} is not registered")
        return found[-1]

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Refuse a driver without a version that the agent speaks. Raise PluginError."""
        if not versions:
            raise PluginError(f"empty list of supported gRPC services (aka supported versions) of DRA driver {name}")
        self._version(name, endpoint, versions)

    def _version(self, name: str, endpoint: str, versions: Sequence[str]) -> str:
        for service, version in _VERSIONS.items():
            if service in versions:
                return version
        raise PluginError(
            f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: none of the required "
            f"gRPC services (one of {', '.join(_VERSIONS)}) supported in {list(versions)}"
        )

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Take a driver's plugin into use. Raise PluginError."""
        from agent.claims.driver import DRAClient  # with the first driver only

        version = self._version(name, endpoint, versions)
        if any(driver.endpoint == endpoint for driver in self._drivers.get(name, ())):
            raise PluginError(f"endpoint {endpoint} already registered for DRA driver plugin {name}")
        driver = DRAClient(name, endpoint, version)
        self._drivers.setdefault(name, []).append(driver)
        for service, health_version in _HEALTH_VERSIONS.items():
            if service in versions:
                self._health_streams[endpoint] = driver, health_version
                if self._group is not None:
                    self._start_following(self._group, driver, health_version)
                break
        if (wipe := self._wipes.pop(name, None)) is not None:
            wipe.cancel()

    async def deregister(self, name: str, endpoint: str) -> None:
        """Release a driver's plugin."""
        left = self._drivers.get(name, [])
        for driver in [d for d in left if d.endpoint == endpoint]:
            left.remove(driver)
            self._health_streams.pop(endpoint, None)
            if (task := self._following.pop(endpoint, None)) is not None:
                task.cancel()
            await driver.close()
        if not left and name in self._drivers:
            del self._drivers[name]
            if self._group is not None:
                self._start_wipe(self._group, name)

    async def _follow(self, driver: DRAClient, version: str) -> None:
        """Keep a driver's health stream open and its reports cached."""
        while True:
            try:
                await cancellation.as_error(self._watch(driver, version))
            except CRIError as error:
                log.info("health of %s's devices: %s", driver.name, error)
            except Exception:
                log.exception("health of %s's devices", driver.name)
            finally:
                self.health.forget(driver.name)
            await self._clock.sleep(FOLLOW_SECONDS)

    async def _watch(self, driver: DRAClient, version: str) -> None:
        async for found in driver.watch_health(version):
            self.health.update(driver.name, found)
            await self._clock.sleep(PLUGIN_SECONDS)

    async def _wipe(self, name: str, after: float) -> None:
        """Delete the node's slices, of one driver or of all; tries until the API server answers."""
        await self._clock.sleep(after)
        delay = FIRST_RETRY
        while True:
            try:
                selector = f"spec.nodeName={self._node_name}" + (f",spec.driver={name}" if name else "")
                await self._client.call("DELETE", _SLICES, query={"fieldSelector": selector})
                return
            except StatusError as error:
                log.info("resource slices of %s: %s", name or "this node", error)
            except Exception:
                log.exception("resource slices of %s", name or "this node")
            await self._clock.sleep(delay)
            delay = min(2 * delay, LAST_RETRY)
