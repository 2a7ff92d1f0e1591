"""Registry of this node's CSI drivers, which registers each in the CSINode object too.

A driver is in use when it has returned its node ID and the CSINode has it, since others (the scheduler, the attach/detach
controller, the driver's own controller) rely on that. A driver's code is loaded with the first of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.csi.csi_node import CSINodes
from agent.plugins.handler import PluginError
from agent.volumes.payload import VolumeError
from cri.errors import CRIError
from kube.errors import StatusError

if TYPE_CHECKING:
    from agent.csi.driver import CSIClient

_VERSION = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(?:-.*)?")


class CSIDrivers:
    """Handler of CSIPlugin registrations, with the drivers by name."""

    def __init__(self, nodes: CSINodes) -> None:
        self._nodes = nodes
        self._drivers: dict[str, tuple[CSIClient, tuple[int, ...]]] = {}
        self.changed = asyncio.Event()
        """Set when a driver is added or removed; the reader clears it."""

    def get(self, name: str) -> CSIClient:
        """Return a driver that is in use. Raise VolumeError."""
        found = self._drivers.get(name)
        if found is None:
            raise VolumeError(f"driver name {name} not found in the list of registered CSI drivers")
        return found[0]

    def names(self) -> list[str]:
        """List the drivers in use."""
        return sorted(self._drivers)

    def find(self, name: str) -> CSIClient | None:
        found = self._drivers.get(name)
        return found[0] if found is not None else None

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Accept only version 1, and no older version than that of a registered driver of the same name. Raise PluginError."""
        highest = _highest(versions)
        if highest is None:
            listed = " ".join(f'"{version}"' for version in versions)
            raise PluginError(
                f"validation failed for CSI Driver {name} at endpoint {endpoint}: "
                f"none of the CSI versions reported by this driver are supported: [{listed}]"
            )
        known = self._drivers.get(name)
        if known is not None and known[0].endpoint != endpoint and known[1] > highest:
            raise PluginError(
                f"validation failed for CSI Driver {name} at endpoint {endpoint}: "
                "a driver of this name is registered with a higher version"
            )

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Call NodeGetInfo and add the driver to the CSINode. Raise PluginError."""
        from agent.csi.driver import CSIClient  # with the first driver only

        driver = CSIClient(name, endpoint)
        try:
            info = await driver.info()
            if not info.node_id:
                raise PluginError("node_id cannot be empty")
            await self._nodes.add(
                name, info.node_id, dict(info.accessible_topology.segments), info.max_volumes_per_node
            )
        except CRIError as error:
            await driver.close()
            raise PluginError(f"failed to get node info of CSI driver {name}: {error.grpc_text()}") from error
        except StatusError as error:
            await driver.close()
            raise PluginError(f"error updating CSINode object with CSI driver node info: {error}") from error
        except BaseException:
            await driver.close()
            raise
        before = self._drivers.get(name)
        self._drivers[name] = (driver, _highest(versions) or ())
        self.changed.set()
        if before is not None:
            await before[0].close()

    async def deregister(self, name: str, endpoint: str) -> None:
        """Remove a driver whose socket was removed; another registration of the same name is kept."""
        known = self._drivers.get(name)
        if known is None or known[0].endpoint != endpoint:
            return
        del self._drivers[name]
        self.changed.set()
        await known[0].close()
        await self._nodes.remove(name)


def _highest(versions: Sequence[str]) -> tuple[int, ...] | None:
    matches = (_VERSION.fullmatch(version) for version in versions)
    found = [tuple(int(part or 0) for part in match.groups()) for match in matches if match is not None]
    return max((version for version in found if version[0] == 1), default=None)
