"""The filter of the tunnel port: its rules, and the behaviour if nft cannot write them."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest

from kube.process import CommandError
from netproxy.nft import static_table
from netproxy.podnet import node_routes, tunnel_guard

NODES = [ipaddress.ip_address("192.168.0.2"), ipaddress.ip_address("fd99::2")]
FAMILIES = (("ip", "nodes4"), ("ip6", "nodes6"))


def chain_of(name: str, text: str = tunnel_guard.body(NODES, 8472, "cni7")) -> str:
    """Return the text of a chain in that of the table."""
    return text.partition(f"  chain {name} {{\n")[2].partition("  }\n")[0]


def test_pods_are_kept_from_the_port_in_both_families() -> None:
    forward = chain_of("forward")
    for address in ("ip daddr @nodes4", "ip6 daddr @nodes6"):
        assert f'iifname "cni7" udp dport 8472 {address} drop' in forward
        assert f"ct status dnat udp dport 8472 {address} drop" in forward


def test_what_the_node_translates_to_its_own_tunnel_is_dropped_in_both_families_after_ipvs() -> None:
    chain = chain_of("input")
    assert "type filter hook input priority 101;" in chain  # ip_vs: 99
    for ip, nodes in FAMILIES:
        to = f"udp dport 8472 {ip} daddr @{nodes}"
        for match in ("ct status dnat", "ct original proto-dst != 8472", f"ct original {ip} daddr != @{nodes}"):
            assert f"    {to} {match} drop\n" in chain
        for end in ("saddr", "daddr"):
            assert f"    udp dport 8472 {ip} {end} != @{nodes} drop\n" in chain


def test_what_is_masqueraded_to_the_tunnels_port_does_not_leave() -> None:
    chain = chain_of("postrouting")
    assert "type filter hook postrouting priority 310;" in chain  # srcnat: 100
    for ip, nodes in FAMILIES:
        assert f"udp sport 8472 {ip} saddr @{nodes} ct status snat drop" in chain


def test_only_what_enters_the_tunnel_has_the_mark_to_be_sent_to_the_port() -> None:
    marked = chain_of("marked")
    assert "hook postrouting priority 310;" in marked  # after the proxy's marks were used
    assert 'oifname "wherry-vxlan" meta mark set meta mark | 0x00001000' in marked
    unmarked = chain_of("unmarked")
    assert "hook output priority -310;" in unmarked
    for address in ("ip daddr @nodes4", "ip6 daddr @nodes6"):
        assert f"udp dport 8472 {address} meta mark & 0x00001000 != 0x00001000 drop" in unmarked


def test_what_the_node_forwards_to_the_port_for_others_is_dropped_before_it_is_masqueraded() -> None:
    forward = chain_of("forward")
    for ip, nodes in FAMILIES:
        assert f"udp dport 8472 {ip} saddr != @{nodes} {ip} daddr @{nodes} drop" in forward


@pytest.mark.parametrize(("bit", "mark"), [(14, 1 << 12), (12, 1 << 11), (11, 1 << 12)])
def test_the_mark_is_not_the_proxys(bit: int, mark: int) -> None:
    assert tunnel_guard.mark_of(bit, "vxlan") == tunnel_guard.mark_of(bit, "auto") == mark
    assert f"0x{mark:08x}" in tunnel_guard.body(NODES, 8472, "cni7", mark=mark)


def test_tunnels_of_other_software_need_no_mark() -> None:
    text = tunnel_guard.body(NODES, 8472, "cni7", mark=tunnel_guard.mark_of(14, "none"))
    assert "mark" not in text and "chain output" in text


def test_no_host_port_takes_what_is_for_the_tunnel() -> None:
    chain = chain_of("prerouting")
    assert "type nat hook prerouting priority -101;" in chain
    assert "udp dport 8472 ip daddr @nodes4 dnat ip prefix to ip daddr map { 0.0.0.0/0 : 0.0.0.0/0 }" in chain
    assert "udp dport 8472 ip6 daddr @nodes6 dnat ip6 prefix to ip6 daddr map { ::/0 : ::/0 }" in chain


def test_packets_of_pods_behind_the_tunnel_come_only_by_it() -> None:
    text = tunnel_guard.body(NODES, 8472, "cni7", ["10.244.3.0/24", "10.244.2.0/24", "fd00:0:0:2::/64"])
    assert "set pods4 { type ipv4_addr; flags interval; elements = { 10.244.2.0/24, 10.244.3.0/24 }; }" in text
    assert "set pods6 { type ipv6_addr; flags interval; elements = { fd00:0:0:2::/64 }; }" in text
    chain = chain_of("sources", text)
    assert "type filter hook prerouting priority -310;" in chain
    for address in ("ip saddr @pods4", "ip6 saddr @pods6"):
        assert f'iifname != {{ "cni7", "wherry-vxlan", "lo" }} {address} drop' in chain
    assert "chain sources" not in tunnel_guard.body(NODES, 8472, "cni7")


def test_an_address_that_two_nodes_name_is_listed_once() -> None:
    assert tunnel_guard.body([*NODES, *NODES], 8472, "cni7") == tunnel_guard.body(NODES, 8472, "cni7")


def test_if_nft_fails_no_rule_is_in_force_and_the_error_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise CommandError(["nft"], "no such table")

    async def check() -> None:
        made = tunnel_guard.TunnelGuard()
        for _ in range(3):
            assert not await made.set(NODES, 8472, "cni0")

    monkeypatch.setattr(static_table, "run", refuse)
    asyncio.run(check())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_routes_without_the_tunnel_are_those_by_links() -> None:
    near, far = (
        node_routes.Route("10.1.0.0/24", "192.168.0.3", "eth0"),
        node_routes.Route("10.2.0.0/24", "10.2.0.0", node_routes.DEVICE),
    )
    both = node_routes.NodeRoutes(
        routes=frozenset({near, far}),
        neighbours=frozenset({node_routes.Neighbour("10.2.0.0", "0a:58:0a:02:00:00")}),
        fdb_entries=frozenset({node_routes.FdbEntry("0a:58:0a:02:00:00", "192.168.1.3")}),
        tunnel=node_routes.Tunnel("0a:58:0a:00:00:00", "192.168.0.2", ("10.0.0.0",), 1450, 8472, 1),
    )
    assert node_routes.without_tunnel(both) == node_routes.NodeRoutes(routes=frozenset({near}))
