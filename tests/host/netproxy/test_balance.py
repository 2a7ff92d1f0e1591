"""Every endpoint of a port gets the same share of new flows, however many there are: counted in the kernel's own flow table."""

import collections
import math
import re
import socket

import pytest

from netproxy.endpoints import NodeView
from netproxy.iptables.backend import IPTablesBackend
from netproxy.model import plan_service
from netproxy.nft.writer import NftWriter
from netproxy.nftables.backend import NFTablesBackend
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.writer import RestoreWriter
from tests.host.netproxy.conftest import CLIENT_IP, Site
from tests.support.services import port, service, slice_of

FLOWS = 1500
DEVIATIONS = 6
"""Standard deviations from the fair share that are taken for chance: more happen once in 10^9."""


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_flows_are_spread_evenly_over_any_number_of_endpoints(site: Site, affinity: str) -> None:
    async def check() -> None:
        site.node.run("ip", "route", "add", "default", "via", CLIENT_IP)
        site.node.run("ip", "route", "add", "local", "198.18.0.0/16", "dev", "lo")
        rules = RuleSettings(local_cidrs=("10.244.0.0/16",))
        nftables = site.config.mode == "nftables"
        proxy = (
            NFTablesBackend(NftWriter(in_process=True), rules, FixedChainSettings())
            if nftables
            else IPTablesBackend(RestoreWriter(site.config.iptables_flavour), rules, FixedChainSettings())
        )
        await proxy.start({})
        for count in (1, 2, 3, 7, 13) if affinity == "None" else (3,):
            dns = service("dns", "10.96.5.1", port("dns", 53, "UDP"), session_affinity=affinity)
            addresses = [f"10.244.2.{number + 1}" for number in range(count)]
            made = slice_of("dns", *addresses, ports={"dns": 53}, protocol="UDP")
            await proxy.apply({"default/dns": plan_service(dns, [made], NodeView("node-1"))})
            site.node.run("conntrack", "-F")
            for number in range(FLOWS):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                    if affinity == "ClientIP":  # a client an address
                        sock.bind((f"198.18.{number >> 8}.{number & 255}", 0))
                    sock.sendto(b"x", ("10.96.5.1", 53))
            flows = site.node.run("conntrack", "-L", "-p", "udp", "--orig-dst", "10.96.5.1")
            shares = collections.Counter(re.findall(r"src=(10\.244\.2\.\d+) ", flows))
            assert shares.keys() == set(addresses)
            total = shares.total()
            assert total > FLOWS * 0.9, total
            allowed = DEVIATIONS * math.sqrt(total / count * (1 - 1 / count))
            assert all(abs(each - total / count) <= allowed for each in shares.values()), (count, shares)

    site.node.inside(check, 120)
