"""Finding devices: selectors, counts, alternatives, constraints, pools, taints, counters, capacity; one table entry a rule."""

from __future__ import annotations

import itertools
import math

import pytest

from control.scheduler.devices import requests, selector_results
from control.scheduler.devices.allocation import PoolNotReady
from control.scheduler.devices.budget import SearchBudget, SearchTimeout
from control.scheduler.devices.requests import DeviceError
from control.scheduler.devices.selector_results import MOST_PER_DEVICE, MOST_SELECTORS, SelectorResults, digest_of
from kube.api import resource_v1

from .devices import DRIVER, Devices, change, claim, class_of, device, node, read, request, slice_of

GPUS = slice_of(
    device("a", {"model": "small", "numa": 0}, capacity={"memory": "16Gi"}),
    device("b", {"model": "large", "numa": 0}, capacity={"memory": "64Gi"}),
    device("c", {"model": "large", "numa": 1}, capacity={"memory": "64Gi"}),
)
MODEL = f'device.attributes["{DRIVER}"].model'


def rack(*more) -> Devices:
    return Devices(GPUS, class_of(), *more)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", ["a"]),
        (f'{MODEL} == "large"', ["b"]),
        (f'device.driver == "{DRIVER}" && {MODEL} == "large"', ["b"]),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("32Gi")) >= 0', ["b"]),
        (f'device.capacity["{DRIVER}"].memory == quantity("64Gi")', ["b"]),
        (f'device.attributes["{DRIVER}"].numa > 0', ["c"]),
        ('device.driver == "somebody.else"', None),
        ('"somebody.else" in device.attributes', None),
        ('has(device.attributes["somebody.else"].model)', None),
        (f'!has(device.attributes["somebody.else"].model) && {MODEL} == "large"', ["b"]),
        (f'cel.bind(dev, device.attributes["{DRIVER}"], dev.model == "large" && dev.numa == 1)', ["c"]),
        (f'device.attributes["{DRIVER}"].?missing.orValue("none") == "none"', ["a"]),
    ],
)
def test_a_selector_chooses_devices(selector: str, found: list[str] | None) -> None:
    assert rack().names(claim(request(selector=selector))) == found


def test_the_class_narrows_what_its_requests_can_have() -> None:
    devices = Devices(GPUS, class_of("big", f'{MODEL} == "large"'))
    assert devices.names(claim(request(device_class="big"))) == ["b"]
    wanted = claim(request(device_class="big", selector=f'{MODEL} == "small"'))
    assert devices.names(wanted) is None


def test_a_selector_that_fails_is_an_error_and_no_mismatch() -> None:
    with pytest.raises(DeviceError, match=r"claim default/claim: selector #0: CEL runtime error: no such key: colour"):
        rack().search(claim(request(selector=f'device.attributes["{DRIVER}"].colour == "red"')))
    with pytest.raises(DeviceError, match=r"class broken: selector #0: CEL compile error"):
        Devices(GPUS, class_of("broken", "device.nothing")).search(claim(request(device_class="broken")))


def test_a_class_that_does_not_exist_is_named() -> None:
    with pytest.raises(requests.MissingClass, match="request r: device class tpu does not exist"):
        rack().search(claim(request(device_class="tpu")))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (claim(request(count=2)), ["a", "b"]),
        (claim(request(count=3)), ["a", "b", "c"]),
        (claim(request(count=4)), None),
        (claim(request("x"), request("y")), ["a", "b"]),
        # The first request leaves the one device to the other that can use nothing else.
        (claim(request("any", count=2), request("small", f'{MODEL} == "small"')), ["b", "c", "a"]),
        (claim(request(allocationMode="All")), ["a", "b", "c"]),
        (claim(request(selector=f'{MODEL} == "large"', allocationMode="All")), ["b", "c"]),
        (claim(request(selector=f'{MODEL} == "none"', allocationMode="All")), None),
        (claim(), []),
    ],
)
def test_requests_get_their_number_of_devices(wanted: resource_v1.ResourceClaim, found: list[str] | None) -> None:
    assert rack().names(wanted) == found


def test_what_one_claim_has_no_other_gets() -> None:
    devices = rack()
    devices.allocate(claim(request(), name="first"))
    assert devices.names(claim(request(), name="second")) == ["b"]
    assert devices.names(claim(request(count=2)), claim(request(), name="more")) is None
    assert devices.names(claim(request(allocationMode="All"))) is None


def test_what_is_decided_but_not_written_is_taken_already() -> None:
    devices = rack()
    result = resource_v1.DeviceRequestAllocationResult(driver=DRIVER, pool="pool", device="a", request="r")
    decided = resource_v1.AllocationResult(devices=resource_v1.DeviceAllocationResult(results=[result]))
    devices.allocated.reserve("uid-other", decided)
    assert devices.names(claim(request())) == ["b"] and devices.allocated.pending("uid-other")
    devices.allocated.settle("uid-other")
    assert devices.names(claim(request())) == ["a"]


def test_an_answer_of_the_server_counts_before_the_watch_shows_it() -> None:
    devices, wanted = rack(), claim(request())
    devices.allocated.changed(change(wanted))
    written = claim(request())
    result = resource_v1.DeviceRequestAllocationResult(driver=DRIVER, pool="pool", device="a", request="r")
    written.status.allocation = resource_v1.AllocationResult(
        devices=resource_v1.DeviceAllocationResult(results=[result])
    )
    written.metadata.resource_version = "7"
    devices.allocated.written(written)
    devices.allocated.changed(change(wanted, wanted, "MODIFIED"))  # a late event of before
    assert devices.names(claim(request(), name="next")) == ["b"]
    freed = claim(request())
    freed.metadata.resource_version = "9"
    devices.allocated.changed(change(freed, written, "MODIFIED"))
    assert devices.names(claim(request(), name="next")) == ["a"]


def test_administrators_see_devices_that_others_use_and_take_none_away() -> None:
    devices = rack()
    devices.allocate(claim(request(), name="user"))
    admin = claim(request(allocationMode="All", adminAccess=True), name="admin")
    assert devices.names(admin) == ["a", "b", "c"]
    result = devices.allocate(admin)
    assert result.devices is not None and all(one.admin_access for one in result.devices.results)
    assert devices.names(claim(request(), name="next")) == ["b"]


# -- alternatives ---------------------------------------------------------------------------------------------------
def first_of(*parts: tuple[str, str, int]) -> dict[str, object]:
    found = []
    for name, selector, count in parts:
        part = request(name, selector, count=count)
        found.append({"name": name, **part["exactly"]})
    return {"name": "r", "firstAvailable": found}


def test_the_first_alternative_that_can_be_had_is_taken() -> None:
    huge = ("huge", f'{MODEL} == "huge"', 1)
    large, small = ("large", f'{MODEL} == "large"', 2), ("small", f'{MODEL} == "small"', 1)
    found = rack().search(claim(first_of(huge, large, small)))
    assert found is not None
    assert [(t.device.entry.name, t.alternative.name) for t in found[0]] == [("b", "r/large"), ("c", "r/large")]


def test_a_later_alternative_is_taken_where_the_first_leaves_nothing_for_others() -> None:
    wanted = claim(first_of(("many", "", 3), ("one", "", 1)), request("other"))
    found = rack().search(wanted)
    assert found is not None and [t.alternative.name for t in found[0]] == ["r/one", "other"]


# -- constraints ----------------------------------------------------------------------------------------------------
def test_devices_share_the_value_of_an_attribute() -> None:
    match = {"matchAttribute": f"{DRIVER}/model"}
    assert rack().names(claim(request(count=2), constraints=[match])) == ["b", "c"]
    only = {**match, "requests": ["x"]}
    assert rack().names(claim(request("x"), request("y"), constraints=[only])) == ["a", "b"]


def test_devices_have_different_values_of_an_attribute() -> None:
    distinct = {"distinctAttribute": f"{DRIVER}/model"}
    assert rack().names(claim(request(count=2), constraints=[distinct])) == ["a", "b"]
    assert rack().names(claim(request(count=3), constraints=[distinct])) is None


def test_a_device_without_the_attribute_satisfies_no_constraint() -> None:
    wanted = claim(request(), constraints=[{"matchAttribute": f"{DRIVER}/colour"}])
    assert rack().names(wanted) is None


def chosen(requirement: dict[str, object]) -> dict[str, object]:
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}


# -- pools ----------------------------------------------------------------------------------------------------------
def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old, new = slice_of(device("old"), name="s1"), slice_of(device("new"), name="s2", generation=2)
    assert Devices(old, new, class_of()).names(claim(request())) == ["new"]


@pytest.mark.parametrize("generation", [1, 2])
def test_a_slice_of_another_node_does_not_change_a_nodes_pool(generation: int) -> None:
    """Nodes write slices of their own with any driver's and pool's name and generation."""
    mine = slice_of(device("a"), name="s1")
    evil = slice_of(device("a"), name="s2", generation=generation, nodeName="evil")
    found = Devices(mine, evil, class_of())
    assert found.names(claim(request(allocationMode="All"))) == ["a"]


def test_a_request_for_all_devices_of_an_incomplete_pool_fails() -> None:
    part = Devices(slice_of(device("a"), count=2), class_of())
    assert part.names(claim(request())) == ["a"]
    with pytest.raises(PoolNotReady, match=f"resource pool {DRIVER}/pool is currently being updated"):
        part.search(claim(request(allocationMode="All")))


def test_a_pool_that_names_a_device_twice_gives_none() -> None:
    twice = Devices(slice_of(device("a"), name="s1", count=2), slice_of(device("a"), name="s2", count=2), class_of())
    assert twice.names(claim(request())) is None


def test_pools_and_slices_are_used_in_the_order_of_their_names() -> None:
    devices = Devices(slice_of(device("z"), name="x", pool="b"), slice_of(device("y"), name="w", pool="a"), class_of())
    assert devices.names(claim(request(count=2))) == ["y", "z"]


@pytest.mark.parametrize(
    ("place", "there"),
    [
        ({"nodeName": "worker-1"}, True),
        ({"nodeName": "worker-2"}, False),
        ({"allNodes": True}, True),
        (chosen({"key": "rack", "operator": "In", "values": ["r1"]}), True),
        (chosen({"key": "gpu", "operator": "Exists"}), False),
    ],
)
def test_devices_belong_to_the_nodes_of_their_slice(place: dict[str, object], there: bool) -> None:
    devices = Devices(slice_of(device("a"), **place), class_of())
    assert devices.names(claim(request()), on=node(rack="r1")) == (["a"] if there else None)


def test_each_device_may_select_its_own_nodes() -> None:
    spread = slice_of(device("a", nodeName="worker-2"), device("b", nodeName="worker-1"), perDeviceNodeSelection=True)
    assert Devices(spread, class_of()).names(claim(request())) == ["b"]


def test_a_slice_that_goes_takes_its_devices_with_it() -> None:
    devices = Devices(slice_of(device("a")), class_of())
    devices.inventory.changed(change(slice_of(device("b")), type="MODIFIED"))
    assert devices.names(claim(request())) == ["b"]
    devices.inventory.changed(change(slice_of(device("b")), type="DELETED"))
    assert devices.names(claim(request())) is None


# -- taints ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tolerations", "found"),
    [
        ([], None),
        ([{"operator": "Exists"}], ["a"]),
        ([{"key": "broken", "operator": "Exists", "effect": "NoSchedule"}], ["a"]),
        ([{"key": "broken", "operator": "Equal", "value": "yes"}], ["a"]),
        ([{"key": "broken", "operator": "Equal", "value": "no"}], None),
        ([{"key": "broken", "operator": "Exists", "effect": "NoExecute"}], None),
    ],
)
def test_tainted_devices_are_for_those_that_tolerate_them(tolerations: list[dict[str, str]], found: object) -> None:
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    devices = Devices(slice_of(device("a", taints=[taint])), class_of())
    assert devices.names(claim(request(tolerations=tolerations))) == found


def test_a_taint_without_effect_keeps_nobody_away() -> None:
    hint = {"key": "worn", "effect": "None"}
    assert Devices(slice_of(device("a", taints=[hint])), class_of()).names(claim(request())) == ["a"]


# -- counters and capacity ------------------------------------------------------------------------------------------
PARTITIONS = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: resourceslice-with-countersets
spec:
  nodeName: worker-1
  pool: {name: pool, generation: 1, resourceSliceCount: 2}
  driver: dra.example.com
  sharedCounters:
  - name: gpu-1-counters
    counters: {memory: {value: 8Gi}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: resourceslice-with-devices
spec:
  nodeName: worker-1
  pool: {name: pool, generation: 1, resourceSliceCount: 2}
  driver: dra.example.com
  devices:
  - name: device-1
    consumesCounters: [{counterSet: gpu-1-counters, counters: {memory: {value: 6Gi}}}]
  - name: device-2
    consumesCounters: [{counterSet: gpu-1-counters, counters: {memory: {value: 6Gi}}}]
"""


def test_of_the_documentations_partitions_only_one_can_be_had_at_a_time() -> None:
    devices = Devices(*read(PARTITIONS), class_of())
    assert devices.names(claim(request(count=2))) is None
    devices.allocate(claim(request(), name="one"))
    assert devices.names(claim(request(), name="two")) is None


def shared(**policy: object) -> Devices:
    nic = device("eth1", allowMultipleAllocations=True)
    nic["capacity"] = {"bandwidth": {"value": "10Gi", **({"requestPolicy": policy} if policy else {})}}
    return Devices(slice_of(nic), class_of())


def bandwidth(amount: str, name: str = "claim") -> resource_v1.ResourceClaim:
    return claim(request(capacity={"requests": {"bandwidth": amount}}), name=name)


def test_a_shared_device_is_given_out_until_its_capacity_is_used_up() -> None:
    devices = shared()
    for number in range(5):
        result = devices.allocate(bandwidth("2Gi", f"c{number}"))
        assert result.devices is not None
        assert result.devices.results[0].consumed_capacity == {"bandwidth": "2Gi"}
        assert result.devices.results[0].share_id
    assert devices.names(bandwidth("2Gi", "late")) is None


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        ({}, "3Gi", "3Gi"),
        ({"default": "1Gi", "validRange": {"min": "1Gi"}}, "", "1Gi"),
        ({"default": "1Gi", "validRange": {"min": "2Gi"}}, "1Gi", "2Gi"),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}, "2Gi", "3Gi"),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi"}}, "5Gi", None),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi", "8Gi"]}, "2Gi", "4Gi"),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}, "5Gi", None),
        ({}, "", "10Gi"),
        ({}, "11Gi", None),
    ],
)
def test_a_request_takes_what_the_policy_rounds_it_to(policy: dict[str, object], asked: str, taken: str | None) -> None:
    found = shared(**policy).search(bandwidth(asked) if asked else claim(request()))
    assert (found is None) == (taken is None)
    if taken is not None:
        result = shared(**policy).allocate(bandwidth(asked) if asked else claim(request()))
        assert result.devices is not None and result.devices.results[0].consumed_capacity == {"bandwidth": taken}


def test_a_device_that_is_not_shared_must_be_large_enough() -> None:
    wanted = claim(request(capacity={"requests": {"memory": "32Gi"}}))
    assert rack().names(wanted) == ["b"]
    assert rack().names(claim(request(capacity={"requests": {"cores": "1"}}))) is None


def test_a_search_without_end_is_given_up() -> None:
    many = slice_of(*(device(f"d{number}", {"n": number}) for number in range(60)))
    wanted = claim(request("x", count=16), request("y", selector="false"))
    devices = Devices(many, class_of())
    with pytest.raises(SearchTimeout, match="timed out trying to allocate devices"):
        devices.search_within(SearchBudget(0.0), wanted)


def racks(selectors: int, *, everything: bool = False) -> tuple[Devices, resource_v1.ResourceClaim]:
    """Return 20 devices, and a claim with so many selectors that hold for all."""
    devices = Devices(slice_of(*(device(f"d{number}", {"n": number}) for number in range(20))), class_of())
    wanted = request(allocationMode="All") if everything else request(count=20)
    wanted["exactly"]["selectors"] = [
        {"cel": {"expression": f"device.attributes['driver.example'].?n.orValue(0) >= -{number}"}}
        for number in range(selectors)
    ]
    return devices, claim(wanted)


@pytest.mark.parametrize("everything", [False, True])
def test_the_time_is_looked_at_before_each_selector_is_evaluated(everything: bool) -> None:
    devices, wanted = racks(32, everything=everything)
    looks = itertools.count()
    budget = SearchBudget(seconds=10.0, now=lambda: next(looks))
    with pytest.raises(SearchTimeout):
        devices.search_within(budget, wanted)
    assert next(looks) < 15


def test_the_time_of_an_attempt_is_shared_by_all_nodes_and_passes_only_while_one_is_searched() -> None:
    now = 0.0
    budget = SearchBudget(seconds=10.0, now=lambda: now)
    for _ in range(2):
        with budget:
            now += 5
            budget.check()
        now += 100
    with budget, pytest.raises(SearchTimeout):
        now += 1
        budget.check()


@pytest.mark.parametrize("everything", [False, True])
def test_selectors_that_cost_much_are_evaluated_over_several_attempts(everything: bool) -> None:
    devices, wanted = racks(4, everything=everything)
    for attempt in itertools.count(1):
        budget = SearchBudget(seconds=math.inf, cost=200)
        try:
            found = devices.search_within(budget, wanted)
            break
        except SearchTimeout:
            assert attempt < 80
    assert attempt > 1 and found is not None and len(found[0]) == 20


def test_the_number_of_cached_selector_results_is_limited() -> None:
    known = SelectorResults()
    for number in range(MOST_SELECTORS + 2 * MOST_PER_DEVICE):
        known.put(digest_of(str(number)), True)
        assert known.get(digest_of(str(number))) is True
    assert len(known) <= MOST_PER_DEVICE and known.get(digest_of("0")) is None


def test_cached_verdicts_hold_no_text_of_selectors_and_one_of_equal_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_results, "_numbers", numbers := {})
    of_devices = [SelectorResults() for _ in range(3)]
    for number in range(100):
        expression = f"{number}" + "x" * 10_000
        for known in of_devices:
            known.put(digest_of(expression), f"CEL runtime error: {number}" + "y" * 5000)
    assert all(isinstance(key, bytes) and len(key) == 32 for key in numbers)
    assert len({id(error) for known in of_devices for error in known._known.values()}) == 100


def test_the_number_of_verdicts_of_all_devices_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_results, "MOST_OF_ALL", 8)
    monkeypatch.setattr(SelectorResults, "_cached", 0)
    of_devices = [SelectorResults() for _ in range(6)]
    for known in of_devices:
        for number in range(3):
            known.put(digest_of(str(number)), True)
            assert known.get(digest_of(str(number))) is True
            assert sum(map(len, of_devices)) <= 8
