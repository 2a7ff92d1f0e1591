"""Endpoint that the server itself uses for a Service."""

from __future__ import annotations

from typing import Any

import pytest

from control.dialing.service_backend import backend
from kube.errors import StatusError
from tests.support.lookup import Objects

PORTS = [{"name": "https", "port": 443}, {"name": "metrics", "port": 9090}]


def slice_(name: str, *addresses: str, ready: bool = True, service: str = "hook") -> tuple[str, dict[str, Any]]:
    metadata = {"name": name, "namespace": "ns", "labels": {"kubernetes.io/service-name": service}}
    endpoint = {"addresses": list(addresses), "conditions": {"ready": ready}}
    found = {"metadata": metadata, "ports": [{"name": "https", "port": 8443}], "endpoints": [endpoint]}
    return "endpointslices.discovery.k8s.io", found


def objects(*slices: tuple[str, dict[str, Any]], **spec: Any) -> Objects:
    service = {"metadata": {"name": "hook", "namespace": "ns"}, "spec": {"ports": PORTS, **spec}}
    return Objects(("services", service), *slices)


async def test_a_ready_endpoint_is_taken_at_the_ports_target() -> None:
    found = objects(slice_("a", "10.1.0.1"), slice_("b", "10.1.0.2", ready=False), slice_("c", "10.1.0.3", service="x"))
    assert {await backend(found, "ns", "hook", port) for port in ("443", "https") for _ in range(20)} == {
        ("10.1.0.1", 8443)
    }


@pytest.mark.parametrize("name", ["hook.example.com", "192.0.2.7", "localhost"])
async def test_an_external_name_is_not_gone_to(name: str) -> None:
    for port in ("443", "", "x", "99999"):
        with pytest.raises(StatusError) as caught:
            await backend(objects(slice_("a", "10.1.0.1"), type="ExternalName", externalName=name), "ns", "hook", port)
        assert (caught.value.code, caught.value.message) == (503, 'unsupported service type "ExternalName"')


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ({"kind": "Pod", "namespace": "ns", "name": "p"}, True),
        ({"kind": "Pod", "namespace": "other", "name": "p"}, False),
        ({"kind": "Pod", "namespace": "ns", "name": "gone"}, False),
        ({"kind": "Pod", "namespace": "ns", "name": "elsewhere"}, False),
        ({"kind": "Node", "namespace": "ns", "name": "p"}, False),
        (None, False),
    ],
)
async def test_who_chooses_the_service_is_led_to_its_pods_alone(target: dict[str, str] | None, found: bool) -> None:
    kind, made = slice_("a", "10.1.0.1")
    made["endpoints"][0]["targetRef"] = target
    pods = [
        ("pods", {"metadata": {"name": name, "namespace": namespace}, "status": {"podIPs": [{"ip": address}]}})
        for name, namespace, address in (
            ("p", "ns", "10.1.0.1"),
            ("p", "other", "10.1.0.1"),
            ("elsewhere", "ns", "10.1.0.2"),
        )
    ]
    there = Objects(
        ("services", {"metadata": {"name": "hook", "namespace": "ns"}, "spec": {"ports": PORTS}}), (kind, made), *pods
    )
    assert await backend(there, "ns", "hook", "443") == ("10.1.0.1", 8443)
    if found:
        assert await backend(there, "ns", "hook", "443", only_pods=True) == ("10.1.0.1", 8443)
    else:
        with pytest.raises(StatusError, match="no endpoints available"):
            await backend(there, "ns", "hook", "443", only_pods=True)


@pytest.mark.parametrize(
    ("port", "reason", "message"),
    [
        ("443", "ServiceUnavailable", 'no endpoints available for service "hook"'),
        ("1", "ServiceUnavailable", 'no service port "1" found for service "hook"'),
        ("", "ServiceUnavailable", 'no service port "" found for service "hook"'),
    ],
)
async def test_a_missing_backend_service_or_port_is_reported(port: str, reason: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        await backend(objects(), "ns", "hook", port)
    assert (caught.value.reason, caught.value.message) == (reason, message)
    with pytest.raises(StatusError, match='services "none" not found'):
        await backend(objects(), "ns", "none", port)
