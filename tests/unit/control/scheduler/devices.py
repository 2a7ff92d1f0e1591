"""Short ways to make devices, classes and claims, and a cluster that has some."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from control.scheduler.devices.allocated_devices import AllocatedDevices
from control.scheduler.devices.allocation import DeviceSearch
from control.scheduler.devices.budget import SearchBudget
from control.scheduler.devices.device_usage import DeviceResult
from control.scheduler.devices.inventory import Inventory
from control.scheduler.devices.requests import claim_to_allocate
from control.scheduler.devices.results import allocation
from kube import serialize
from kube.api import core_v1, meta_v1, resource_v1
from kube.informer import Change
from kube.object_names import name_of

DRIVER = "driver.example.com"
KINDS = {
    "DeviceClass": resource_v1.DeviceClass,
    "ResourceSlice": resource_v1.ResourceSlice,
    "ResourceClaim": resource_v1.ResourceClaim,
    "ResourceClaimTemplate": resource_v1.ResourceClaimTemplate,
}


def read(text: str) -> list[Any]:
    """Make objects of YAML documents."""
    return [serialize.convert(found, KINDS[found["kind"]]) for found in yaml.safe_load_all(text)]


def node(name: str = "worker-1", **labels: str) -> core_v1.Node:
    return core_v1.Node(metadata=meta_v1.ObjectMeta(name=name, labels=labels))


def slice_of(
    *devices: dict[str, Any], name: str = "slice", pool: str = "pool", **spec: Any
) -> resource_v1.ResourceSlice:
    """A slice of a pool, on worker-1 where nothing else is said; devices are names or JSON."""
    place = (
        {}
        if {"allNodes", "nodeSelector", "nodeName", "perDeviceNodeSelection"} & spec.keys()
        else {"nodeName": "worker-1"}
    )
    driver = spec.pop("driver", DRIVER)
    generation, count = spec.pop("generation", 1), spec.pop("count", 1)
    return serialize.convert(
        {
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                "devices": list(devices),
                **place,
                **spec,
            },
        },
        resource_v1.ResourceSlice,
    )


def device(name: str, attributes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    kinds = {bool: "bool", int: "int", str: "string"}
    given = {key: {kinds[type(value)]: value} for key, value in (attributes or {}).items()}
    capacity = {key: {"value": value} for key, value in more.pop("capacity", {}).items()}
    return {"name": name, "attributes": given, "capacity": capacity, **more}


def class_of(name: str = "gpu", *selectors: str, **spec: Any) -> resource_v1.DeviceClass:
    found = [{"cel": {"expression": text}} for text in selectors]
    return serialize.convert(
        {"metadata": {"name": name}, "spec": {"selectors": found, **spec}}, resource_v1.DeviceClass
    )


def request(name: str = "r", selector: str = "", device_class: str = "gpu", **more: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", **more}
    if exactly["allocationMode"] == "ExactCount":
        exactly.setdefault("count", 1)
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


def claim(*requests: dict[str, Any], name: str = "claim", **devices: Any) -> resource_v1.ResourceClaim:
    return serialize.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"},
            "spec": {"devices": {"requests": list(requests), **devices}},
        },
        resource_v1.ResourceClaim,
    )


class Devices:
    """Slices, classes and allocated claims."""

    def __init__(self, *objects: Any) -> None:
        self.inventory, self.allocated = Inventory(), AllocatedDevices()
        self.classes: dict[str, resource_v1.DeviceClass] = {}
        for found in objects:
            if isinstance(found, resource_v1.ResourceSlice):
                self.inventory.add(name_of(found), found)
            elif isinstance(found, resource_v1.DeviceClass):
                self.classes[name_of(found)] = found

    def search(
        self, *claims: resource_v1.ResourceClaim, on: core_v1.Node | None = None
    ) -> list[list[DeviceResult]] | None:
        return self.search_within(SearchBudget(), *claims, on=on)

    def search_within(
        self, budget: SearchBudget, *claims: resource_v1.ResourceClaim, on: core_v1.Node | None = None
    ) -> list[list[DeviceResult]] | None:
        """Search in one go, as where nothing limits what may be spent at once."""
        found = [claim_to_allocate(one, self.classes) for one in claims]
        steps = DeviceSearch(found, self.inventory.view(on or node()), self.allocated, budget).steps()
        with budget, pytest.raises(StopIteration) as end:
            next(steps)
        result: list[list[DeviceResult]] | None = end.value.value
        return result

    def names(self, *claims: resource_v1.ResourceClaim, on: core_v1.Node | None = None) -> list[str] | None:
        """Return the devices that claims are given, None if they are given none."""
        found = self.search(*claims, on=on)
        return None if found is None else [result.device.entry.name for part in found for result in part]

    def allocate(self, one: resource_v1.ResourceClaim, on: core_v1.Node | None = None) -> resource_v1.AllocationResult:
        """Give a claim its devices, so that others cannot have them."""
        where = on or node()
        found = self.search(one, on=where)
        assert found is not None
        result = allocation(claim_to_allocate(one, self.classes), found[0], where)
        one.status.allocation = result
        self.allocated.changed(change(one))
        return result


def change(new: Any, old: Any = None, type: str = "ADDED") -> Change[Any]:
    return Change(type, old, new)
