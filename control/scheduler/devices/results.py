"""Allocation results written into a claim: devices, configuration for drivers, and the nodes that can use them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from control.scheduler.devices.device_usage import DeviceResult
from control.scheduler.devices.requests import ClaimToAllocate
from kube import quantity
from kube.api import core_v1, resource_v1


def allocation(
    to_allocate: ClaimToAllocate, allocated: Sequence[DeviceResult], node: core_v1.Node
) -> resource_v1.AllocationResult:
    """Return the allocation of one claim with the devices found on a node."""
    devices = resource_v1.DeviceAllocationResult(
        results=[_result(one) for one in allocated], config=_configuration(to_allocate, allocated)
    )
    return resource_v1.AllocationResult(devices=devices, node_selector=_node_selector(allocated, node))


def _result(result: DeviceResult) -> resource_v1.DeviceRequestAllocationResult:
    alternative, device = result.alternative, result.device
    published = {name.removeprefix(f"{device.driver}/"): name for name in device.entry.capacity}
    families = {
        name: "binary" if str(c.value).endswith("i") else "decimal" for name, c in device.entry.capacity.items()
    }
    consumed = {published[name]: amount for name, amount in result.consumed.items()}
    return resource_v1.DeviceRequestAllocationResult(
        request=alternative.name,
        driver=device.driver,
        pool=device.pool,
        device=device.entry.name,
        admin_access=True if alternative.admin else None,
        tolerations=list(alternative.tolerations.all),
        binding_conditions=device.entry.binding_conditions,
        binding_failure_conditions=device.entry.binding_failure_conditions,
        share_id=str(uuid.uuid4()) if device.shared else None,
        consumed_capacity={name: quantity.render(amount, families[name]) for name, amount in consumed.items()},
    )


def _configuration(
    to_allocate: ClaimToAllocate, allocated: Sequence[DeviceResult]
) -> list[resource_v1.DeviceAllocationConfiguration]:
    """Return the classes' configuration for each request, then the claim's own, which overrides it because it is later."""
    found = []
    chosen = {one.alternative.name: one.alternative for one in allocated}
    for alternative in chosen.values():
        found += [
            resource_v1.DeviceAllocationConfiguration(
                source="FromClass", requests=[alternative.name], opaque=one.opaque
            )
            for one in alternative.device_class.spec.config
        ]
    names = chosen.keys() | {alternative.request for alternative in chosen.values()}
    for one in to_allocate.claim.spec.devices.config if to_allocate.claim.spec.devices else ():
        if not one.requests or names & set(one.requests):
            found.append(
                resource_v1.DeviceAllocationConfiguration(source="FromClaim", requests=one.requests, opaque=one.opaque)
            )
    return found


def _node_selector(allocated: Sequence[DeviceResult], node: core_v1.Node) -> core_v1.NodeSelector | None:
    """Return the nodes from which all devices can be used; None: all of them."""
    expressions, fields = _Requirements(), _Requirements()
    for one in allocated:
        spec, device = one.device.slice.spec, one.device.entry
        place = device if spec.per_device_node_selection else spec
        if place.node_name or device.binds_to_node:
            name = core_v1.NodeSelectorRequirement(
                key="metadata.name", operator="In", values=[node.metadata.name or ""]
            )
            return _selector([], [name])
        for term in place.node_selector.node_selector_terms[:1] if place.node_selector is not None else ():
            expressions.add(term.match_expressions)
            fields.add(term.match_fields)
    return _selector(expressions.each(), fields.each()) if expressions or fields else None


class _Requirements(dict[tuple[str, str, tuple[str, ...]], core_v1.NodeSelectorRequirement]):
    """Requirements of the slices, each once; a slice may have tens of thousands."""

    def add(self, requirements: Iterable[core_v1.NodeSelectorRequirement]) -> None:
        for one in requirements:
            self.setdefault((one.key, one.operator, tuple(one.values)), one)

    def each(self) -> list[core_v1.NodeSelectorRequirement]:
        return list(self.values())


def _selector(
    expressions: list[core_v1.NodeSelectorRequirement], fields: list[core_v1.NodeSelectorRequirement]
) -> core_v1.NodeSelector:
    term = core_v1.NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    return core_v1.NodeSelector(node_selector_terms=[term])
