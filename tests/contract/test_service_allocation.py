"""Addresses and ports of Services on a real server: unique under concurrency, given back, and known after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.control import ApiUnderTest, api_server

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": name}, **spec}}


async def address_names(api: ApiUnderTest) -> set[str]:
    return {item["metadata"]["name"] for item in (await api.request("GET", ADDRESSES)).json["items"]}


async def test_concurrent_creates_never_share_an_address_or_a_port(tmp_path: Path) -> None:
    async with api_server(tmp_path, service_cidr="10.96.0.0/26", node_port_range=(30000, 30049)) as api:
        answers = await asyncio.gather(
            *(api.request("POST", SERVICES, service(f"s{i}", type="NodePort")) for i in range(60))
        )
        made = [a.json["spec"] for a in answers if a.status == 201]
        # The address of `kubernetes` and the network's own two leave 61 addresses, but there are 50 ports.
        assert len(made) == 50
        assert len({spec["clusterIP"] for spec in made}) == 50
        assert {spec["ports"][0]["nodePort"] for spec in made} == set(range(30000, 30050))
        refused = [a.json for a in answers if a.status != 201]
        assert {r["message"] for r in refused} == {
            "Internal error occurred: failed to allocate a nodePort: range is full"
        }
        # What the refused had taken is free again: their addresses have no records.
        assert await address_names(api) == {spec["clusterIP"] for spec in made} | {"10.96.0.1"}


async def test_a_deleted_services_address_and_port_can_be_requested_again(tmp_path: Path) -> None:
    wanted = {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30077}]}
    async with api_server(tmp_path) as api:
        assert (await api.request("POST", SERVICES, service("a", **wanted))).status == 201
        taken = await api.request("POST", SERVICES, service("b", **wanted))
        assert taken.status == 422
        assert taken.json["details"]["causes"] == [
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: ["10.96.7.7"]: failed to allocate IP 10.96.7.7: provided IP is already '
                "allocated",
                "field": "spec.clusterIPs",
            }
        ]
        assert (await api.request("DELETE", f"{SERVICES}/a")).status == 200
        assert "10.96.7.7" not in await address_names(api)
        assert (await api.request("POST", SERVICES, service("b", **wanted))).status == 201


async def test_a_restarted_server_knows_what_it_has_given(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        await api.request("POST", SERVICES, service("a", clusterIP="10.96.7.7"))
        before = await address_names(api)
    async with api_server(tmp_path) as api:
        taken = await api.request("POST", SERVICES, service("b", clusterIP="10.96.7.7"))
        assert "provided IP is already allocated" in taken.json["message"]
        assert await address_names(api) == before


async def test_a_dry_run_takes_nothing(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        before = await address_names(api)
        shown = await api.request("POST", f"{SERVICES}?dryRun=All", service("a"))
        assert shown.status == 201 and shown.json["spec"]["clusterIP"]
        assert await address_names(api) == before


async def test_a_refused_change_keeps_the_address(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        made = (await api.request("POST", SERVICES, service("a"))).json
        before = await address_names(api)
        patch = b'{"spec":{"clusterIP":"10.96.9.9"}}'
        headers = {"Content-Type": "application/merge-patch+json"}
        refused = await api.request("PATCH", f"{SERVICES}/a", patch, headers=headers)
        assert refused.status == 422
        assert 'spec.clusterIPs[0]: Invalid value: ["10.96.9.9"]: may not change once set' in refused.json["message"]
        assert await address_names(api) == before
        assert (await api.request("GET", f"{SERVICES}/a")).json["spec"] == made["spec"]
