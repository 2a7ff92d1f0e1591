"""Cache of the device health that DRA drivers report (KEP-4680); each report is valid for the timeout in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cri.texts import shortened

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
DEFAULT_SECONDS = 30
MOST_MESSAGE = 1024
"""Characters of a driver's message about a device."""


@dataclass(frozen=True, slots=True)
class Health:
    """One device's health at a moment (epoch seconds), and for how many seconds that holds; of a long message the beginning."""

    pool: str
    device: str
    status: str = UNKNOWN
    message: str = ""
    at: float = 0.0
    holds: int = DEFAULT_SECONDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shortened(self.message, MOST_MESSAGE))


class DeviceHealthCache:
    """All drivers' devices; `changed` is called when one is in another state than before."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[str, dict[tuple[str, str], Health]] = {}

    def update(self, driver: str, found: Iterable[Health]) -> None:
        """Replace a driver's report on all its devices."""
        before = self._known.get(driver, {})
        now = self._known[driver] = {(health.pool, health.device): health for health in found}
        states = [{key: (h.status, h.message) for key, h in known.items()} for known in (before, now)]
        if states[0] != states[1]:
            self._changed()

    def forget(self, driver: str) -> None:
        """Drop a driver's report."""
        if self._known.pop(driver, None):
            self._changed()

    def of(self, driver: str, pool: str, device: str, now: float) -> tuple[str, str]:
        """Return a device's state and the driver's message."""
        health = self._known.get(driver, {}).get((pool, device))
        if health is None or now - health.at > health.holds:
            return UNKNOWN, ""
        return health.status, health.message
