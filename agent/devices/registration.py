"""Serves the socket at which device plugins register: kubelet.sock in the device plugins' directory.

Plugins watch for the creation of this socket, which means that an agent has started, and register again. Other files in
the directory at the agent's start are sockets of plugins that have to register again, and are removed. The
protocol's modules are imported when the first plugin calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from agent.devices.checkpoint import FILE
from agent.devices.manager import MOST_RESOURCES, DeviceManager
from agent.plugins.handler import DEVICE, PluginError
from agent.unix_server import UnixServer
from cri.errors import CRIError
from cri.texts import NAME, shortened
from kube import cancellation

if TYPE_CHECKING:
    from agent.devices.plugin import Plugin

log = logging.getLogger(__name__)

VERSION = "v1beta1"
SOCKET = "kubelet.sock"
_LONGEST_DOMAIN, _LONGEST_NAME = 253 - len("requests."), 63
"""Characters before and after the slash: with that prefix, quotas have the name (IsExtendedResourceName)."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class DevicePluginRegistration:
    """Serves Registration and follows the plugins that registered."""

    kind = DEVICE

    def __init__(self, devices: DeviceManager) -> None:
        self._devices = devices
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled. Raise OSError if the folder cannot be used.

        Each call creates the socket again, so that plugins register again.
        """
        folder = self._devices.folder
        await asyncio.to_thread(_prepare, folder)
        server = UnixServer(folder / SOCKET, f"{VERSION}.Registration", {"Register": self._register})
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                async with server:
                    await asyncio.Event().wait()
        finally:
            self._group = None

    async def _register(self, data: bytes, context: Any) -> bytes:
        from agent.devices.messages import Empty, RegisterRequest  # with the first plugin only
        from agent.devices.plugin import Options

        request = RegisterRequest.FromString(data)
        options = Options(request.options.pre_start_required, request.options.get_preferred_allocation_available)
        try:
            self._check(request.resource_name, [request.version])
            await self.take(request.resource_name, self._devices.folder / request.endpoint, options)
        except PluginError as error:
            log.warning("device plugin %s: %s", request.endpoint, error)
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return Empty().SerializeToString()

    def _check(self, resource: str, versions: Sequence[str]) -> None:
        """Raise PluginError for what upstream refuses."""
        if VERSION not in versions:
            raise PluginError(
                f'requested API version "{versions[0] if versions else ""}" is not supported by kubelet. '
                f'Supported versions are ["{VERSION}"]'
            )
        domain, _, name = resource.partition("/")
        too_long = len(domain) > _LONGEST_DOMAIN or len(name) > _LONGEST_NAME
        if too_long or not _NAME.fullmatch(resource) or "kubernetes.io" in domain:
            raise PluginError(f'the ResourceName "{shortened(resource, NAME)}" is invalid')
        if not self._devices.has_room_for(resource):
            raise PluginError(f"too many resources of device plugins: {MOST_RESOURCES} are allowed")

    async def take(self, resource: str, socket: Path, options: object | None) -> None:
        """Use a plugin instead of the one that served the resource before. Raise PluginError."""
        from agent.devices.plugin import Options, Plugin

        plugin = Plugin(resource, socket, options if isinstance(options, Options) else None)
        try:
            await plugin.ready()
            if options is None:
                await plugin.ask_options()
        except (TimeoutError, CRIError) as error:
            await plugin.close()
            raise PluginError(f"failed to dial device plugin with socketPath {socket}: {error}") from error
        if self._group is None:
            await plugin.close()
            raise PluginError("device plugins cannot be registered at the moment")
        task = self._group.create_task(self._follow(plugin), name=f"device plugin {resource}")
        self._followed[resource] = task

    async def _follow(self, plugin: Plugin) -> None:
        """Follow a plugin; an unexpected error loses this plugin alone, until it registers again."""
        try:
            await cancellation.as_error(self._devices.follow(plugin))
        except Exception:
            log.exception("device plugin of %s", plugin.resource)

    # -- plugins that show up in plugins_registry instead (agent.plugins.handler.PluginHandler) -----------------------------
    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Refuse another version or a name that is no extended resource's. Raise PluginError."""
        self._check(name, versions)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Take the plugin into use. Raise PluginError."""
        await self.take(name, Path(endpoint), None)

    async def deregister(self, name: str, endpoint: str) -> None:
        """Release the plugin."""
        task, plugin = self._followed.pop(name, None), self._devices.plugin(name)
        if task is not None and plugin is not None and str(plugin.socket) == endpoint:
            task.cancel()


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    for entry in folder.iterdir():
        if entry.name != FILE and not entry.is_dir():
            with contextlib.suppress(FileNotFoundError):
                entry.unlink()
