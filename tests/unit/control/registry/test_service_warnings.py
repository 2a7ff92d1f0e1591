"""Warnings about Services, each in upstream's words and order."""

from __future__ import annotations

import pytest

from kube.json_object import Object
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
