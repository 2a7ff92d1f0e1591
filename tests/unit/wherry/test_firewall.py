"""Firewall chains that block traffic, and whether the suggested command follows from the settings."""

import pytest

from wherry.firewall import Chain, judge
from wherry.settings import Settings

IPTABLES_FORWARD = Chain("ip", "filter", "FORWARD", "forward", drops=True)
IPTABLES_INPUT = Chain("ip", "filter", "INPUT", "input", drops=True)
PORTS = ["6443", "10250", "8472"]


def test_a_machine_without_a_firewall_has_none_in_the_way() -> None:
    chains = [Chain("ip", "filter", "FORWARD", "forward"), Chain("ip", "kube-proxy", "filter-input", "input")]
    assert judge(chains, Settings()) == []


@pytest.mark.parametrize(("mode", "in_the_way"), [("iptables", False), ("auto", False), ("nftables", True)])
def test_what_docker_and_ufw_drop_is_let_through_in_the_iptables_mode_alone(mode: str, in_the_way: bool) -> None:
    found = judge([IPTABLES_FORWARD], Settings(proxy_mode=mode))
    assert bool(found) is in_the_way
    if found:
        assert "nft insert rule ip filter FORWARD ip saddr 10.244.0.0/16 accept" in found[0].fix


def test_a_table_of_somebody_elses_is_named_in_every_mode() -> None:
    (found,) = judge([Chain("inet", "filter", "forward", "forward", drops=True)], Settings(pod_cidr="10.1.0.0/16"))
    assert "inet filter forward" in found.what
    assert "nft insert rule inet filter forward ip daddr 10.1.0.0/16 accept" in found.fix


@pytest.mark.parametrize(
    ("chain", "ufw", "word"),
    [
        (IPTABLES_INPUT, True, "ufw allow 10250/tcp"),
        (IPTABLES_INPUT, False, "iptables -I INPUT -p tcp --dport 10250 -j ACCEPT"),
        (Chain("inet", "fw", "in", "input", drops=True), False, "nft insert rule inet fw in tcp dport 10250 accept"),
    ],
)
def test_a_firewall_that_drops_traffic_to_the_node_is_reported_with_its_commands(
    chain: Chain, ufw: bool, word: str
) -> None:
    (found,) = judge([chain], Settings(), ufw=ufw)
    assert word in found.fix
    assert all(port in found.fix for port in PORTS)
    assert "10.244.0.0/16" in found.fix


def test_ufw_on_legacy_tables_is_reported_by_its_file() -> None:
    (found,) = judge([], Settings(), ufw=True)
    assert (
        found.fix == "ufw allow from 10.244.0.0/16 && ufw allow 6443/tcp && ufw allow 10250/tcp && ufw allow 8472/udp"
    )


def test_the_tunnel_and_the_bridge_of_wherrys_network_are_not_opened_for_another() -> None:
    (found,) = judge([IPTABLES_INPUT], Settings(pod_network="none"))
    assert "10250" in found.fix and "8472" not in found.fix
    (found,) = judge([Chain("inet", "firewalld", "filter_INPUT", "input")], Settings(pod_network="none"))
    assert "10.244.0.0/16" in found.fix and "cni0" not in found.fix


def test_only_what_this_machine_serves_is_opened() -> None:
    (found,) = judge([IPTABLES_INPUT], Settings(role="worker", node_routes="host-gw"))
    assert "10250" in found.fix
    assert "6443" not in found.fix
    assert "8472" not in found.fix


def test_firewalld_is_known_by_its_table() -> None:
    (found,) = judge([Chain("inet", "firewalld", "filter_INPUT", "input")], Settings())
    assert "--zone=trusted --add-source=10.244.0.0/16 --add-source=10.96.0.0/12" in found.fix
    assert "--add-port=6443/tcp" in found.fix


def test_each_family_is_let_in_by_its_own_range() -> None:
    settings = Settings(pod_cidr="10.244.0.0/16,fd00:244::/56", proxy_mode="nftables")
    four, six = judge([IPTABLES_FORWARD, Chain("ip6", "filter", "FORWARD", "forward", drops=True)], settings)
    assert "ip saddr 10.244.0.0/16" in four.fix
    assert "ip6 saddr fd00:244::/56" in six.fix


def test_chains_of_the_other_family_do_not_matter() -> None:
    assert judge([Chain("ip6", "filter", "INPUT", "input", drops=True)], Settings()) == []
