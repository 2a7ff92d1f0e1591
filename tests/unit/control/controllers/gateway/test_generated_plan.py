"""Objects that are generated for a Gateway, and the limits of its namespace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from control.controllers.gateway import plan
from control.controllers.gateway.limits import MOST_CERTIFICATES, MOST_GATEWAYS, MOST_PORTS, NamespaceLimits
from control.controllers.gateway.plan import MOST_ENDPOINTS, Owner
from kube.api import core_v1, discovery_v1
from kube.clock import format_time
from kube.serialize import convert, copy

OWNER = Owner("infra/web", "u1")


def node(name: str, *addresses: str, ready: str = "True") -> core_v1.Node:
    status: dict[str, Any] = {
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [{"type": "InternalIP", "address": each} for each in addresses],
    }
    return msgspec.convert({"metadata": {"name": name}, "status": status}, core_v1.Node)


def stored(**spec: Any) -> core_v1.Service:
    found = copy(plan.service(OWNER, {80: 61000}))
    found.metadata.uid = "s1"
    found.spec = msgspec.structs.replace(found.spec, ip_families=["IPv4"], session_affinity="None", **spec)
    return found


def test_a_stored_service_keeps_its_addresses_and_loses_what_was_changed() -> None:
    wanted = plan.service(OWNER, {80: 61000})
    assert plan.updated_service(stored(cluster_ip="10.96.0.1", health_check_node_port=30000), wanted) is None
    changed = stored(cluster_ip="10.96.0.1", selector={"app": "a"}, external_ips=["192.0.2.1"], type="ClusterIP")
    changed.metadata.labels = {"more": "label"}
    found = plan.updated_service(changed, wanted)
    assert found is not None and found.spec.cluster_ip == "10.96.0.1" and found.metadata.uid == "s1"
    assert not found.spec.selector and not found.spec.external_ips and found.spec.type == "LoadBalancer"
    assert found.metadata.labels["more"] == "label" and found.metadata.labels["gateway.wherry.dev/gateway-uid"] == "u1"


def test_slices_have_the_ready_nodes_of_their_family() -> None:
    service = stored()
    service.spec.ip_families = ["IPv4", "IPv6"]
    nodes = plan.serving(
        [node("b", "10.0.0.2", "fd00::2"), node("a", "10.0.0.1"), node("c", "10.0.0.3", ready="False")]
    )
    four, six = plan.slices(OWNER, service, {80: 61000, 443: 61001}, nodes)
    assert [(each.node_name, each.addresses) for each in four.endpoints] == [("a", ["10.0.0.1"]), ("b", ["10.0.0.2"])]
    assert [(each.node_name, each.addresses) for each in six.endpoints] == [("b", ["fd00::2"])]
    assert (four.address_type, six.address_type) == ("IPv4", "IPv6")
    assert plan.ports_of(four) == [(80, 61000), (443, 61001)]
    assert [each.uid for each in four.metadata.owner_references] == ["s1"]
    assert plan.updated_slice(copy(four), four) is None
    changed = copy(four)
    changed.endpoints[0].addresses = ["192.0.2.1"]
    assert plan.updated_slice(changed, four) == four


def test_ports_are_recorded_without_nodes_and_many_nodes_are_in_several_slices() -> None:
    (empty,) = plan.slices(OWNER, stored(), {80: 61000}, ())
    assert empty.endpoints == [] and plan.ports_of(empty) == [(80, 61000)]
    nodes = [(f"n{number:04}", (f"10.0.{number // 256}.{number % 256}",)) for number in range(MOST_ENDPOINTS + 1)]
    first, second = plan.slices(OWNER, stored(), {80: 61000}, nodes)
    assert (len(first.endpoints), len(second.endpoints)) == (MOST_ENDPOINTS, 1)
    assert first.metadata.name != second.metadata.name


@pytest.mark.parametrize("name", ["", "port-", "port-a", "port-1234567", "other-80"])
def test_a_slice_with_other_names_of_ports_records_none(name: str) -> None:
    ports = [{"name": name, "port": 61000}, {"name": "port-80"}]
    assert plan.ports_of(convert({"ports": ports}, discovery_v1.EndpointSlice)) == []


def test_addresses_are_the_load_balancers_or_after_a_while_the_cluster_ips() -> None:
    service = stored(cluster_ips=["10.96.0.1"])
    created = datetime(2026, 1, 1, tzinfo=UTC)
    service.metadata.creation_timestamp = format_time(created)
    early, late = (created + timedelta(seconds=plan.BALANCER_SECONDS + add) for add in (-0.1, 0.0))
    assert (plan.addresses(service, early), plan.addresses(service, late)) == ([], ["10.96.0.1"])
    service.status = convert({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, core_v1.ServiceStatus)
    assert (plan.addresses(service, early), plan.addresses(service, late)) == (["192.0.2.1"], ["192.0.2.1"])


@pytest.mark.parametrize(
    ("most", "ports", "certificates", "text"),
    [
        (MOST_GATEWAYS, 1, 0, "Gateways"),
        (MOST_PORTS // 8, 8, 0, "ports"),
        (MOST_CERTIFICATES // 64, 1, 64, "certificates"),
    ],
)
def test_gateways_of_a_namespace_share_its_limits(most: int, ports: int, certificates: int, text: str) -> None:
    limits = NamespaceLimits()
    for number in range(most):
        assert limits.admit(f"infra/g{number}", ports, certificates) == ""
        assert limits.admit(f"infra/g{number}", ports, certificates) == ""
    assert text in limits.admit("infra/waiting", ports, certificates)
    assert limits.admit("apps/other", ports, certificates) == ""
    assert limits.release("infra/g0") == "infra/waiting"
    assert limits.admit("infra/waiting", ports, certificates) == ""
    assert limits.release("infra/g1") is None
    assert limits.release("infra/absent") is None


def test_a_gateway_that_grows_beyond_the_limits_is_refused_alone() -> None:
    limits = NamespaceLimits()
    assert limits.admit("infra/a", 4, 0) == limits.admit("infra/b", 4, 0) == ""
    assert limits.admit("infra/a", MOST_PORTS, 0)
    assert limits.admit("infra/b", 4, 0) == ""
    assert limits.admit("infra/a", 4, 0) == ""
