"""resource.k8s.io: rejected classes, claims, statuses and slices, with upstream's messages."""

from __future__ import annotations

from typing import Any

import pytest

from control.registry.resource.claims import ResourceClaimStrategy, ResourceSliceStrategy
from control.registry.resource.classes import DeviceClassStrategy
from control.registry.resource.slices import ONE_PLACE
from kube import resources
from kube.api import resource_v1
from kube.json_object import Object

CLASSES = DeviceClassStrategy(resources.of(resource_v1.DeviceClass))
CLAIMS = ResourceClaimStrategy(resources.of(resource_v1.ResourceClaim))
SLICES = ResourceSliceStrategy(resources.of(resource_v1.ResourceSlice))


def request(name: str = "r", **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def claim(*requests: Object, **devices: Any) -> Object:
    found = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests), **devices}}}
    CLAIMS.default(found)
    return found


def messages(errors: list[Any]) -> list[str]:
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
            [],
        ),
        (
            claim(request(tolerations=[{"operator": "Exists", "effect": "No"}])),
            [
                f'{REQUESTS}.tolerations[0].effect: Unsupported value: "No": supported values: "NoExecute", "NoSchedule", '
                '"None"'
            ],
        ),
        (claim(request(), request()), ['spec.devices.requests[1]: Duplicate value: "r"']),
        (
            claim(request(), constraints=[{"matchAttribute": "numa"}]),
            [
                'spec.devices.constraints[0].matchAttribute: Invalid value: "numa": a fully qualified name must be a domain '
                "and a name separated by a slash"
            ],
        ),
        (
            claim(request(), constraints=[{"requests": ["x"], "matchAttribute": "d/n"}]),
            [
                'spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim '
                "or the name of a request and a subrequest separated by '/'"
            ],
        ),
        (
            claim(request(), constraints=[{}]),
            [
                'spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is '
                "required, but multiple fields are set"
            ],
        ),
        (claim(request(), config=[{}]), ["spec.devices.config[0].opaque: Required value"]),
        (
            claim(request(), config=[{"opaque": {"driver": "d"}}]),
            ["spec.devices.config[0].opaque.parameters: Required value"],
        ),
    ],
)
def test_claims(obj: Object, errors: list[str]) -> None:
    assert messages(CLAIMS.validate(obj)) == errors


MATCH = {"matchAttribute": "d/numa"}


def named(number: int) -> list[str]:
    return [f"r{n}" for n in range(number)]


@pytest.mark.parametrize(
    ("obj", "path", "most"),
    [
        (claim(*map(request, named(33))), "spec.devices.requests", 32),
        (claim(request(), constraints=[MATCH] * 33), "spec.devices.constraints", 32),
        (claim(request(), constraints=[MATCH | {"requests": named(33)}]), "spec.devices.constraints[0].requests", 32),
        (claim(request(), config=[OPAQUE] * 33), "spec.devices.config", 32),
        (claim(request(), config=[OPAQUE | {"requests": named(33)}]), "spec.devices.config[0].requests", 32),
        (claim(request(selectors=[{}] * 33)), f"{REQUESTS}.selectors", 32),
        (claim({"name": "r", "firstAvailable": [{}] * 9}), "spec.devices.requests[0].firstAvailable", 8),
    ],
)
def test_the_lists_of_a_claim_are_limited(obj: Object, path: str, most: int) -> None:
    [error] = CLAIMS.validate(obj)
    assert (error.path, error.body) == (path, f"Too many: {most + 1}: must have at most {most} items")


def test_a_stored_claim_with_longer_lists_can_be_updated() -> None:
    old = claim(request(), constraints=[MATCH] * 33)
    assert CLAIMS.validate_update(old | {"metadata": {"name": "c", "labels": {"a": "b"}}}, old) == []
    assert CLAIMS.validate_status_update(old | {"status": {"allocation": ALLOCATED}}, old) == []


def test_alternatives_can_be_named_with_their_request() -> None:
    part = {"name": "large", "deviceClassName": "gpu"}
    found = claim({"name": "r", "firstAvailable": [part]}, config=[{**OPAQUE, "requests": ["r/large"]}])
    assert CLAIMS.validate(found) == []
    assert found["spec"]["devices"]["requests"][0]["firstAvailable"][0]["count"] == 1


def test_an_expression_that_may_cost_too_much_is_refused() -> None:
    loops = 'device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a + b + c != "x")))'
    found = messages(CLAIMS.validate(claim(request(selectors=[{"cel": {"expression": loops}}]))))
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
    assert messages(CLAIMS.validate_status_update(before | {"status": status}, before)) == errors


@pytest.mark.parametrize(
    ("devices", "path", "most"),
    [
        ({"results": [RESULT] * 33}, "results", 32),
        ({"results": [RESULT], "config": [OPAQUE | {"source": "FromClass"}] * 65}, "config", 64),
        (
            {"results": [RESULT | {"bindingConditions": named(5), "bindingFailureConditions": ["f"]}]},
            "results[0].bindingConditions",
            4,
        ),
    ],
)
def test_a_new_allocation_is_limited_and_a_stored_one_stays(devices: Object, path: str, most: int) -> None:
    before, after = claim(request()), claim(request()) | {"status": {"allocation": {"devices": devices}}}
    [error] = CLAIMS.validate_status_update(after, before)
    assert (error.path, error.body) == (
        f"status.allocation.devices.{path}",
        f"Too many: {most + 1}: must have at most {most} items",
    )
    assert CLAIMS.validate_status_update(after, after) == []


@pytest.mark.parametrize(
    ("state", "path", "most"),
    [
        ({"conditions": [{}] * 9}, "conditions", 8),
        ({"networkData": {"ips": ["1.1.1.1/8"] * 17}}, "networkData.ips", 16),
    ],
)
def test_the_status_of_a_device_is_limited(state: Object, path: str, most: int) -> None:
    part = {key: value for key, value in RESULT.items() if key != "request"}
    before = claim(request())
    status = {"allocation": ALLOCATED, "devices": [part | state]}
    [error] = CLAIMS.validate_status_update(before | {"status": status}, before)
    assert (error.path, error.detail) == (f"status.devices[0].{path}", f"must have at most {most} items")


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
    assert messages(CLASSES.validate({"metadata": {"name": "c"}, "spec": spec})) == errors


def published(*devices: Object, **spec: Any) -> Object:
    pool = {"name": "p", "resourceSliceCount": 1, "generation": 1}
    place = {} if "perDeviceNodeSelection" in spec else {"nodeName": "n"}
    return {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, **place, "devices": list(devices), **spec}}


def shared(policy: Object) -> Object:
    capacity = {"m": {"value": "4", "requestPolicy": policy}}
    return published({"name": "a", "allowMultipleAllocations": True, "capacity": capacity})


FAILED, POLICY = "spec.devices[0].bindingFailureConditions", "spec.devices[0].capacity[m].requestPolicy"
LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("obj", "errors"),
    [
        (published({"name": "a", "attributes": {"n": {"int": 1}}, "taints": [{"key": "k", "effect": "None"}]}), []),
        (
            published({"name": "a", "attributes": {"n": {}}}),
            ['spec.devices[0].attributes[n]: Invalid value: "": exactly one value must be specified'],
        ),
        (
            published({"name": "a", "taints": [{"key": "k", "value": "-"}, {"key": "k", "effect": "No"}]}),
            [
                f'spec.devices[0].taints[0].value: Invalid value: "-": {LABEL}',
                "spec.devices[0].taints[0].effect: Required value",
                'spec.devices[0].taints[1].effect: Unsupported value: "No": supported values: "NoExecute", "NoSchedule", '
                '"None"',
            ],
        ),
        (
            published({"name": "a"}, perDeviceNodeSelection=True),
            [
                "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "
                "when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            published({"name": "a", "nodeName": "n", "allNodes": True}, perDeviceNodeSelection=True),
            [
                'spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, or '
                "`allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            published({"name": "a", "allNodes": True}),
            [
                "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if "
                "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            published({"name": "a"}, allNodes=True),
            [f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_PLACE}, but multiple fields are set'],
        ),
        (
            published({"name": "a"}, nodeName="", allNodes=False),
            [
                'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
                "spec.allNodes: Invalid value: false: must be either unset or set to true",
                f"spec: Required value: {ONE_PLACE}",
            ],
        ),
        (
            published({"name": "a"}, sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}]),
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
        ),
        (
            published(
                sharedCounters=[{"name": "s", "counters": {}}, {"name": "s", "counters": {"c": {}}}], devices=None
            ),
            [
                "spec.sharedCounters[0].counters: Required value",
                'spec.sharedCounters[1]: Duplicate value: "s"',
            ],
        ),
        (published({"name": "a"}, {"name": "a"}), ['spec.devices[1]: Duplicate value: "a"']),
        (
            published(
                {"name": "a", "attributes": {"v": {"version": "1.0"}, "s": {"string": "x" * 65}, "l": {"strings": []}}}
            ),
            [
                'spec.devices[0].attributes[v].version: Invalid value: "1.0": must be a string compatible with semver.org '
                "spec 2.0.0",
                "spec.devices[0].attributes[s].string: Too long: may not be more than 64 bytes",
                "spec.devices[0].attributes[l].strings: Invalid value: []: must not be empty if specified",
            ],
        ),
        (published({"name": "a", "attributes": {"d.example.com/v": {"version": "1.0.0-rc.1+b.2"}}}), []),
        (
            published({"name": "a", "attributes": {"/": {"int": 1}}}),
            [
                'spec.devices[0].attributes: Invalid value: "": the domain must not be empty',
                'spec.devices[0].attributes: Invalid value: "": the name must not be empty',
            ],
        ),
        (
            published({"name": "a", "bindingConditions": ["r", "s"], "bindingFailureConditions": ["r", "r"]}),
            [
                f'{FAILED}[0]: Invalid value: "r": bindingFailureConditions must not overlap with bindingConditions',
                f'{FAILED}[1]: Duplicate value: "r"',
                f'{FAILED}[1]: Invalid value: "r": bindingFailureConditions must not overlap with bindingConditions',
            ],
        ),
        (
            published({"name": "a", "bindingConditions": ["r"]}),
            [f"{FAILED}: Invalid value: null: bindingFailureConditions are required to use bindingConditions"],
        ),
        (published({"name": "a", "bindingConditions": ["r"], "bindingFailureConditions": ["f"]}), []),
        (shared({"default": "1", "validValues": ["1", "2"]}), []),
        (
            published({"name": "a", "capacity": {"m": {"value": "4", "requestPolicy": {}}}}),
            [f"{POLICY}: Forbidden: allowMultipleAllocations must be true"],
        ),
        (
            shared({"validValues": ["1"], "validRange": {}}),
            [
                f'{POLICY}: Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" '
                "at the same time"
            ],
        ),
        (
            shared({"default": "3", "validValues": ["2", "1", "5", "1"]}),
            [
                f'{POLICY}.validValues[1]: Invalid value: "1": values must be sorted in ascending order',
                f'{POLICY}.validValues[3]: Invalid value: "1": values must be sorted in ascending order',
                f'{POLICY}.validValues[2]: Invalid value: "5": option is larger than capacity value: 4',
                f'{POLICY}.validValues[3]: Duplicate value: "1"',
                f'{POLICY}.validValues: Invalid value: "3": default value is not valid according to the requestPolicy',
            ],
        ),
        (
            shared({"validRange": {"min": "1"}}),
            [f"{POLICY}.default: Required value: required when validRange is defined"],
        ),
        (
            shared({"default": "9", "validRange": {"min": "6", "max": "5", "step": "2"}}),
            [
                f'{POLICY}.validRange.min: Invalid value: "6": min is larger than capacity value: 4',
                f'{POLICY}.validRange.max: Invalid value: "6": min is larger than max: 5',
                f'{POLICY}.validRange.max: Invalid value: "5": max is larger than capacity value: 4',
                f'{POLICY}.validRange.max: Invalid value: "9": default is more than max: 5',
                f'{POLICY}.validRange.step: Invalid value: "2": one step 8 is larger than capacity value: 4',
                f'{POLICY}.validRange.step: Invalid value: "9": value is not a multiple of a given step (2) from (6)',
                f'{POLICY}.validRange.step: Invalid value: "5": value is not a multiple of a given step (2) from (6)',
            ],
        ),
        (shared({"default": "2", "validRange": {"min": "1", "max": "4", "step": "1"}}), []),
        (
            shared({"default": "1e30", "validRange": {"min": "0", "step": "1m"}}),
            [],  # more digits than Decimal's context has
        ),
        (published({"name": "a", "allNodes": True}, perDeviceNodeSelection=True), []),
    ],
)
def test_slices(obj: Object, errors: list[str]) -> None:
    assert messages(SLICES.validate(obj)) == errors


TAINT = {"key": "a", "effect": "NoSchedule"}
SETS = [{"name": f"s{n}", "counters": {"c": {"value": "1"}}} for n in range(9)]


@pytest.mark.parametrize(
    ("obj", "path", "detail"),
    [
        (published({"name": "a", "taints": [TAINT] * 17}), "spec.devices[0].taints", "must have at most 16 items"),
        (published(sharedCounters=SETS, devices=None), "spec.sharedCounters", "must have at most 8 items"),
        (
            published(
                sharedCounters=[{"name": "s", "counters": {f"c{n}": {"value": "1"} for n in range(33)}}], devices=None
            ),
            "spec.sharedCounters[0].counters",
            "must have at most 32 items",
        ),
        (
            published({"name": "a", "consumesCounters": [{"counterSet": f"s{n}", "counters": {}} for n in range(3)]}),
            "spec.devices[0].consumesCounters",
            "must have at most 2 items",
        ),
        (
            published({"name": "a", "attributes": {"a": {"ints": list(range(49))}}}),
            "spec.devices[0]",
            "the total number of attribute values must not exceed 48",
        ),
        (
            published(*({"name": f"d{n}", "taints": [TAINT]} for n in range(65))),
            "spec.devices",
            "must have at most 64 items",
        ),
    ],
)
def test_the_lists_of_a_slice_are_limited(obj: Object, path: str, detail: str) -> None:
    [error] = SLICES.validate(obj)
    assert (error.path, error.detail) == (path, detail)


def test_a_slice_keeps_taints_that_were_valid_once_and_not_its_place() -> None:
    old = published({"name": "a", "taints": [{"key": "k", "effect": "Once"}]})
    new = published({"name": "a", "taints": [{"key": "k", "effect": "Once"}], "attributes": {"n": {"int": 1}}})
    assert SLICES.validate_update(new, old) == []
    moved = published({"name": "a"}, nodeName="m")
    assert messages(SLICES.validate_update(moved, old)) == ['spec.nodeName: Invalid value: "m": field is immutable']
