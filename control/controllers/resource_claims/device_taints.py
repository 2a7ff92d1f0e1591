"""Device taint eviction: pods that use a device with a NoExecute taint which their claim does not tolerate, or not for longer.

Time counts from when the taint was added. A taint that goes before calls the eviction off.
Upstream: pkg/controller/devicetainteviction.
"""

from __future__ import annotations

from control.controllers.context import Context
from control.controllers.pod_disruption import disrupt
from control.controllers.resource_claims.generated_claims import is_done
from kube.api import core_v1, resource_v1
from kube.clock import after, parse_time
from kube.controller import Controller
from kube.device_taints import NO_EXECUTE, tolerates
from kube.informer import Change
from kube.node_affinity import selected_names
from kube.object_names import key_of, namespace_of

_DEVICES, _DEVICE = "devices", "device"
Result = resource_v1.DeviceRequestAllocationResult


def _results(claim: resource_v1.ResourceClaim) -> list[Result]:
    allocation = claim.status.allocation
    return allocation.devices.results if allocation is not None and allocation.devices is not None else []


def _pools(claim: resource_v1.ResourceClaim) -> set[str]:
    return {f"{result.driver}/{result.pool}" for result in _results(claim)}


def _names(slice_: resource_v1.ResourceSlice) -> list[str]:
    """Index function: "driver/pool/device" of each device."""
    pool = slice_.spec.pool.name if slice_.spec.pool is not None else ""
    return [f"{slice_.spec.driver}/{pool}/{device.name}" for device in slice_.spec.devices]


class DeviceTaintEvictionController:
    """Follows slices, claims and pods. Keys are claims."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("device-taint-eviction")
        self._pods = context.informers.of(core_v1.Pod)
        self._claims = context.informers.of(resource_v1.ResourceClaim)
        self._slices = context.informers.of(resource_v1.ResourceSlice)
        self._claims.add_index(_DEVICES, _pools)
        self._slices.add_index(_DEVICE, _names)
        self.controller = Controller("device taint eviction", self.reconcile, workers=2, clock=context.clock)
        self._claims.subscribe(self._claim_changed)
        self._slices.subscribe(self._slice_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _claim_changed(self, change: Change[resource_v1.ResourceClaim]) -> None:
        if change.type != "DELETED" and _results(change.new):
            self.controller.enqueue(change.key)

    def _slice_changed(self, change: Change[resource_v1.ResourceSlice]) -> None:
        spec = change.new.spec
        if any(taint.effect == NO_EXECUTE for device in spec.devices for taint in device.taints):
            pool = spec.pool.name if spec.pool is not None else ""
            for claim in self._claims.by_index(_DEVICES, f"{spec.driver}/{pool}"):
                self.controller.enqueue(key_of(claim))

    def _taints(self, result: Result, nodes: set[str] | None) -> list[resource_v1.DeviceTaint]:
        """Return the NoExecute taints of an allocated device, as the newest of its slices has them.

        A slice of a node counts only if the allocation names that node: its author may write any pool's name into it.
        """
        newest, found = -1, list[resource_v1.DeviceTaint]()
        for slice_ in self._slices.by_index(_DEVICE, f"{result.driver}/{result.pool}/{result.device}"):
            spec, pool = slice_.spec, slice_.spec.pool
            if pool is None or pool.generation < newest or (spec.node_name and spec.node_name not in (nodes or ())):
                continue
            for device in spec.devices:
                if device.name == result.device:
                    newest = pool.generation
                    found = [taint for taint in device.taints if taint.effect == NO_EXECUTE]
        return found

    def _stay(self, claim: resource_v1.ResourceClaim) -> float | None:
        """Return the seconds that the claim's pods may stay, None for ever."""
        shortest: float | None = None
        allocation = claim.status.allocation
        nodes = selected_names(allocation.node_selector if allocation is not None else None)
        for result in _results(claim):
            for taint in self._taints(result, nodes):
                using = [toleration for toleration in result.tolerations if tolerates(toleration, taint)]
                if not using:
                    return 0.0
                limits = [t.toleration_seconds for t in using if t.toleration_seconds is not None]
                for seconds in limits:
                    now = self._clock.now()
                    since = parse_time(taint.time_added) if taint.time_added else now
                    left = (after(since, max(0, seconds)) - now).total_seconds()
                    shortest = max(0.0, left) if shortest is None else max(0.0, min(shortest, left))
        return shortest

    async def reconcile(self, key: str) -> float | None:
        """Evict the pods that one claim is reserved for, now or later, or let them be."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        stay = self._stay(claim)
        if stay is None or stay > 0:
            return stay
        for consumer in claim.status.reserved_for:
            pod = self._pods.get(f"{namespace_of(claim)}/{consumer.name}")
            gone = pod is None or pod.metadata.uid != consumer.uid or pod.metadata.deletion_timestamp is not None
            if consumer.resource == "pods" and pod is not None and not gone and not is_done(pod):
                await self._evict(pod)
        return None

    async def _evict(self, pod: core_v1.Pod) -> None:
        text = f"Marking for deletion Pod {key_of(pod)}"
        self._recorder.event(pod, "Normal", "DeviceTaintManagerEviction", text)
        message = "Device Taint manager: deleting due to NoExecute taint"
        await disrupt(self._client, self._clock, pod, "DeletionByDeviceTaintManager", message)
