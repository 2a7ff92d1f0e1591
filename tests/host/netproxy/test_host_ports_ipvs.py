"""The rules of the IPVS mode and those of host ports in one kernel; a device has the addresses in place of IPVS.

IPVS gets packets at hook `input`: what is delivered to a server on the node would have reached the virtual server.
"""

import subprocess
from pathlib import Path

import pytest

from netproxy.endpoints import NodeView
from netproxy.ipset import create_sets, set_commands
from netproxy.ipvs.state import PlanSettings, plan
from netproxy.model import plan_service
from netproxy.podnet.cni import network_list
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.ipvs_chains import fixed, jumps, with_rules
from tests.host.netproxy.conftest import NODE_IP, PODS, Site, serve_http
from tests.host.netproxy.test_host_ports import NODE_IP6, POD_B6, host_port, other  # noqa: F401 - a fixture
from tests.host.netproxy.test_podnet import cni
from tests.support.netns import Namespace
from tests.support.services import endpoint, port, service, slice_of

ADDRESSES = {4: NODE_IP, 6: NODE_IP6}


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_addresses_and_node_ports_of_services_are_not_taken(site: Site, other: Namespace) -> None:  # noqa: F811
    site.node.run("ip", "link", "set", "lo", "up")
    victim = service(
        "web", "10.96.5.1", port("http", 80, node_port=30080), type="NodePort", ips=["10.96.5.1", "fd00:96::1"]
    )
    slices = [
        slice_of("web", PODS["pod-b"]),
        slice_of("web", endpoint(POD_B6), suffix="six", address_type="IPv6"),
    ]
    ports = plan_service(victim, slices, NodeView("node-1"), (4, 6))
    for number in (80, 30080):
        serve_http(site.node, site.folder / f"virtual-{number}", "virtual server", number)
    site.node.run("ip", "link", "add", "virtual0", "type", "bridge")
    site.node.run("ip", "link", "set", "virtual0", "up")
    for family, own in ADDRESSES.items():
        state = plan(ports, PlanSettings(family, node_addresses=(own,), own_addresses=frozenset({own})))
        _feed(site, ["ipset", "restore", "-exist"], create_sets(family) + set_commands(set(), state.entries, family))
        _feed(site, [f"{'iptables' if family == 4 else 'ip6tables'}-nft-restore", "--noflush"], _rules(family))
        for address in state.addresses:
            site.node.run("ip", "address", "add", address, "dev", "virtual0", *(["nodad"] if family == 6 else []))
    site.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    conflist = network_list(
        ["10.244.1.0/24", "fd00:244:1::/64"],
        bridge="cni0",
        mtu=1450,
        host_ports=True,
        data_dir=str(site.folder / "cni"),
        ready_file=Path("/dev/null"),
    )
    mappings = [*map(host_port, (80, 30080, 30081))]
    cni("ADD", conflist, site.node, other, portMappings=mappings)
    try:
        serve_http(other, site.folder / "other", "other")
        for origin in (site.client, site.pods["pod-a"], site.node):
            for own in (NODE_IP, f"[{NODE_IP6}]"):
                assert site.fetch(origin, own, 30080) == "virtual server", (origin.name, own)
                assert site.fetch(origin, own, 30081) == "other", (origin.name, own)
            for address in ("10.96.5.1", "[fd00:96::1]") if origin is not site.client else ():
                assert site.fetch(origin, address) == "virtual server", (origin.name, address)
    finally:
        cni("DEL", conflist, site.node, other, portMappings=mappings)


def _rules(family: int) -> str:
    pods, services = (
        (("10.244.0.0/16",), ("10.96.0.0/12",)) if family == 4 else (("fd00:244::/32",), ("fd00:96::/112",))
    )
    settings = with_rules(
        FixedChainSettings(family, service_cidrs=services, cluster_cidrs=pods, pod_cidrs=pods),
        RuleSettings(family, local_cidrs=pods),
    )
    tables: dict[str, list[str]] = {}
    chains = fixed(settings)
    for table, chain in chains:
        tables.setdefault(table, []).append(f":{chain} - [0:0]")
    for (table, chain), rules in chains.items():
        tables[table] += [f"-A {chain} {rule}" for rule in rules]
    for jump in jumps(family):
        tables[jump.table].append(f"-I {jump.chain} {jump.rule}")
    return "".join(f"*{table}\n" + "\n".join(lines) + "\nCOMMIT\n" for table, lines in tables.items())


def _feed(site: Site, command: list[str], text: str) -> None:
    argv = ["nsenter", f"--net={site.node.path}", *command]
    done = subprocess.run(argv, input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
