"""Rules read back as they were written, which comparisons depend on."""

import dataclasses

import pytest

from netproxy.endpoints import NodeView
from netproxy.errors import WriteError
from netproxy.ipset import create_sets, set_commands
from netproxy.iptables.backend import IPTablesBackend
from netproxy.iptables.rules import fragment
from netproxy.ipvs import kernel_requests
from netproxy.ipvs.kernel import DEVICE, RealKernel
from netproxy.ipvs.state import PlanSettings, plan
from netproxy.model import ServicePort, plan_service
from netproxy.nft.commands import reconcile
from netproxy.nft.table import Contents
from netproxy.nft.writer import NftWriter
from netproxy.nftables.backend import NFTablesBackend
from netproxy.nftables.elements import fragment as nft_fragment
from netproxy.nftables.shadow import Shadow as NftShadow
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.ipvs_chains import IPVS, with_rules
from netproxy.xtables.shadow import Shadow
from netproxy.xtables.writer import RestoreWriter
from tests.host.netproxy.conftest import Site
from tests.support.churn import Churn
from tests.support.services import endpoint, port, service, slice_of

V4 = ("10.96.5.1", "10.244.0.0/16", "10.96.0.0/12", "10.244.1.%d", "198.51.100.1", "203.0.113.0/24")
V6 = ("fd00:96::1", "fd00:244::/32", "fd00:96::/112", "fd00:244:1::%x", "2001:db8::1", "2001:db8:1::/48")


def everything(family: int) -> tuple[list[tuple[ServicePort, ...]], RuleSettings, FixedChainSettings]:
    """Services that between them give every kind of rule."""
    ip, pods, services, address, balancer, sources = V4 if family == 4 else V6
    kind = "IPv4" if family == 4 else "IPv6"
    nodes = [NodeView("node-1")]
    planned: list[tuple[ServicePort, ...]] = []
    for affinity in ("None", "ClientIP"):
        for internal in ("Cluster", "Local"):
            for external in ("Cluster", "Local"):
                for ranges in ([], [sources]):
                    for count in (0, 1, 7):
                        number = len(planned)
                        name = f"s{number}"
                        endpoints = [endpoint(address % (n + 2), node=f"node-{n % 2 + 1}") for n in range(count)]
                        web = service(
                            name,
                            ip,
                            port("http", number + 1, node_port=30000 + number),
                            *([port("dns", number + 1001)] if number % 2 else []),
                            type="LoadBalancer",
                            ingress=(balancer,),
                            session_affinity=affinity,
                            internal_traffic_policy=internal,
                            external_traffic_policy=external,
                            health_check_node_port=31000 + number,
                            load_balancer_source_ranges=ranges,
                        )
                        made = slice_of(name, *endpoints, ports={"http": 8080, "dns": 53}, address_type=kind)
                        planned.append(plan_service(web, [made], nodes[0], (family,)))
    rules = RuleSettings(family=family, local_cidrs=(pods,), node_addresses=(balancer,))
    settings = FixedChainSettings(family=family, service_cidrs=(services,), cluster_cidrs=(pods,), pod_cidrs=(pods,))
    return planned, rules, settings


@pytest.mark.parametrize(
    ("family", "interface", "lean"), [(4, "", False), (6, "", False), (4, "veth+", False), (4, "", True), (6, "", True)]
)
def test_rules_read_back_as_they_were_written(site: Site, family: int, interface: str, lean: bool) -> None:
    async def check() -> None:
        planned, rules, settings = everything(family)
        rules = dataclasses.replace(rules, local_interface=interface, lean=lean)
        if site.config.mode == "nftables":
            table = NftShadow(settings, rules)
            for number, ports in enumerate(planned):
                table.store(table.difference({str(number): nft_fragment(ports, rules)}).new)
            nft = NftWriter(family, in_process=True)
            await nft.apply(reconcile(table, Contents()))
            held = await nft.read()
            assert held.elements == table.elements
            assert held.rules.keys() == table.chains.keys()
            return
        shadow = Shadow(settings)
        for number, ports in enumerate(planned):
            shadow.put(str(number), fragment(ports, rules))
        writer = RestoreWriter(site.config.iptables_flavour, family)
        await writer.apply(shadow.reconcile(await writer.read()))
        assert shadow.reconcile(await writer.read()) == ""

    site.node.inside(check)


@pytest.mark.parametrize("seed", range(2))
def test_after_a_hundred_random_changes_the_kernel_holds_what_the_model_wants(site: Site, seed: int) -> None:
    async def check() -> None:
        churn = Churn(seed)
        rules = RuleSettings(local_cidrs=("10.244.0.0/16",))
        settings = FixedChainSettings(service_cidrs=("10.96.0.0/12",), cluster_cidrs=("10.244.0.0/16",))
        if site.config.mode == "nftables":
            nft = NftWriter(in_process=True)
            proxy = NFTablesBackend(nft, rules, settings)
        else:
            iptables = RestoreWriter(site.config.iptables_flavour)
            proxy = IPTablesBackend(iptables, rules, settings)  # type: ignore[assignment]
        await proxy.start({})
        for _ in range(100):
            churn.step()
            await proxy.apply(await churn.table.take_changes())
        if site.config.mode == "nftables":
            table = NftShadow(settings, rules)
            for key, ports in (await churn.plan()).items():
                table.store(table.difference({key: nft_fragment(ports, rules)}).new)
            held = await nft.read()
            assert held.elements == table.elements
            assert held.rules.keys() == table.chains.keys()
        else:
            shadow = Shadow(settings)
            for key, ports in (await churn.plan()).items():
                shadow.put(key, fragment(ports, rules))
            assert shadow.reconcile(await iptables.read()) == ""

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft", "legacy"], indirect=True)
@pytest.mark.parametrize("family", [4, 6])
def test_the_ipvs_modes_rules_and_sets_read_back_as_they_were_written(site: Site, family: int) -> None:
    """The part of the mode that every kernel has; virtual servers are a matter of tests/vm."""

    async def check() -> None:
        planned, rules, settings = everything(family)
        kernel, writer = RealKernel(family), RestoreWriter(site.config.iptables_flavour, family)
        sctp = service("sctp", V4[0], port("s", 99, "SCTP", node_port=32000), type="NodePort")
        ports = [each for ports in (*planned, plan_service(sctp, [], NodeView("node-1"))) for each in ports]
        nodes = ("192.168.77.1",) if family == 4 else ("fd00:77::1",)
        state = plan(ports, PlanSettings(family, node_addresses=nodes))
        assert {name for name, _ in state.entries} >= {"KUBE-LOOP-BACK", "KUBE-LOAD-BALANCER-SOURCE-CIDR"}
        await kernel.change_sets(create_sets(family) + set_commands((), state.entries, family))
        assert await kernel.entries() == state.entries
        shadow = Shadow(with_rules(settings, rules), IPVS)
        await writer.apply(shadow.reconcile(await writer.read()))
        assert shadow.reconcile(await writer.read()) == ""
        await IPTablesBackend(writer, rules, settings).cleanup()
        await kernel.change_sets(set_commands(state.entries, (), family))
        assert await kernel.entries() == set()
        # The same in small changes, which are made by netlink; what is there or gone already is no error.
        for before, after in (((), state.entries), (state.entries, ())):
            lines = set_commands(before, after, family).splitlines(keepends=True)
            for start in range(0, len(lines), 20):
                text = "".join(lines[start : start + 20])
                assert kernel_requests.set_requests(text, family)
                await kernel.change_sets(text)
                await kernel.change_sets(text)
            assert await kernel.entries() == set(after)
        site.node.run("ipset", "destroy")
        with pytest.raises(WriteError, match="No such file"):
            await kernel.change_sets(set_commands((), list(state.entries)[:1], family))

    site.node.inside(check)


@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_addresses_are_changed_and_those_that_are_there_or_gone_are_no_error(site: Site, count: int) -> None:
    async def check() -> None:
        site.node.run("ip", "link", "add", DEVICE, "type", "bridge")
        for family, form in ((4, "10.96.7.{}"), (6, "fd00:96::{:x}")):
            kernel, all_of_them = RealKernel(family), {form.format(n + 1) for n in range(count)}
            kept = {form.format(1)}
            await kernel.change_addresses(all_of_them, set())
            await kernel.change_addresses(all_of_them, set())
            assert await kernel.addresses() == all_of_them
            for _ in range(2):
                await kernel.change_addresses(set(), all_of_them - kept)
            assert await kernel.addresses() == kept
            await kernel.change_addresses(set(), kept)

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_clean_up_takes_both_families_device_and_sets(site: Site) -> None:
    """The device is a bridge here: kernels without virtual servers often have no dummy links either."""

    async def check() -> None:
        site.node.run("ip", "link", "add", DEVICE, "type", "bridge")
        kernels = [RealKernel(family) for family in (4, 6)]
        for kernel, address in zip(kernels, ("10.96.5.1", "fd00:96::1"), strict=True):
            await kernel.change_sets(create_sets(kernel.family))
            await kernel.change_addresses({address}, set())
        await kernels[0].cleanup()
        assert await kernels[1].addresses() == {"fd00:96::1"}  # what is the other family's stays until its turn
        await kernels[1].cleanup()
        assert site.node.run("ipset", "list", "-n") == ""
        assert DEVICE not in site.node.run("ip", "link")
        for kernel in kernels:
            await kernel.cleanup()  # a second time is no error

    site.node.inside(check)
