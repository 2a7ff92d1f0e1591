"""A Service whose rules the real kernel, or the program before it, refuses is left out; all others are in force."""

import dataclasses

import pytest

from kube.clock import SYSTEM
from netproxy.errors import WriteError
from netproxy.iptables.backend import IPTablesBackend
from netproxy.model import ServicePort, plan_service
from netproxy.nft.writer import NftWriter
from netproxy.nftables.backend import NFTablesBackend
from netproxy.service_writer import WHOLE_STARTS, ServiceWriter
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.writer import RestoreWriter
from tests.host.netproxy.conftest import Site
from tests.support.services import service, slice_of

RULES = RuleSettings(local_cidrs=("10.244.0.0/16",))
FIXED = FixedChainSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=("10.244.0.0/16",))


def planned(number: int, broken: bool) -> tuple[ServicePort, ...]:
    made = plan_service(service(f"s{number}", f"10.96.5.{number}"), [slice_of(f"s{number}", "10.244.1.2")])
    return tuple(dataclasses.replace(each, protocol="TCPX") for each in made) if broken else made


def backend(site: Site) -> IPTablesBackend | NFTablesBackend:
    if site.config.mode == "nftables":
        return NFTablesBackend(NftWriter(in_process=True), RULES, FIXED)
    return IPTablesBackend(RestoreWriter(site.config.iptables_flavour), RULES, FIXED)


async def served(site: Site) -> set[str]:
    """Return the cluster IPs that the kernel's rules translate."""
    if site.config.mode == "nftables":
        held = (await NftWriter().read()).elements
        return {key.partition(" ")[0] for name, key in held if name == "service-ips"}
    rules = (await RestoreWriter(site.config.iptables_flavour).read())["nat"]["KUBE-SERVICES"]
    return {rule.split("/")[0].removeprefix("-d ") for rule in rules if rule.startswith("-d 10.96.5.")}


@pytest.mark.parametrize("broken", [{3}, {1, 2, 8}])
def test_refused_services_are_left_out_of_a_change_and_of_a_start(site: Site, broken: set[int]) -> None:
    async def check() -> None:
        refused: dict[str, str] = {}
        services = {str(number): planned(number, number in broken) for number in range(1, 10)}
        good = {f"10.96.5.{number}" for number in range(1, 10) if number not in broken}
        writer = ServiceWriter(backend(site), SYSTEM, refused.__setitem__)
        await writer.start({"0": planned(10, False)})
        await writer.apply(services)
        assert refused.keys() == {str(number) for number in broken} and all(refused.values())
        assert await served(site) == good | {"10.96.5.10"}
        await writer.apply({str(number): planned(number, False) for number in broken} | {"0": ()})
        assert await served(site) == good  # those that were refused are retried some seconds later

        again = ServiceWriter(backend(site), SYSTEM)
        for _ in range(WHOLE_STARTS):
            with pytest.raises(WriteError):
                await again.start(services)
        await again.start(services)
        assert await served(site) == good

    site.node.inside(check)
