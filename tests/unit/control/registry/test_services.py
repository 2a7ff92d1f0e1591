"""Defaults, validation and printed columns of Services."""

from __future__ import annotations

import copy

import pytest

from kube.json_object import Object
from tests.unit.control.registry.services import Cluster, allocator, named, stored
from tests.unit.control.registry.strategies import cells, created, problems, service, strategy_of, update_problems


def test_a_bare_service_gets_upstreams_defaults() -> None:
    assert created(service())["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"app": "web"},
        "sessionAffinity": "None",
        "type": "ClusterIP",
        "internalTrafficPolicy": "Cluster",
    }
    sticky = created(service(sessionAffinity="ClientIP", type="LoadBalancer"))["spec"]
    assert sticky["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert sticky["externalTrafficPolicy"] == "Cluster"
    assert sticky["allocateLoadBalancerNodePorts"] is True


REFUSED = [
    (service(ports=[]), "spec.ports: Required value"),
    (service(ports=[{"port": 0}]), "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    (service(ports=[{"port": 1}, {"port": 2}]), "spec.ports[0].name: Required value"),
    (
        service(ports=[{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]),
        'spec.ports[1].name: Duplicate value: "a"',
    ),
    (
        service(ports=[{"port": 1, "nodePort": 30000}]),
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    (
        service(type="Magic"),
        'spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
    ),
    (service(type="ExternalName"), "spec.externalName: Required value"),
    (
        service(clusterIP="None", type="NodePort"),
        "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
    ),
    (
        service(externalIPs=["127.0.0.1"]),
        'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
    ),
    (
        service(externalTrafficPolicy="Local"),
        'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services',
    ),
    (
        service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 100000}}),
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 100000: must be greater than 0 and less than "
        "86400",
    ),
    (
        service(loadBalancerSourceRanges=["10.0.0.0/8"]),
        "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:60] for _, m in REFUSED])
def test_a_bad_service_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert message in problems(obj)


async def test_the_cluster_address_may_not_change() -> None:
    old = await stored(allocator(), Cluster(), named("a", clusterIP="10.96.0.10"))
    new = copy.deepcopy(old)
    new["spec"]["clusterIP"] = "10.96.0.11"
    assert update_problems(old, new) == ['spec.clusterIPs[0]: Invalid value: ["10.96.0.11"]: may not change once set']


async def test_an_update_that_leaves_the_address_out_keeps_it() -> None:
    old = await stored(allocator(), Cluster(), named("a", type="NodePort"))
    new = named("a", type="NodePort")
    assert update_problems(old, new) == []
    strategy_of(new).prepare_update(new, old)
    assert new["spec"] == old["spec"]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"clusterIP": "10.96.0.5"}, {}, ("ClusterIP", "10.96.0.5", "<none>", "80/TCP")),
        (
            {"type": "NodePort", "clusterIP": "10.96.0.5", "ports": [{"port": 80, "nodePort": 30001}]},
            {},
            ("NodePort", "10.96.0.5", "<none>", "80:30001/TCP"),
        ),
        ({"type": "LoadBalancer", "clusterIP": "10.96.0.5"}, {}, ("LoadBalancer", "10.96.0.5", "<pending>", "80/TCP")),
        (
            {"type": "LoadBalancer", "clusterIP": "10.96.0.5", "externalIPs": ["1.2.3.4"]},
            {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}},
            ("LoadBalancer", "10.96.0.5", "9.9.9.9,1.2.3.4", "80/TCP"),
        ),
        (
            {"type": "ExternalName", "externalName": "example.com", "ports": []},
            {},
            ("ExternalName", "<none>", "example.com", "<none>"),
        ),
    ],
)
def test_a_services_row_shows_how_it_is_reached(spec: Object, status: Object, expected: tuple[str, ...]) -> None:
    obj = created(service(**spec))
    obj["status"] = status
    row = cells(obj)
    assert (row["Type"], row["Cluster-IP"], row["External-IP"], row["Port(s)"]) == expected
    assert (row["Age"], row["Selector"]) == ("5m", "app=web")
