"""Warnings about Services, each in upstream's words and order."""

from __future__ import annotations

import pytest

from control.registry.core.service.warnings import refused_ports
from kube.json_object import Object
from kube.port_ranges import LOAD_BALANCERS, reserved_ports
from tests.unit.control.registry.strategies import created, service, strategy_of

HEADLESS = {"clusterIP": "None", "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"externalIPs": ["192.0.2.1"]},
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"],
        ),
        (
            {**HEADLESS, "externalIPs": ["192.0.2.1"], "loadBalancerIP": "192.0.2.2", "sessionAffinity": "ClientIP"},
            [
                "spec.loadBalancerIP is ignored for headless services",
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        ),
        (
            {"type": "ExternalName", "externalName": "a.example", "externalIPs": ["192.0.2.1"]},
            ['spec.externalIPs is ignored when spec.type is "ExternalName"'],
        ),
        ({"externalName": "a.example"}, ['spec.externalName is ignored when spec.type is not "ExternalName"']),
        (
            {"trafficDistribution": "PreferClose"},
            ['spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'],
        ),
        ({"trafficDistribution": "PreferSameNode"}, []),
        (
            {"type": "LoadBalancer", "loadBalancerIP": "010.0.0.1"},
            ['spec.loadBalancerIP: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"'],
        ),
        ({"type": "LoadBalancer", "loadBalancerIP": "any"}, []),
    ],
)
def test_what_is_deprecated_or_ignored_is_warned_of(spec: Object, expected: list[str]) -> None:
    found = created(service(**spec))
    assert strategy_of(found).warnings(found, None) == expected


def test_the_older_annotation_of_topology_is_warned_of() -> None:
    found = created(service())
    found["metadata"]["annotations"] = {"service.kubernetes.io/topology-aware-hints": "auto"}
    assert strategy_of(found).warnings(found, None) == [
        "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use "
        "service.kubernetes.io/topology-mode instead"
    ]


@pytest.mark.parametrize(
    ("spec", "before", "shown"),
    [
        ({}, None, "22, 6000000"),
        ({}, {"type": "ClusterIP"}, "22, 6000000"),
        ({}, {"type": "LoadBalancer"}, ""),
        ({"loadBalancerClass": "example.com/other"}, None, ""),
        ({"type": "NodePort"}, None, ""),
    ],
)
def test_ports_that_the_load_balancer_does_not_give_are_warned_of_once(
    spec: Object, before: Object | None, shown: str
) -> None:
    ports = [{"port": port} for port in (80, 22, 6000000)]
    found = {"metadata": {}, "spec": {"type": "LoadBalancer", "ports": ports} | spec}
    old = None if before is None else {"metadata": {}, "spec": {"ports": ports} | before}
    messages = [f"spec.ports: the load balancer of this cluster gives Services the ports 80,443 only, and not {shown}"]
    messages += [
        "spec.ports: the load balancer of this cluster gives Services no ports of the nodes, and not 22/TCP (ssh)"
    ]
    assert refused_ports(found, old, "80,443") == (messages if shown else [])
    assert refused_ports(found, old, "") == []


def test_at_most_ten_ports_are_named() -> None:
    found = {"spec": {"type": "LoadBalancer", "ports": [{"port": port} for port in range(1000, 3000)]}}
    warning, _ = refused_ports(found, None, "80")
    assert warning.endswith("1008, 1009, ...")


def test_ports_of_the_nodes_within_the_range_are_warned_of_by_protocol() -> None:
    ports = [("TCP", 80), ("TCP", 10250), ("UDP", 10250), ("TCP", 2379), ("TCP", 6443), ("TCP", 7443), ("UDP", 8472)]
    spec = {"type": "LoadBalancer", "ports": [{"port": port, "protocol": protocol} for protocol, port in ports]}
    shown = "2379/TCP (etcd), 6443/TCP (the API server), 7443/TCP (the API server), 10250/TCP (the kubelet)"
    message = f"spec.ports: the load balancer of this cluster gives Services no ports of the nodes, and not {shown}"
    assert refused_ports({"spec": spec}, None, LOAD_BALANCERS, reserved_ports(7443)) == [
        f"{message}, 8472/UDP (the pod network)"
    ]
    assert refused_ports({"spec": spec}, {"spec": spec}, LOAD_BALANCERS, reserved_ports(7443)) == []
