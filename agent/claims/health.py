"""Reports the health of the devices of a pod's claims in its containers' statuses (KEP-4680)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.claims.device_health import DeviceHealthCache
from agent.claims.pod_claims import PodClaims
from agent.managers.errors import DynamicResourceError
from kube.api import core_v1


class ClaimHealth:
    """One report on a pod, at a time in epoch seconds: a claim is read once for all containers that use it."""

    def __init__(
        self,
        claims: Mapping[tuple[str, str], ClaimInfo],
        known: DeviceHealthCache,
        pod_claims: PodClaims,
        now: float,
    ) -> None:
        self._claims, self._known, self._pod_claims, self._now = claims, known, pod_claims, now
        self._read: dict[str, _Devices] = {}

    def of(self, container: core_v1.Container, most: int) -> list[core_v1.ResourceStatus]:
        """Return the health of a container's claimed devices, of the first `most`."""
        found = []
        for used in container.resources.claims if container.resources else ():
            if most <= 0:
                break
            try:
                name = self._pod_claims.name(used.name)
            except DynamicResourceError:
                continue
            resources = self._devices(name).of(used.request or "")[:most] if name is not None else []
            most -= len(resources)
            if resources:
                what = f"claim:{used.name}" + (f"/{used.request}" if used.request else "")
                found.append(core_v1.ResourceStatus(name=what, resources=resources))
        return found

    def _devices(self, name: str) -> _Devices:
        devices = self._read.get(name)
        if devices is None:
            claim = self._claims.get((self._pod_claims.namespace, name))
            given = sorted(claim.drivers.items()) if claim is not None else ()
            devices = self._read[name] = _Devices(
                [(self._health(driver, each), each.requests) for driver, devices in given for each in devices]
            )
        return devices

    def _health(self, driver: str, device: ClaimDevice) -> core_v1.ResourceHealth:
        status, message = self._known.of(driver, device.pool, device.device, self._now)
        key = device.cdi[0] if device.cdi else f"{driver}/{device.pool}/{device.device}"
        return core_v1.ResourceHealth(resource_id=key, health=status, message=message or None)


class _Devices:
    """The devices of one claim by the requests that they are for; those without requests are for all."""

    def __init__(self, given: list[tuple[core_v1.ResourceHealth, tuple[str, ...]]]) -> None:
        self._every = [health for health, _ in given]
        self._for_all = {number for number, (_, requests) in enumerate(given) if not requests}
        self._by_request: dict[str, set[int]] = {}
        for number, (_, requests) in enumerate(given):
            for request in requests:
                self._by_request.setdefault(request, set()).add(number)

    def of(self, request: str) -> list[core_v1.ResourceHealth]:
        """Return the health of the devices for a request, "" for all of them; of two of the same name the first counts."""
        chosen = self._every
        if request:
            numbers = self._for_all | self._by_request.get(request.partition("/")[0], set())
            chosen = [self._every[number] for number in sorted(numbers)]
        found: dict[str, core_v1.ResourceHealth] = {}
        for health in chosen:
            found.setdefault(health.resource_id, health)
        return list(found.values())
