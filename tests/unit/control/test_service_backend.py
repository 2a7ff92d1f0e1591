"""Where the server itself goes for a Service."""

from __future__ import annotations

from typing import Any

import pytest

from control.service_backend import backend
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


def test_a_ready_endpoint_is_taken_at_the_ports_target() -> None:
    found = objects(slice_("a", "10.1.0.1"), slice_("b", "10.1.0.2", ready=False), slice_("c", "10.1.0.3", service="x"))
    assert {backend(found, "ns", "hook", port) for port in ("443", "https") for _ in range(20)} == {("10.1.0.1", 8443)}


def test_an_external_name_is_left_to_its_resolver() -> None:
    found = objects(type="ExternalName", externalName="hook.example.com")
    assert backend(found, "ns", "hook", "443") == ("hook.example.com", 443)


@pytest.mark.parametrize(
    ("port", "reason", "message"),
    [
        ("443", "ServiceUnavailable", 'no endpoints available for service "hook"'),
        ("1", "ServiceUnavailable", 'no service port "1" found for service "hook"'),
        ("", "ServiceUnavailable", 'no service port "" found for service "hook"'),
    ],
)
def test_what_leads_nowhere_is_said(port: str, reason: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        backend(objects(), "ns", "hook", port)
    assert (caught.value.reason, caught.value.message) == (reason, message)
    with pytest.raises(StatusError, match='services "none" not found'):
        backend(objects(), "ns", "none", port)
