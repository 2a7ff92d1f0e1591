"""Client of one plugin's registration interface."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent.plugins.handler import PluginError
from agent.plugins.messages import InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse
from cri.channel import OF_PLUGINS, Channel
from cri.errors import CRIError
from cri.texts import shortened

_SERVICE = "/pluginregistration.Registration"
DIAL_SECONDS, CALL_SECONDS = 10.0, 10.0


class PluginClient:
    """A plugin's registration socket."""

    def __init__(self, socket: Path) -> None:
        self._socket, self._channel = socket, Channel(str(socket), options=OF_PLUGINS)

    async def info(self) -> PluginInfo:
        """Call GetInfo, waiting for the plugin to listen. Raise PluginError."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._channel.ready()
            return await self._channel.unary(f"{_SERVICE}/GetInfo", InfoRequest(), PluginInfo, CALL_SECONDS)
        except TimeoutError:
            raise PluginError(f"no answer from socket {self._socket}") from None
        except CRIError as error:
            raise PluginError(
                f"failed to get plugin info using RPC GetInfo at socket {self._socket}: {error}"
            ) from error

    async def notify(self, problem: str) -> None:
        """Notify the plugin that it is registered, or of the error, of which it gets the beginning. Raise PluginError."""
        status = RegistrationStatus(plugin_registered=not problem, error=shortened(problem))
        path = f"{_SERVICE}/NotifyRegistrationStatus"
        try:
            await self._channel.unary(path, status, RegistrationStatusResponse, CALL_SECONDS)
        except CRIError as error:
            raise PluginError(f"failed to notify the plugin at socket {self._socket}: {error}") from error

    async def aclose(self) -> None:
        """Close the connection."""
        await self._channel.close()
