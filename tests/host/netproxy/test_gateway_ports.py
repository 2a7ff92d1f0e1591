"""The private ports of a node's gateway need no privilege: a program that listens on them gets no Gateway's requests."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.gateway import names
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, PODS, Site, build_site, populated, running, until
from tests.host.netproxy.test_gateway import INGRESS, addresses, apply, curl, network_role, pids, prepare
from tests.support.control import api_server
from tests.support.services import endpoint, port, service, slice_of
from tests.support.squatter import FORGED, USER, squatter

CLUSTER_IP = "10.96.7.1"
HOST = ("-H", "Host: ingress.example.com")
OPTIONS: dict[str, Any] = {"enable_controllers": True, "gateway": True, "service_load_balancer": True}


def gateways_service() -> core_v1.Service:
    return service(
        "ingress",
        CLUSTER_IP,
        port("port-80", 80),
        namespace=names.NAMESPACE,
        labels={names.UID: names.INGRESS},
        ingress=(NODE_IP, CLIENT_IP),
        type="LoadBalancer",
        external_traffic_policy="Local",
        internal_traffic_policy="Local",
    )


def gateways_slice() -> discovery_v1.EndpointSlice:
    found = slice_of(
        "ingress",
        NODE_IP,
        endpoint(CLIENT_IP, node="node-2"),
        ports={"port-80": 61000},
        namespace=names.NAMESPACE,
    )
    found.metadata.labels[names.UID] = names.INGRESS
    return found


def test_no_request_reaches_a_program_that_listens_in_the_place_of_a_gateway(site: Site) -> None:
    async def check() -> None:
        api = populated(
            gateways_service(), gateways_slice(), service("web", "10.96.5.1"), slice_of("web", PODS["pod-a"])
        )
        # The client plays another node, whose gateway's port is taken as well: its own proxy would refuse this.
        with squatter(site.node), squatter(site.client):
            async with running(site.config, api):
                await until(lambda: site.fetch(site.pods["pod-b"], "10.96.5.1") == "pod-a", "Services are in force")
                for origin in (site.client, site.pods["pod-a"], site.node):
                    assert await asyncio.to_thread(site.error, origin, NODE_IP) == "ECONNREFUSED"
                for origin in (site.pods["pod-a"], site.node):
                    assert await asyncio.to_thread(site.error, origin, CLUSTER_IP) == "ECONNREFUSED"

    site.node.inside(check)


@pytest.fixture
def iptables(tmp_path: Path) -> Any:
    with build_site("nft", tmp_path) as made:
        yield made


def ingress(site: Site) -> str:
    """Return what the Ingress answers, and the exit status of curl; a connection may wait for a while."""
    return curl(site.client, f"http://{NODE_IP}/", *HOST, "-m", "30", "-w", " %{exitcode}")


async def events(admin: Client) -> list[str]:
    listed = (await admin.list(core_v1.Event, "default")).items
    return [each.message or "" for each in listed if each.reason == "GatewayPortInUse"]


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_a_port_that_another_program_has_is_reported_and_served_when_it_is_free(iptables: Site, mode: str) -> None:
    site = iptables

    async def check() -> None:
        async with api_server(site.folder / "control", **OPTIONS) as server, network_role(site, server, mode):
            admin = await prepare(server)
            with squatter(site.node) as lines:
                assert lines == ["ready 16"]
                await apply(server, INGRESS)
                async with asyncio.timeout(60):
                    while not (found := await events(admin)):
                        assert FORGED not in await asyncio.to_thread(ingress, site)
                        await asyncio.sleep(0.1)
                assert f"{NODE_IP}:61000 (a program of user {USER})" in found[0]
                assert await asyncio.to_thread(ingress, site) == "7"
                assert not await addresses(server, "ingress")
            await until(lambda: ingress(site) == "pod-a 0", "the Ingress answers once the port is free")

    site.node.inside(check)


def test_the_ports_of_a_gateway_do_not_become_free_while_it_restarts(iptables: Site) -> None:
    site = iptables

    async def check() -> None:
        async with api_server(site.folder / "control", **OPTIONS) as server, network_role(site, server):
            await prepare(server)
            await apply(server, INGRESS)
            await until(lambda: ingress(site) == "pod-a 0", "the Ingress answers")
            with squatter(site.node, 61000, 61000, patient=True) as lines:
                for number in (signal.SIGKILL, signal.SIGTERM):
                    (first,) = pids(site)
                    os.kill(first, number)
                    assert await asyncio.to_thread(ingress, site) == "pod-a 0", (
                        "the connection waits for the next process"
                    )
                    assert pids(site) not in ([], [first])
            assert lines == ["ready 0", ""]

    site.node.inside(check)


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_no_rule_leads_to_the_gateways_ports_after_an_orderly_end_and_the_next_start(iptables: Site, mode: str) -> None:
    site = iptables

    async def check() -> None:
        async with api_server(site.folder / "control", **OPTIONS) as server:
            admin = await prepare(server)
            async with network_role(site, server, mode) as role:
                await apply(server, INGRESS)
                await until(lambda: ingress(site) == "pod-a 0", "the Ingress answers")
                with squatter(site.node, 61000, 61001, patient=True) as lines:
                    role.send_signal(signal.SIGTERM)
                    async with asyncio.timeout(30):
                        while not lines[1:] and role.returncode is None:
                            assert FORGED not in await asyncio.to_thread(ingress, site)
                    assert await asyncio.wait_for(role.wait(), 30) == 0
                    assert await asyncio.to_thread(ingress, site) == "7"
                    async with network_role(site, server, mode):
                        async with asyncio.timeout(60):
                            while not await events(admin):
                                assert FORGED not in await asyncio.to_thread(ingress, site)

    site.node.inside(check)
