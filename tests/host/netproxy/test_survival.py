"""Rules after restarts, flushes by others and an API server outage; and a cleanup that leaves nothing."""

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from netproxy import pod_subsystem, proxy
from netproxy.cleanup import cleanup
from netproxy.podnet import cluster_routes, cni, source_rules
from tests.host.netproxy.conftest import MODES, NODE_IP, PODS, Site, populated, running, talk, until, until_echo
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of

WEB = "10.96.5.1"


def rules(site: Site) -> list[str]:
    """Every rule and chain of the namespace, in both flavours, without counters."""
    lines = []
    for flavour in ("nft", "legacy"):
        saved = site.node.run(f"iptables-{flavour}-save").splitlines()
        lines += [line.split(" [")[0] for line in saved if not line.startswith("#")]
    lines += site.node.run("nft", "list", "table", "ip", "kube-proxy", check=False).splitlines()
    return lines


def pods_are_known(site: Site) -> bool:
    """Return whether pods' traffic is masqueraded, the last that the role sets up in the tables."""
    return any("10.244.1.0/24" in line and "masquerade" in line.lower() for line in rules(site))


def test_a_restart_changes_no_rule_and_loses_no_request(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", WEB), slice_of("web", *PODS.values()))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, WEB), "the Service answers")
            await until(lambda: pods_are_known(site), "pods are known")
            before = await asyncio.to_thread(rules, site)
        assert await asyncio.to_thread(rules, site) == before  # the end leaves everything in force
        failures = 0
        stop = asyncio.Event()

        async def load() -> None:
            nonlocal failures
            while not stop.is_set():
                if not await asyncio.to_thread(site.fetch, site.node, WEB):
                    failures += 1

        async with asyncio.TaskGroup() as group:
            group.create_task(load())
            async with running(site.config, api):
                await until(lambda: "true" in site.fetch_path(site.node, "127.0.0.1:10256/healthz"), "healthy again")
                # Rules about the node's pods follow when its Node is known.
                await until(lambda: sorted(rules(site)) == sorted(before), "the rules are those before")
                await asyncio.sleep(0.5)
                stop.set()
        assert failures == 0
        assert sorted(await asyncio.to_thread(rules, site)) == sorted(before)

    site.node.inside(check)


def test_stale_chains_of_an_earlier_life_are_removed_at_the_start(site: Site) -> None:
    async def check() -> None:
        async with running(site.config, populated(service("old", "10.96.9.9"), slice_of("old", PODS["pod-a"]))):
            await until(lambda: site.fetch(site.node, "10.96.9.9"), "the old Service answers")
        async with running(site.config, populated(service("web", WEB), slice_of("web", PODS["pod-b"]))):
            await until(lambda: site.fetch(site.node, WEB) == "pod-b", "the new Service answers")
            await until(
                lambda: not any("10.96.9.9" in line or "default/old" in line for line in rules(site)),
                "nothing of the old Service is left",
            )

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft", "legacy"], indirect=True)
@pytest.mark.parametrize(
    "damage",
    [
        ["-t", "nat", "-F"],
        ["-F"],
        ["-t", "nat", "-F", "KUBE-SERVICES"],
        ["-t", "nat", "-D", "OUTPUT", "1"],
        ["-D", "KUBE-FIREWALL", "1"],
    ],
    ids=lambda damage: " ".join(damage),
)
def test_what_others_remove_is_repaired_and_their_own_rules_stay(
    site: Site, damage: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "CHECK_PERIOD", 0.2)

    async def check() -> None:
        tool = f"iptables-{site.config.iptables_flavour}"
        api = populated(service("web", WEB), slice_of("web", PODS["pod-a"]))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
            await until(lambda: pods_are_known(site), "pods are known")
            before = sorted(await asyncio.to_thread(rules, site))
            await asyncio.to_thread(site.node.run, tool, *damage)
            await asyncio.to_thread(site.node.run, tool, "-A", "INPUT", "-s", "198.51.100.7", "-j", "DROP")
            await asyncio.to_thread(site.node.run, tool, "-t", "nat", "-N", "SOMEBODY")
            await until(
                lambda: (
                    sorted(line for line in rules(site) if "198.51.100.7" not in line and "SOMEBODY" not in line)
                    == before
                ),
                "everything is back",
            )
            assert any("198.51.100.7" in line for line in await asyncio.to_thread(rules, site))
            assert await asyncio.to_thread(site.fetch, site.node, WEB) == "pod-a"

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
@pytest.mark.parametrize(
    "damage",
    [
        "flush ruleset",
        "flush chain ip kube-proxy nat-output",
        "flush map ip kube-proxy service-ips",
        "delete element ip kube-proxy cluster-endpoints-tcp { 10.96.5.1 . 80 . 0 }",
        "add element ip kube-proxy no-endpoint-services { 10.96.5.1 . tcp . 80 : drop }",
        "add rule ip kube-proxy services drop",
    ],
)
def test_a_damaged_table_is_repaired_and_other_tables_stay(
    site: Site, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "CHECK_PERIOD", 0.2)

    async def check() -> None:
        api = populated(service("web", WEB), slice_of("web", PODS["pod-a"]))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
            await until(lambda: pods_are_known(site), "pods are known")
            await asyncio.sleep(0.5)  # one look of the verifier, which stores nft's form of the rules
            before = sorted(await asyncio.to_thread(rules, site))
            await asyncio.to_thread(site.node.run, "nft", *damage.split())
            await asyncio.to_thread(site.node.run, "nft", "add", "table", "ip", "somebody")
            await until(lambda: sorted(rules(site)) == before, "everything is back")
            assert "somebody" in await asyncio.to_thread(site.node.run, "nft", "list", "tables")
            assert await asyncio.to_thread(site.fetch, site.node, WEB) == "pod-a"

    site.node.inside(check)


def test_routes_that_others_remove_are_put_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_subsystem, "CHECK_PERIOD", 0.2)

    async def check() -> None:
        api = populated(service("web", WEB), slice_of("web", PODS["pod-a"]))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
            await asyncio.to_thread(site.node.run, "ip", "link", "del", cluster_routes.DEVICE)
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers again")

    site.node.inside(check)


def test_services_keep_answering_while_the_api_server_is_away_and_changes_are_caught_up(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", WEB), slice_of("web", PODS["pod-a"]))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
            api.go_away()
            api.put(slice_of("web", PODS["pod-b"]))
            assert await asyncio.to_thread(site.fetch, site.node, WEB) == "pod-a"
            api.go_away(False)
            await until(lambda: site.fetch(site.node, WEB) == "pod-b", "the change is caught up")

    site.node.inside(check)


def test_an_open_connection_outlives_every_change_of_its_services_endpoints(site: Site) -> None:
    async def check() -> None:
        await until_echo(site, "pod-a")
        echo = {"http": 7777}
        api = populated(service("web", WEB), slice_of("web", PODS["pod-a"], ports=echo))
        async with running(site.config, api):
            await until(lambda: site.error(site.node, WEB) == "", "the Service answers")
            count = talk(site, site.pods["pod-b"], WEB, 80)
            await until(lambda: count() > 2, "the connection is used")
            for endpoints in (PODS.values(), [PODS["pod-b"]], ["10.244.1.9", "10.244.1.8"], []):
                api.put(slice_of("web", *endpoints, ports=echo))
                if not endpoints:
                    await until(lambda: site.error(site.node, WEB) == "ECONNREFUSED", "new connections are refused")
                before = count()
                await until(lambda b=before: count() > b + 2, "the open connection goes on")  # type: ignore[misc]
        async with running(site.config, api):  # a restart
            await until(lambda: "true" in site.fetch_path(site.node, "127.0.0.1:10256/healthz"), "healthy again")
            before = count()
            await until(lambda: count() > before + 2, "the open connection outlives a restart")

    site.node.inside(check)


def test_cleanup_leaves_nothing(site: Site) -> None:
    async def check() -> None:
        tool = f"iptables-{site.config.iptables_flavour}"
        site.node.run(tool, "-A", "INPUT", "-s", "198.51.100.7", "-j", "DROP")
        api = populated(
            service("web", WEB, port("http", 80, node_port=30080), type="NodePort"), slice_of("web", PODS["pod-a"])
        )
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
            await until(
                lambda: (site.folder / "net.d" / "10-wherry.conflist").exists(), "the CNI configuration is there"
            )
        await cleanup(site.config, everything=True)
        left = await asyncio.to_thread(rules, site)
        assert [line for line in left if "kube" in line.lower() or "WHERRY" in line] == []
        assert any("198.51.100.7" in line for line in left)
        assert "10.96." not in site.node.run("ip", "route") + site.node.run("ip", "address")
        assert "proto 87" not in site.node.run("ip", "route")
        assert list((site.folder / "net.d").iterdir()) == []
        with contextlib.suppress(FileNotFoundError):
            await cleanup(site.config, everything=True)  # a second time is no error

    site.node.inside(check)


@pytest.mark.parametrize("target", ["the cluster IP", "the node port"])
def test_udp_flows_leave_an_endpoint_that_is_gone(site: Site, target: str) -> None:
    """A client that keeps its source port would else be sent to the removed endpoint until its flow times out."""

    async def check() -> None:
        for name, pod in site.pods.items():
            answer = (
                "import socket\n"
                "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 5353))\n"
                f"while True: s.sendto({name.encode()!r}, s.recvfrom(100)[1])\n"
            )
            pod.start("python3", "-I", "-c", answer)
        dns = service("dns", "10.96.5.3", port("udp", 53, "UDP", node_port=30053), type="NodePort")
        client, where = (
            (site.node, ("10.96.5.3", 53)) if target == "the cluster IP" else (site.client, (NODE_IP, 30053))
        )

        def at(pod: str) -> Any:
            return slice_of("dns", PODS[pod], ports={"udp": 5353}, protocol="UDP")

        def ask() -> str:
            program = (
                "import socket\n"
                "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 40999)); s.settimeout(1)\n"
                f"s.sendto(b'x', {where!r})\n"
                "try: print(s.recv(100).decode())\n"
                "except OSError: print('')\n"
            )
            return client.run("python3", "-I", "-c", program, check=False).strip()

        api = populated(dns, at("pod-a"))
        async with running(site.config, api):
            await until(lambda: ask() == "pod-a", "the first endpoint answers")
            api.put(at("pod-b"))
            await until(lambda: ask() == "pod-b", "the same client port reaches the new endpoint")
        # What changes while nobody follows is made up for at the next start.
        async with running(site.config, populated(dns, at("pod-a"))):
            await until(lambda: ask() == "pod-a", "the flow of the earlier life is gone")

    site.node.inside(check)


@pytest.mark.parametrize(
    ("site", "earlier"), [("nft", "legacy"), ("legacy", "nftables"), ("nftables", "nft")], indirect=["site"]
)
def test_a_switch_of_mode_or_flavour_leaves_nothing_of_the_earlier(site: Site, earlier: str) -> None:
    def held(mode: str) -> bool:
        if mode == "nftables":
            return "kube-proxy" in site.node.run("nft", "list", "tables")
        return "KUBE" in site.node.run(f"iptables-{mode}-save")

    async def check() -> None:
        mine = "nftables" if site.config.mode == "nftables" else site.config.iptables_flavour
        mode = "nftables" if earlier == "nftables" else "iptables"
        flavour = "nft" if earlier == "nftables" else earlier
        api = populated(service("web", WEB), slice_of("web", PODS["pod-a"]))
        async with running(dataclasses.replace(site.config, mode=mode, iptables_flavour=flavour), api):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
        async with running(site.config, api):
            await until(lambda: [each for each in MODES if held(each)] == [mine], "only the new mode's rules are there")
            assert await asyncio.to_thread(site.fetch, site.node, WEB) == "pod-a"

    site.node.inside(check)


def test_a_restart_keeps_pods_without_a_cni_result_connected_while_the_node_is_not_known(site: Site) -> None:
    async def check() -> None:
        web = service("web", WEB), slice_of("web", PODS["pod-a"])
        folder = site.config.pod_network.cni_conf_dir
        async with running(site.config, populated(*web)):
            await until(lambda: site.fetch(site.node, WEB) == "pod-a", "the Service answers")
            await until(lambda: cni.configured_ranges(folder), "the pod network is configured")
        api = MemoryAPI()
        for each in web:
            api.put(each)
        site.node.run("nft", f"add element {source_rules.TABLE} ports {{ stray }}")
        async with running(site.config, api):
            listing = f"list set {source_rules.TABLE} ports"
            await until(
                lambda: "stray" not in site.node.run("nft", listing), "the table of source addresses is repaired"
            )
            assert await asyncio.to_thread(site.fetch, site.node, WEB, 80, 2) == "pod-a"

    site.node.inside(check)


def test_node_ports_are_served_only_on_the_addresses_named(site: Site) -> None:
    async def check() -> None:
        site.node.run("ip", "address", "add", "192.168.77.9/24", "dev", "uplink")
        web = service("web", WEB, port("http", 80, node_port=30080), type="NodePort")
        config = dataclasses.replace(site.config, node_port_addresses=("192.168.77.1/32",))
        async with running(config, populated(web, slice_of("web", PODS["pod-a"]))):
            await until(lambda: site.fetch(site.client, NODE_IP, 30080) == "pod-a", "the address named answers")
            assert await asyncio.to_thread(site.fetch, site.client, "192.168.77.9", 30080, 2) == ""
            assert await asyncio.to_thread(site.fetch, site.node, "127.0.0.1", 30080, 2) == ""

    site.node.inside(check)
