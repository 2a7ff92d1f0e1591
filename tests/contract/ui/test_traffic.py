"""Pictures of Services, and connections that policies stop, as the page's server computes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wherry.testing.async_cluster import AsyncCluster
from wherry.ui import traffic


def pod(name: str, port: str = "http") -> dict[str, Any]:
    container = {"name": "c", "image": "x", "ports": [{"name": port, "containerPort": 8080}]}
    metadata = {"name": name, "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": "http"}]
    found = {"selector": {"app": "web"}, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": found}


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": list(rules)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "wall"}, "spec": spec}


@pytest.fixture
async def cluster() -> AsyncIterator[AsyncCluster]:
    async with AsyncCluster(1) as found:
        await found.create(pod("web-0"))
        await found.wait("pod/web-0", "Ready")
        yield found


async def drawn(cluster: AsyncCluster, *states: str) -> dict[str, Any]:
    """Return the picture once its endpoints have these states."""
    found: dict[str, Any] = {}
    async with asyncio.timeout(30):
        while [each["state"] for each in found.get("endpoints", [{"state": ""}])] != list(states):
            await asyncio.sleep(0.02)
            found = await traffic.picture(cluster.client, "default", "web")
    return found


async def test_a_picture_has_addresses_ports_endpoints_and_pods(cluster: AsyncCluster) -> None:
    await cluster.create(service(type="NodePort"))
    found = await drawn(cluster, "ready")
    created = await cluster.get("service/web")
    assert [each["what"] for each in found["addresses"]] == ["name in the cluster", "cluster address", "node ports"]
    assert found["addresses"][1]["text"] == created["spec"]["clusterIP"]
    (port,) = found["ports"]
    assert port["target"] == "http" and port["nodePort"] == created["spec"]["ports"][0]["nodePort"]
    (endpoint,) = found["endpoints"]
    assert (endpoint["pod"], endpoint["node"], endpoint["state"]) == ("web-0", "node-1", "ready")
    assert endpoint["ports"] == [{"of": 0, "number": 8080, "state": "open", "why": ""}]
    assert found["causes"] == found["unknown"] == [] and found["hidden"] == {"endpoints": 0, "ports": 0}


async def test_policies_close_or_limit_a_port_as_in_the_story(cluster: AsyncCluster) -> None:
    await cluster.create(service())
    await cluster.create(policy())
    found = await drawn(cluster, "ready")
    assert found["endpoints"][0]["ports"][0]["state"] == "closed"
    assert found["causes"][0]["text"] == found["endpoints"][0]["ports"][0]["why"]
    closed = (await traffic.stopped(cluster.client, "default"))["services"]["web"]
    assert closed[0]["text"] == found["causes"][0]["text"] and not closed[0]["partial"]
    await cluster.apply(policy({"from": [{"podSelector": {"matchLabels": {"app": "till"}}}]}))
    found = await traffic.picture(cluster.client, "default", "web")
    assert found["endpoints"][0]["ports"][0]["state"] == "limited"
    (limited,) = (await traffic.stopped(cluster.client, "default"))["services"]["web"]
    assert limited["partial"] and "only pods with app=till" in limited["text"]
    await cluster.delete("networkpolicy/wall")
    assert (await traffic.stopped(cluster.client, "default"))["services"] == {}


async def test_a_pod_that_is_not_ready_and_one_without_an_address_are_shown(cluster: AsyncCluster) -> None:
    await cluster.create(service())
    big = {"resources": {"requests": {"memory": "640Gi"}}}
    waiting = pod("web-1")
    waiting["spec"]["containers"][0] |= big
    await cluster.create(waiting)
    cluster.pods.set_ready("web-0", ready=False)
    await cluster.wait("pod/web-0", "Ready=False")
    found = await drawn(cluster, "not ready", "in no EndpointSlice")
    assert [each["pod"] for each in found["endpoints"]] == ["web-0", "web-1"]
    assert found["causes"]


async def test_many_endpoints_and_ports_are_cut(cluster: AsyncCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [{"name": f"p{number}", "port": 80 + number, "targetPort": "http"} for number in range(22)]
    await cluster.create(service(ports=ports))
    await drawn(cluster, "ready")
    monkeypatch.setattr(traffic, "MOST_ENDPOINTS", 0)
    found = await traffic.picture(cluster.client, "default", "web")
    assert found["endpoints"] == [] and found["hidden"] == {"endpoints": 1, "ports": 2}
