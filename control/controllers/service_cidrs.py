"""ServiceCIDRs: sets the Ready condition of ranges, and keeps deleted ranges while their addresses are in use.

A finalizer keeps a deleted range. It is removed when every used address of the range is also in another range that is not
being deleted. Upstream: pkg/controller/servicecidrs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from control.controllers.context import Context
from kube.api import meta_v1, networking_v1
from kube.clock import format_time, parse_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import name_of

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
GRACE_SECONDS = 10.0
"""Seconds for which a deleted range is kept in any case: another server may be allocating an address of it."""
CIDR = networking_v1.ServiceCIDR
_IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"


def only_here(doomed: CIDR, ranges: Iterable[CIDR], addresses: Iterable[str]) -> list[str]:
    """Return the used addresses of a deleted range that no other range contains."""
    own = [ipaddress.ip_network(text) for text in doomed.spec.cidrs]
    others = [
        ipaddress.ip_network(text)
        for other in ranges
        if other.metadata.name != doomed.metadata.name and other.metadata.deletion_timestamp is None
        for text in other.spec.cidrs
    ]
    left = []
    for text in addresses:
        address = ipaddress.ip_address(text)
        if any(address in network for network in own) and not any(address in network for network in others):
            left.append(text)
    return left


class ServiceCIDRController:
    """Watches ServiceCIDRs and IPAddresses."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("service-cidrs-controller")
        self._ranges = context.informers.of(CIDR)
        self._addresses = context.informers.of(networking_v1.IPAddress)
        self.controller = Controller(
            "service CIDRs", self.reconcile, workers=1, queue="ipaddresses", clock=context.clock
        )
        self._ranges.subscribe(self._range_changed)
        self._addresses.subscribe(self._address_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _range_changed(self, change: Change[CIDR]) -> None:
        self.controller.enqueue(change.key)
        self._check()

    def _address_changed(self, change: Change[networking_v1.IPAddress]) -> None:
        if change.type == "DELETED":
            self._check()

    def _check(self) -> None:
        """Enqueue the ranges that are being deleted."""
        for found in self._ranges.list():
            if found.metadata.deletion_timestamp is not None:
                self.controller.enqueue(name_of(found))

    async def reconcile(self, key: str) -> float | None:
        """Set the Ready condition of one range, or remove its finalizer."""
        found = self._ranges.get(key)
        if found is None:
            return None
        if found.metadata.deletion_timestamp is None:
            if FINALIZER not in found.metadata.finalizers:
                await self._finalizers(found, [*found.metadata.finalizers, FINALIZER])
                return None
            await self._ready(found, "True", "", "Kubernetes Service CIDR is ready")
            return None
        if FINALIZER not in found.metadata.finalizers:
            return None
        addresses = [name_of(address) for address in self._addresses.list()]
        if only_here(found, self._ranges.list(), addresses):
            await self._ready(found, "False", "Terminating", _IN_USE)
            return None
        age = (self._clock.now() - parse_time(found.metadata.deletion_timestamp)).total_seconds()
        if age < GRACE_SECONDS:
            return GRACE_SECONDS - age
        await self._finalizers(found, [name for name in found.metadata.finalizers if name != FINALIZER])
        return None

    async def _finalizers(self, found: CIDR, finalizers: list[str]) -> None:
        patch = {
            "finalizers": finalizers,
            "uid": found.metadata.uid,
            "resourceVersion": found.metadata.resource_version,
        }
        try:
            await self._client.patch(CIDR, name_of(found), "", {"metadata": patch})
        except StatusError as error:
            if not error.not_found:
                raise

    async def _ready(self, found: CIDR, status: str, reason: str, message: str) -> None:
        old = next((c for c in found.status.conditions if c.type == "Ready"), None)
        if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
            return
        now = format_time(self._clock.now())
        condition = meta_v1.Condition(
            type="Ready", status=status, reason=reason, message=message, last_transition_time=now
        )
        others = [c for c in found.status.conditions if c.type != "Ready"]
        wanted = networking_v1.ServiceCIDRStatus(conditions=[*others, condition])
        await self._client.update_status(msgspec.structs.replace(found, status=wanted))
        if status == "False":
            self._recorder.event(found, "Warning", f"KubernetesServiceCIDR{reason}", message)
