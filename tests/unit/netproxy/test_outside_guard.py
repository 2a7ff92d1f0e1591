"""Rules that drop packets from outside with addresses of this node's pods: their text, and the ranges they are written for."""

from __future__ import annotations

from typing import Any

import pytest

from netproxy import pod_subsystem
from netproxy.config import PodNetworkConfig, ProxyConfig
from netproxy.nft import static_table
from netproxy.podnet import outside_guard
from netproxy.podnet.outside_guard import OutsideGuard
from netproxy.policy.base_chains import base_chains
from netproxy.policy.model import EGRESS, INGRESS


def test_the_pods_addresses_are_accepted_from_the_bridge_and_the_node_alone_in_both_families() -> None:
    text = outside_guard.body(["10.244.1.0/24", "fd00:244:1::/64"], "cni7")
    assert 'iifname != { "cni7", "lo" } ip saddr 10.244.1.0/24 drop' in text
    assert 'iifname != { "cni7", "lo" } ip6 saddr fd00:244:1::/64 drop' in text
    assert "hook prerouting priority -310" in text


def test_ipv6_addresses_of_the_node_are_accepted_from_the_bridge_and_the_node_alone() -> None:
    """For IPv4 the kernel rejects them; neighbour discovery and the node's own multicast packets pass."""
    text = outside_guard.body([], "cni7")
    end = "meta l4proto { tcp, udp, sctp } fib saddr type local drop"
    assert (
        f'iifname != {{ "cni7", "lo" }} meta iifkind != "vrf" ip6 saddr != fe80::/10 ip6 daddr != ff00::/8 {end}'
        in text
    )
    assert (
        f'iifname != {{ "cni7", "lo" }} meta iifkind != "vrf" ip6 saddr fe80::/10 ip6 daddr != {{ fe80::/10, ff00::/8 }} {end}'
        in text
    )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []

    async def run(argv: list[str], *, input: str = "", **_: Any) -> None:
        texts.append(input or " ".join(argv))

    monkeypatch.setattr(static_table, "run", run)
    return texts


async def test_ranges_stay_until_the_node_has_others(written: list[str]) -> None:
    guard = OutsideGuard("cni0")
    assert await guard.set_node_ranges(())
    assert "ip saddr" not in written[-1]
    assert await guard.set_node_ranges(("10.244.1.0/24",))
    assert await guard.set_node_ranges(())
    assert "ip saddr 10.244.1.0/24 drop" in written[-1]
    assert await guard.set_node_ranges(("10.244.2.0/24",))
    assert "10.244.1.0" not in written[-1] and "ip saddr 10.244.2.0/24 drop" in written[-1]


def test_the_rules_are_there_with_the_pod_network_alone() -> None:
    """Also without validation of what pods send, and without network policies."""
    for enabled in (True, False):
        pods = PodNetworkConfig(enabled=enabled, source_guard=False, network_policy=False)
        subsystem = build(ProxyConfig(pod_network=pods, cluster_cidrs=("10.244.0.0/16",)))
        assert (subsystem.outside_guard is not None) == enabled
        assert any(isinstance(each, OutsideGuard) for each in subsystem.stale) != enabled


def build(config: ProxyConfig) -> pod_subsystem.PodSubsystem:
    class Anything:
        def __getattr__(self, name: str) -> Any:
            return Anything()

        def __call__(self, *_: Any, **__: Any) -> Any:
            return None

    return pod_subsystem.build(config, Anything(), Anything(), ipvs=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", [4, 6])
def test_what_a_pod_sends_to_itself_passes_from_the_bridge_alone(family: int) -> None:
    """A packet at hook `output` has no input device: there the IPVS mode's come, which the rules above have let by."""
    chains = dict(base_chains(family, ["10.244.1.0/24"], bridge="cni7", isolated=True, ipvs=True))
    ip = "ip" if family == 4 else "ip6"
    for direction in (EGRESS, INGRESS):
        assert f'iifname "cni7" {ip} saddr . {ip} daddr @itself accept' in chains[direction]
        assert f"{ip} saddr . {ip} daddr @itself accept" not in chains[direction]
        assert f"{ip} saddr . {ip} daddr @itself accept" in chains[f"ipvs-{direction}"]
