"""Cluster addresses of Services in other forms than the canonical one, and changes of IP families."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from control.registry.core.service.address_checks import validate_cluster_ips
from control.registry.core.service.defaults import keep_allocated
from control.registry.strategy_context import Outcome
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.cost import Lines
from tests.unit.control.registry.services import Cluster, allocator, named, stored

RANGES = ("10.96.0.0/24", "fd00::/112")


def old(name: str, *addresses: str) -> Object:
    """Return a Service as an older server stored it."""
    families = ["IPv6" if address.lower().startswith("fd") else "IPv4" for address in addresses]
    policy = "RequireDualStack" if len(addresses) > 1 else "SingleStack"
    return named(name, clusterIP=addresses[0], clusterIPs=list(addresses), ipFamilies=families, ipFamilyPolicy=policy)


async def refusal(obj: Object, was: Object | None = None, ranges: tuple[str, ...] = RANGES) -> str:
    with pytest.raises(StatusError) as refused:
        await allocator(ranges).allocate(obj, was, Cluster(*([was] if was else [])))
    assert refused.value.code == 422
    return refused.value.message.partition(" is invalid: ")[2]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"clusterIP": "010.96.0.5"},
            'spec.clusterIPs[0]: Invalid value: "010.96.0.5": must not have leading 0s',
        ),
        (
            {"clusterIP": "::ffff:10.96.0.5"},
            'spec.clusterIPs[0]: Invalid value: "::ffff:10.96.0.5": must not be an IPv4-mapped IPv6 address',
        ),
        (
            {"clusterIP": "x"},
            'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
        ),
        (
            {"clusterIPs": ["10.96.0.5"]},
            'spec.clusterIPs: Invalid value: ["10.96.0.5"]: must be empty when `clusterIP` is not specified',
        ),
        (
            {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "10.96.0.6"], "ipFamilyPolicy": "RequireDualStack"},
            'spec.clusterIPs: Invalid value: ["10.96.0.5","10.96.0.6"]: may specify no more than one IP for each IP family',
        ),
        (
            {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00::5"]},
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when "
            "multiple cluster IPs are specified",
        ),
        (
            {"ipFamilies": ["IPv4", "IPv6"]},
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when "
            "multiple IP families are specified",
        ),
        (
            {"clusterIP": "10.96.0.5", "ipFamilies": ["IPv6"]},
            'spec.clusterIPs[0]: Invalid value: "10.96.0.5": expected an IPv6 value as indicated by `ipFamilies[0]`',
        ),
        (
            {"ipFamilyPolicy": "Any"},
            'spec.ipFamilyPolicy: Unsupported value: "Any": supported values: "PreferDualStack", "RequireDualStack", '
            '"SingleStack"',
        ),
    ],
)
async def test_addresses_and_families_are_checked_before_anything_is_allocated(spec: Object, message: str) -> None:
    assert await refusal(named("a", **spec)) == message


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        (
            {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00::5", "x"]},
            [
                'spec.clusterIPs[2]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
                'spec.clusterIPs: Invalid value: ["10.96.0.5","fd00::5","x"]: may only hold up to 2 values',
            ],
        ),
        (
            {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "10.96.0.6", "10.96.0.7"]},
            [
                'spec.clusterIPs: Invalid value: ["10.96.0.5","10.96.0.6","10.96.0.7"]: may only hold up to 2 values',
                'spec.clusterIPs: Invalid value: ["10.96.0.5","10.96.0.6","10.96.0.7"]: may specify no more than one IP '
                "for each IP family",
            ],
        ),
        ({"ipFamilies": ["IPv4", "IPv6", "IPv4"]}, ['spec.ipFamilies[2]: Duplicate value: "IPv4"']),
    ],
)
async def test_more_than_two_are_rejected_as_upstream(spec: Object, messages: list[str]) -> None:
    refused = await refusal(named("a", **spec))
    assert refused.strip("[]").split(", spec.") == [
        message if number == 0 else message.removeprefix("spec.") for number, message in enumerate(messages)
    ]


@pytest.mark.parametrize("field", ["clusterIPs", "ipFamilies"])
async def test_no_more_than_the_beginning_of_a_long_list_is_read(field: str) -> None:
    counts = []
    for count in (10, 100, 1000):  # the first fills caches
        values = [f"{number:x}::" for number in range(1, count + 1)]
        obj = named("a", **{"clusterIP": "1::", "clusterIPs": ["1::"], field: values})
        with Lines() as lines:
            assert validate_cluster_ips(obj["spec"], None)
        counts.append(lines.count)
    assert counts[1] == counts[2]


async def test_an_address_of_another_family_than_the_clusters_is_rejected() -> None:
    assert await refusal(named("a", clusterIP="fd00::5"), ranges=("10.96.0.0/24",)) == (
        'spec.clusterIPs[0]: Invalid value: ["fd00::5"]: IPv6 is not configured on this cluster'
    )


async def test_the_record_of_an_address_has_the_canonical_name_and_stays() -> None:
    found, cluster = allocator(RANGES), Cluster()
    made = await stored(found, cluster, named("a", clusterIP="FD00::0:5"))
    assert made["spec"]["clusterIPs"] == ["FD00::0:5"] and list(cluster.records) == ["fd00::5"]
    cluster.services.append(made)
    cluster.now += timedelta(hours=1)
    await found.repair(cluster)
    assert list(cluster.records) == ["fd00::5"]
    message = await refused_in(found, cluster, named("b", clusterIP="fd00::5"))
    assert message.endswith("failed to allocate IP fd00::5: provided IP is already allocated")
    await found.release(made, cluster)
    assert cluster.records == {}


async def refused_in(found: Any, cluster: Cluster, obj: Object) -> str:
    with pytest.raises(StatusError) as refused:
        await found.allocate(obj, None, cluster)
    return refused.value.message


@pytest.mark.parametrize(("kept", "plain"), [("010.96.0.5", "10.96.0.5"), ("::ffff:10.96.0.5", "10.96.0.5")])
async def test_a_stored_address_in_an_old_form_keeps_its_place(kept: str, plain: str) -> None:
    was = old("a", kept)
    was["spec"]["ipFamilies"] = ["IPv4"]
    found, cluster = allocator(), Cluster(was)
    assert (await refused_in(found, cluster, named("b", clusterIP=plain))).endswith("already allocated")
    await stored(found, cluster, named("c"))
    changed = copy.deepcopy(was)
    changed["spec"]["ports"] = [{"port": 81}]
    assert (await stored(found, cluster, changed, was))["spec"]["clusterIPs"] == [kept]
    await found.repair(cluster)
    assert plain in cluster.records


async def test_a_service_becomes_one_of_a_single_family_by_its_policy_alone() -> None:
    was = old("a", "10.96.0.5", "fd00::5")
    found, cluster = allocator(RANGES), Cluster(was)
    changed = copy.deepcopy(was)
    changed["spec"]["ipFamilyPolicy"] = "SingleStack"
    made = await stored(found, cluster, changed, was)
    assert (made["spec"]["clusterIPs"], made["spec"]["ipFamilies"]) == (["10.96.0.5"], ["IPv4"])
    cluster.services[:] = [made]
    await stored(found, cluster, named("b", clusterIP="fd00::5"))


async def test_a_second_address_is_released_with_the_policy_only() -> None:
    was = old("a", "10.96.0.5", "fd00::5")
    changed = copy.deepcopy(was)
    changed["spec"] |= {"clusterIPs": ["10.96.0.5"], "ipFamilies": ["IPv4"]}
    assert await refusal(changed, was) == (
        "[spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary cluster "
        "IP, spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP "
        "family]"
    )


async def test_a_service_that_prefers_two_families_does_not_change_with_the_cluster() -> None:
    was = old("a", "10.96.0.5")
    was["spec"]["ipFamilyPolicy"] = "PreferDualStack"
    found, cluster = allocator(RANGES), Cluster(was)
    changed = copy.deepcopy(was)
    changed["spec"]["ports"] = [{"port": 81}]
    keep_allocated(changed, was)
    assert (await stored(found, cluster, changed, was))["spec"]["clusterIPs"] == ["10.96.0.5"]
    changed["spec"]["ipFamilyPolicy"] = "RequireDualStack"
    finish = await found.allocate(changed, was, cluster)
    assert [address.partition(":")[0] for address in changed["spec"]["clusterIPs"]] == ["10.96.0.5", "fd00"]
    await finish(Outcome.NOT_STORED)
