"""resource.k8s.io: what is refused of classes, claims, their status, and slices, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from control.registry.resource.claims import ResourceClaimStrategy, ResourceSliceStrategy
from control.registry.resource.classes import DeviceClassStrategy
from kube import resources
from kube.api import resource_v1

Object = dict[str, Any]
CLASSES = DeviceClassStrategy(resources.of(resource_v1.DeviceClass))
CLAIMS = ResourceClaimStrategy(resources.of(resource_v1.ResourceClaim))
SLICES = ResourceSliceStrategy(resources.of(resource_v1.ResourceSlice))


def request(name: str = "r", **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def claim(*requests: Object, **devices: Any) -> Object:
    found = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests), **devices}}}
    CLAIMS.default(found)
    return found


def said(errors: list[Any]) -> list[str]:
    return [f"{error.path}: {error.body}" for error in errors]


OPAQUE = {"opaque": {"driver": "d.example.com", "parameters": {"k": "v"}}}
REQUESTS = "spec.devices.requests[0].exactly"


@pytest.mark.parametrize(
    ("obj", "errors"),
    [
        (claim(), []),
        (claim(request(), config=[OPAQUE], constraints=[{"matchAttribute": "d/numa", "requests": ["r"]}]), []),
        (claim(request(deviceClassName="")), [f"{REQUESTS}.deviceClassName: Required value"]),
        (claim(request(count=-1)), [f"{REQUESTS}.count: Invalid value: -1: must be greater than zero"]),
        (
            claim(request(allocationMode="All", count=2)),
            [f"{REQUESTS}.count: Invalid value: 2: must not be specified when allocationMode is 'All'"],
        ),
        (
            claim(request(selectors=[{"cel": {"expression": "1 + 1"}}])),
            [
                f'{REQUESTS}.selectors[0].cel.expression: Invalid value: "1 + 1": '
                "must evaluate to bool or the unknown type, not int"
            ],
        ),
        (claim(request(selectors=[{}])), [f"{REQUESTS}.selectors[0].cel: Required value"]),
        (
            claim(request(tolerations=[{"operator": "Equal"}])),
            [f"{REQUESTS}.tolerations[0].key: Required value: must be set when operator is Equal"],
        ),
        (claim(request(), request()), ['spec.devices.requests[1].name: Duplicate value: "r"']),
        (
            claim(request(), constraints=[{"matchAttribute": "numa"}]),
            ['spec.devices.constraints[0].matchAttribute: Invalid value: "numa": must include a domain'],
        ),
        (
            claim(request(), constraints=[{"requests": ["x"], "matchAttribute": "d/n"}]),
            [
                'spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim '
                "or the name of a request and a subrequest separated by '/'"
            ],
        ),
        (claim(request(), constraints=[{}]), ["spec.devices.constraints[0].matchAttribute: Required value"]),
        (claim(request(), config=[{}]), ["spec.devices.config[0].opaque: Required value"]),
        (
            claim(request(), config=[{"opaque": {"driver": "d"}}]),
            ["spec.devices.config[0].opaque.parameters: Required value"],
        ),
    ],
)
def test_claims(obj: Object, errors: list[str]) -> None:
    assert said(CLAIMS.validate(obj)) == errors


def test_alternatives_can_be_named_with_their_request() -> None:
    part = {"name": "large", "deviceClassName": "gpu"}
    found = claim({"name": "r", "firstAvailable": [part]}, config=[{**OPAQUE, "requests": ["r/large"]}])
    assert CLAIMS.validate(found) == []
    assert found["spec"]["devices"]["requests"][0]["firstAvailable"][0]["count"] == 1


def test_an_expression_that_may_cost_too_much_is_refused() -> None:
    loops = 'device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a + b + c != "x")))'
    found = said(CLAIMS.validate(claim(request(selectors=[{"cel": {"expression": loops}}]))))
    assert found == [f"{REQUESTS}.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"]


USER = {"resource": "pods", "name": "p", "uid": "u"}
RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
ALLOCATED = {"devices": {"results": [RESULT]}}


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ({"allocation": ALLOCATED, "reservedFor": [USER]}, []),
        (
            {"reservedFor": [USER]},
            ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
        ),
        (
            {"allocation": ALLOCATED, "reservedFor": [USER, USER]},
            ['status.reservedFor[1].uid: Duplicate value: "u"'],
        ),
        ({"allocation": ALLOCATED, "reservedFor": [{}]}, [f"status.reservedFor[0].{k}: Required value" for k in USER]),
        (
            {"allocation": {"devices": {"results": [RESULT | {"request": "other"}]}}},
            [
                'status.allocation.devices.results[0].request: Invalid value: "other": '
                "must be the name of a request in the claim"
            ],
        ),
        (
            {"allocation": ALLOCATED, "reservedFor": [USER | {"uid": str(n)} for n in range(257)]},
            ["status.reservedFor: Too many: 257: must have at most 256 items"],
        ),
    ],
)
def test_the_status_of_a_claim(status: Object, errors: list[str]) -> None:
    before = claim(request())
    assert said(CLAIMS.validate_status_update(before | {"status": status}, before)) == errors


def test_an_allocation_is_given_and_taken_back_but_not_changed() -> None:
    held = claim(request()) | {"status": {"allocation": ALLOCATED}}
    other = {"devices": {"results": [RESULT | {"device": "y"}]}}
    [error] = CLAIMS.validate_status_update(held | {"status": {"allocation": other}}, held)
    assert (error.path, error.detail) == ("status.allocation", "field is immutable")
    assert CLAIMS.validate_status_update(held | {"status": {}}, held) == []


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({}, []),
        ({"selectors": [{"cel": {"expression": 'device.driver == "d"'}}], "config": [OPAQUE]}, []),
        ({"extendedResourceName": "example.com/gpu"}, []),
        (
            {"extendedResourceName": "gpu"},
            ['spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name'],
        ),
        ({"config": [{}]}, ["spec.config[0].opaque: Required value"]),
    ],
)
def test_classes(spec: Object, errors: list[str]) -> None:
    assert said(CLASSES.validate({"metadata": {"name": "c"}, "spec": spec})) == errors


def offered(*devices: Object, **spec: Any) -> Object:
    pool = {"name": "p", "resourceSliceCount": 1, "generation": 1}
    place = {} if "perDeviceNodeSelection" in spec else {"nodeName": "n"}
    return {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, **place, "devices": list(devices), **spec}}


@pytest.mark.parametrize(
    ("obj", "errors"),
    [
        (offered({"name": "a", "attributes": {"n": {"int": 1}}, "taints": [{"key": "k", "effect": "None"}]}), []),
        (
            offered({"name": "a", "attributes": {"n": {}}}),
            ["spec.devices[0].attributes[n]: Required value: exactly one value must be specified"],
        ),
        (
            offered({"name": "a", "taints": [{"effect": "NoSchedule"}]}),
            ["spec.devices[0].taints[0].key: Required value"],
        ),
        (
            offered({"name": "a"}, perDeviceNodeSelection=True),
            [
                "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes` is required "
                "when `perDeviceNodeSelection` is set"
            ],
        ),
        (offered({"name": "a", "allNodes": True}, perDeviceNodeSelection=True), []),
    ],
)
def test_slices(obj: Object, errors: list[str]) -> None:
    assert said(SLICES.validate(obj)) == errors
