"""EndpointSlices and Endpoints from pods: content, packing, and the fewest changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.endpoints import mirrored_slices, slice_plan
from control.controllers.endpoints.backends import find_port, hostname_of, named_ports
from control.controllers.endpoints.endpoints import MOST_ADDRESSES, subsets_of, truncated
from control.controllers.endpoints.slice_plan import plan
from control.controllers.endpoints.trigger_time import TriggerTimes
from kube.api import core_v1, discovery_v1, meta_v1

from .makers import ago, pod


def service(**spec) -> core_v1.Service:
    ports = spec.pop("ports", [core_v1.ServicePort(port=80, target_port=8080, protocol="TCP")])
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name="web", namespace="default", uid="uid-svc", creation_timestamp=ago(500)),
        spec=core_v1.ServiceSpec(selector={"app": "web"}, ports=ports, cluster_ip="10.96.0.5", **spec),
    )


def backends(count: int, start: int = 0, **more) -> list[core_v1.Pod]:
    return [pod(f"p{i}", ip=f"10.244.{i // 250}.{i % 250 + 1}", **more) for i in range(start, start + count)]


def stored(changes: slice_plan.SlicePlan, existing=()) -> list[discovery_v1.EndpointSlice]:
    """Return the slices as they are after a plan was carried out."""
    after = {s.metadata.name: s for s in existing}
    for gone in changes.delete:
        del after[gone.metadata.name]
    for changed in changes.update:
        after[changed.metadata.name] = changed
    for number, made in enumerate(changes.create):
        name = f"web-{len(after)}{number}"
        after[name] = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=name))
    return list(after.values())


def addresses(slices) -> set[str]:
    return {ip for found in slices for endpoint in found.endpoints for ip in endpoint.addresses}


def test_a_pod_becomes_an_endpoint_with_all_that_proxies_need() -> None:
    zone = {"n1": core_v1.Node(metadata=meta_v1.ObjectMeta(name="n1", labels={slice_plan.ZONE: "z"}))}
    (made,) = plan(service(), backends(1), zone, [], "2026-01-01T00:00:00Z").create
    assert made.metadata.generate_name == "web-"
    assert made.metadata.labels[slice_plan.MANAGED_BY] == "endpointslice-controller.k8s.io"
    assert made.metadata.labels[slice_plan.SERVICE_NAME] == "web"
    assert made.metadata.annotations == {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
    assert made.metadata.owner_references[0].uid == "uid-svc"
    assert [(p.name, p.protocol, p.port) for p in made.ports] == [("", "TCP", 8080)]
    (endpoint,) = made.endpoints
    assert (endpoint.addresses, endpoint.node_name, endpoint.zone) == (["10.244.0.1"], "n1", "z")
    assert (endpoint.target_ref.kind, endpoint.target_ref.name) == ("Pod", "p0")
    assert (endpoint.conditions.ready, endpoint.conditions.serving, endpoint.conditions.terminating) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("ready", "deleting", "publish", "expected"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, False, (False, False, True)),
        (False, False, True, (True, False, False)),
    ],
)
def test_conditions_follow_readiness_deletion_and_publishing(ready, deleting, publish, expected) -> None:
    (made,) = plan(
        service(publish_not_ready_addresses=publish), backends(1, ready=ready, deleting=deleting), {}, []
    ).create
    found = made.endpoints[0].conditions
    assert (found.ready, found.serving, found.terminating) == expected


def test_finished_pods_and_those_without_address_are_no_endpoints() -> None:
    (made,) = plan(service(), [pod("a", phase="Succeeded", ip="10.0.0.1"), pod("b")], {}, []).create
    assert made.endpoints == [] and made.ports == []


def test_a_service_without_endpoints_keeps_one_empty_slice() -> None:
    empty = stored(plan(service(), [], {}, []))
    assert len(empty) == 1 and plan(service(), [], {}, empty).empty


def test_the_empty_slice_is_filled_and_emptied_in_place() -> None:
    empty = stored(plan(service(), [], {}, []))
    filled = plan(service(), backends(2), {}, empty)
    assert (len(filled.create), len(filled.update), len(filled.delete)) == (0, 1, 0)
    back = plan(service(), [], {}, stored(filled, empty))
    assert (len(back.create), len(back.update), len(back.delete)) == (0, 1, 0)


def test_nothing_changes_when_nothing_changed() -> None:
    slices = stored(plan(service(), backends(250), {}, []))
    assert [len(s.endpoints) for s in slices] == [100, 100, 50]
    assert plan(service(), backends(250), {}, slices).empty


def test_one_changed_pod_changes_one_slice() -> None:
    slices = stored(plan(service(), backends(250), {}, []))
    pods = backends(250)
    pods[120] = backends(1, start=120, ready=False)[0]
    changes = plan(service(), pods, {}, slices)
    assert (len(changes.create), len(changes.update), len(changes.delete)) == (0, 1, 0)


def test_a_new_pod_goes_where_there_is_room() -> None:
    slices = stored(plan(service(), backends(150), {}, []))
    changes = plan(service(), backends(151), {}, slices)
    assert (len(changes.create), len(changes.update), len(changes.delete)) == (0, 1, 0)
    assert addresses(stored(changes, slices)) == {p.status.pod_ip for p in backends(151)}


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (99, 101), (250, 30), (30, 250), (100, 100)])
def test_any_change_ends_with_exactly_the_wanted_addresses(before, after) -> None:
    slices = stored(plan(service(), backends(before), {}, []))
    slices = stored(plan(service(), backends(after, start=after // 3), {}, slices), slices)
    assert addresses(slices) == {p.status.pod_ip for p in backends(after, start=after // 3)}
    assert all(len(s.endpoints) <= 100 for s in slices)


def test_pods_that_name_their_ports_differently_get_slices_of_their_own() -> None:
    def named(name: str, number: int) -> core_v1.Pod:
        found = pod(name, ip=f"10.244.0.{number}")
        found.spec.containers = [
            core_v1.Container(name="c", ports=[core_v1.ContainerPort(name="http", container_port=number)])
        ]
        return found

    desired = service(ports=[core_v1.ServicePort(name="web", port=80, target_port="http")])
    slices = stored(plan(desired, [named("a", 81), named("b", 82)], {}, []))
    assert sorted((s.ports[0].port, s.endpoints[0].addresses[0]) for s in slices) == [
        (81, "10.244.0.81"),
        (82, "10.244.0.82"),
    ]
    assert find_port(named_ports(pod("c")), desired.spec.ports[0]) is None


def test_a_headless_service_labels_its_slices_and_names_its_pods() -> None:
    desired = service()
    desired.spec.cluster_ip = "None"
    named = pod("a", ip="10.244.0.1", hostname="one", subdomain="web")
    (made,) = plan(desired, [named], {}, []).create
    assert made.metadata.labels[slice_plan.HEADLESS] == "" and made.endpoints[0].hostname == "one"
    assert hostname_of(pod("b", hostname="one", subdomain="other"), desired) is None


def test_both_address_families_get_their_slices() -> None:
    both = pod("a", ip="10.244.0.1")
    both.status.pod_ips.append(core_v1.PodIP(ip="fd00::1"))
    slices = plan(service(ip_families=["IPv4", "IPv6"]), [both], {}, []).create
    assert sorted((s.address_type, s.endpoints[0].addresses) for s in slices) == [
        ("IPv4", ["10.244.0.1"]),
        ("IPv6", ["fd00::1"]),
    ]


@pytest.mark.parametrize("ip", ["010.244.0.01", "::ffff:10.244.0.1"])
async def test_addresses_get_their_canonical_form_and_so_their_family(ip: str) -> None:
    both = pod("a", ip=ip)
    both.status.pod_ips.append(core_v1.PodIP(ip="FD00::0:1"))
    slices = plan(service(ip_families=["IPv4", "IPv6"]), [both], {}, []).create
    assert sorted((s.address_type, s.endpoints[0].addresses) for s in slices) == [
        ("IPv4", ["10.244.0.1"]),
        ("IPv6", ["fd00::1"]),
    ]
    (found,) = subsets_of(service(ip_families=["IPv6"]), [both])
    assert [a.ip for a in found.addresses] == ["fd00::1"]
    made, _, invalid = await mirrored_slices.slices_of(mirrored_endpoints(subset(ip, "FD00::0:1", "x", "10.244.0.1")))
    assert sorted((s.address_type, s.endpoints[0].addresses) for s in made) == [
        ("IPv4", ["10.244.0.1"]),
        ("IPv6", ["fd00::1"]),
    ]
    assert invalid == 1 and [len(s.endpoints) for s in made] == [1, 1]


def test_traffic_that_is_to_stay_near_carries_hints() -> None:
    zone = {"n1": core_v1.Node(metadata=meta_v1.ObjectMeta(name="n1", labels={slice_plan.ZONE: "z"}))}
    (made,) = plan(service(traffic_distribution="PreferSameNode"), backends(1), zone, []).create
    hints = made.endpoints[0].hints
    assert [z.name for z in hints.for_zones] == ["z"] and [n.name for n in hints.for_nodes] == ["n1"]


def test_endpoints_list_ready_and_waiting_addresses_apart() -> None:
    ready, waiting, leaving = backends(1) + backends(1, 1, ready=False) + backends(1, 2, deleting=True)
    (subset,) = subsets_of(service(), [ready, waiting, leaving])
    assert [a.ip for a in subset.addresses] == ["10.244.0.1"]
    assert [a.ip for a in subset.not_ready_addresses] == ["10.244.0.2"]


def test_endpoints_are_cut_at_a_thousand_with_the_ready_first() -> None:
    subsets, cut = truncated(subsets_of(service(), backends(900) + backends(200, 900, ready=False)))
    assert cut and sum(len(s.addresses) for s in subsets) == 900
    assert sum(len(s.addresses) + len(s.not_ready_addresses) for s in subsets) == MOST_ADDRESSES


def test_the_trigger_time_is_the_earliest_unanswered_change() -> None:
    times = TriggerTimes()
    first, second = pod("a", ready_for=100), pod("b", ready_for=50)
    assert times.next("k", service(), [first]) == ago(500)
    assert times.next("k", service(), [first]) == ""
    assert times.next("k", service(), [first, second]) == ago(50)


async def test_mirrored_slices_keep_their_names_where_their_ports_stay() -> None:
    async def mirrored(*ports: int) -> list[discovery_v1.EndpointSlice]:
        subsets = [
            core_v1.EndpointSubset(
                addresses=[core_v1.EndpointAddress(ip="192.0.2.1")], ports=[core_v1.EndpointPort(port=port)]
            )
            for port in ports
        ]
        metadata = meta_v1.ObjectMeta(name="e", namespace="default", uid="uid-e")
        made, skipped, _ = await mirrored_slices.slices_of(core_v1.Endpoints(metadata=metadata, subsets=subsets))
        assert not skipped
        return made

    existing = await mirrored(1, 2, 3)
    for number, found in enumerate(existing):
        found.metadata = msgspec.structs.replace(found.metadata, name=f"e-{number}", generate_name=None)
    create, update, delete = await mirrored_slices.plan(await mirrored(9, 2, 1), existing)
    assert (create, delete) == ([], [])
    assert [(s.metadata.name, s.ports[0].port) for s in update] == [(existing[2].metadata.name, 9)]
    create, update, delete = await mirrored_slices.plan(await mirrored(1, 4, 5, 6), existing)
    assert [s.ports[0].port for s in create] == [6] and len(update) == 2 and delete == []
    assert await mirrored_slices.plan(existing[1:2], existing) == ([], [], [existing[0], existing[2]])


def mirrored_endpoints(*subsets: core_v1.EndpointSubset, **metadata: Any) -> core_v1.Endpoints:
    given = meta_v1.ObjectMeta(name="e", namespace="default", uid="uid-e", **metadata)
    return core_v1.Endpoints(metadata=given, subsets=list(subsets))


def subset(*ips: str, port: int = 80, waiting: tuple[str, ...] = ()) -> core_v1.EndpointSubset:
    return core_v1.EndpointSubset(
        addresses=[core_v1.EndpointAddress(ip=ip) for ip in ips],
        not_ready_addresses=[core_v1.EndpointAddress(ip=ip) for ip in waiting],
        ports=[core_v1.EndpointPort(port=port)],
    )


async def test_subsets_with_equal_ports_are_mirrored_to_one_slice() -> None:
    given = mirrored_endpoints(
        subset("192.0.2.1"), subset("192.0.2.2", port=81), subset(waiting=("192.0.2.1", "fd00::1"))
    )
    made, skipped, _ = await mirrored_slices.slices_of(given)
    found = [(s.address_type, s.ports[0].port, [(*e.addresses, e.conditions.ready) for e in s.endpoints]) for s in made]
    assert found == [
        ("IPv4", 80, [("192.0.2.1", False)]),
        ("IPv6", 80, [("fd00::1", False)]),
        ("IPv4", 81, [("192.0.2.2", True)]),
    ]
    assert not skipped


async def test_so_many_addresses_of_a_subset_are_mirrored_the_ready_ones_first() -> None:
    waiting = tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(1000))
    ((only,), skipped, _) = await mirrored_slices.slices_of(mirrored_endpoints(subset("10.1.0.1", waiting=waiting)))
    assert (len(only.endpoints), only.endpoints[0].addresses, skipped) == (1000, ["10.1.0.1"], 1)


@pytest.mark.parametrize(("length", "most"), [(1, 1000), (200_000, 83)])
async def test_slices_are_limited_by_their_number_and_by_the_metadata_that_they_store(length: int, most: int) -> None:
    subsets = [subset("192.0.2.1", port=number + 1) for number in range(1001)]
    made, skipped, _ = await mirrored_slices.slices_of(mirrored_endpoints(*subsets, annotations={"a": "x" * length}))
    assert (len(made), skipped) == (most, 1001 - most)


async def test_neither_the_trigger_time_nor_what_kubectl_applied_is_mirrored() -> None:
    annotations = {
        "a": "b",
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    (only,), *_ = await mirrored_slices.slices_of(mirrored_endpoints(subset("192.0.2.1"), annotations=annotations))
    assert only.metadata.annotations == {"a": "b"}
