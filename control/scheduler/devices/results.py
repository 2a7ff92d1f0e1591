"""Allocation results written into a claim: devices, configuration for drivers, and the nodes that can use them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from control.scheduler.devices.allocation import Taken
from control.scheduler.devices.requests import Wanted
from kube import quantity
from kube.api import core_v1, resource_v1


def allocation(wanted: Wanted, taken: Sequence[Taken], node: core_v1.Node) -> resource_v1.AllocationResult:
    """Return the allocation of one claim with the devices found on a node."""
    devices = resource_v1.DeviceAllocationResult(
        results=[_result(one) for one in taken], config=_configuration(wanted, taken)
    )
    return resource_v1.AllocationResult(devices=devices, node_selector=_node_selector(taken, node))


def _result(taken: Taken) -> resource_v1.DeviceRequestAllocationResult:
    need, offer = taken.need, taken.offer
    published = {name.removeprefix(f"{offer.driver}/"): name for name in offer.device.capacity}
    families = {
        name: "binary" if str(c.value).endswith("i") else "decimal" for name, c in offer.device.capacity.items()
    }
    consumed = {published[name]: amount for name, amount in taken.consumed.items()}
    return resource_v1.DeviceRequestAllocationResult(
        request=need.name,
        driver=offer.driver,
        pool=offer.pool,
        device=offer.device.name,
        admin_access=True if need.admin else None,
        tolerations=list(need.tolerations),
        binding_conditions=offer.device.binding_conditions,
        binding_failure_conditions=offer.device.binding_failure_conditions,
        share_id=str(uuid.uuid4()) if offer.shared else None,
        consumed_capacity={name: quantity.render(amount, families[name]) for name, amount in consumed.items()},
    )


def _configuration(wanted: Wanted, taken: Sequence[Taken]) -> list[resource_v1.DeviceAllocationConfiguration]:
    """Return the classes' configuration for each request, then the claim's own, which comes later and so goes before."""
    found = []
    chosen = {one.need.name: one.need for one in taken}
    for need in chosen.values():
        found += [
            resource_v1.DeviceAllocationConfiguration(source="FromClass", requests=[need.name], opaque=one.opaque)
            for one in need.device_class.spec.config
        ]
    names = chosen.keys() | {need.request for need in chosen.values()}
    for one in wanted.claim.spec.devices.config if wanted.claim.spec.devices else ():
        if not one.requests or names & set(one.requests):
            found.append(
                resource_v1.DeviceAllocationConfiguration(source="FromClaim", requests=one.requests, opaque=one.opaque)
            )
    return found


def _node_selector(taken: Sequence[Taken], node: core_v1.Node) -> core_v1.NodeSelector | None:
    """Return the nodes from which all devices can be used; None: all of them."""
    expressions: list[core_v1.NodeSelectorRequirement] = []
    fields: list[core_v1.NodeSelectorRequirement] = []
    for one in taken:
        spec, device = one.offer.slice.spec, one.offer.device
        place = device if spec.per_device_node_selection else spec
        if place.node_name or device.binds_to_node:
            name = core_v1.NodeSelectorRequirement(
                key="metadata.name", operator="In", values=[node.metadata.name or ""]
            )
            return _selector([], [name])
        for term in place.node_selector.node_selector_terms[:1] if place.node_selector is not None else ():
            expressions += [r for r in term.match_expressions if r not in expressions]
            fields += [r for r in term.match_fields if r not in fields]
    return _selector(expressions, fields) if expressions or fields else None


def _selector(
    expressions: list[core_v1.NodeSelectorRequirement], fields: list[core_v1.NodeSelectorRequirement]
) -> core_v1.NodeSelector:
    term = core_v1.NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    return core_v1.NodeSelector(node_selector_terms=[term])
