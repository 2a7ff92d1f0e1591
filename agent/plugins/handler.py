"""Interface of a plugin type's handler, and the names of the types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

CSI, DEVICE, DRA = "CSIPlugin", "DevicePlugin", "DRAPlugin"
"""The types by which plugins call themselves (kubelet/pkg/apis/pluginregistration/v1/constants.go)."""


class PluginError(Exception):
    """A plugin is refused; the message is sent to it, and the registration is retried later."""


class PluginHandler(Protocol):
    """One type's part of the registry; calls about one socket never overlap."""

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Refuse what cannot work: a name taken, no version in common. Raise PluginError."""

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Take the plugin into use; `endpoint` is the path of its socket. Raise PluginError."""

    async def deregister(self, name: str, endpoint: str) -> None:
        """Remove the plugin: its registration socket is gone or was replaced."""
