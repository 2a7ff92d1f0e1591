"""Real packets between namespaces through the rules that the role writes, on both flavours of iptables."""

import asyncio
import collections
import sys
from dataclasses import replace
from typing import Any

import pytest

from netproxy import cleanup, localnet
from netproxy.xtables.chain_names import FORWARD, LOCALHOST_NODE_PORTS
from netproxy.xtables.writer import RestoreWriter
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, PODS, Site, populated, running, until
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace
from tests.support.services import endpoint, port, service, slice_of


def test_a_cluster_ip_answers_from_host_and_pods_and_reaches_every_endpoint(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", "10.96.5.1"), slice_of("web", *PODS.values()))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, "10.96.5.1"), "the host gets an answer")
            pod = site.pods["pod-a"]
            seen = collections.Counter()
            for _ in range(40):
                seen[await asyncio.to_thread(site.fetch, pod, "10.96.5.1")] += 1
                if len(seen) == 2 and min(seen.values()) > 1:
                    break
            assert set(seen) == {"pod-a", "pod-b"}  # pod-a among them: hairpin through the Service

    site.node.inside(check)


def test_a_node_port_answers_from_outside_and_on_localhost(site: Site) -> None:
    async def check() -> None:
        api = populated(
            service("web", "10.96.5.1", port("http", 80, node_port=30080), type="NodePort"),
            slice_of("web", PODS["pod-a"]),
        )
        async with running(site.config, api):
            await until(lambda: site.fetch(site.client, NODE_IP, 30080) == "pod-a", "the client gets an answer")
            await until(lambda: site.fetch(site.node, NODE_IP, 30080) == "pod-a", "the node itself gets an answer")
            # As upstream: node ports on 127.0.0.1 are a matter of the iptables mode alone.
            expected = "" if site.config.mode == "nftables" else "pod-a"
            await until(lambda: site.fetch(site.node, "127.0.0.1", 30080) == expected, "localhost is served or not")
            if expected:
                writer = RestoreWriter(site.config.iptables_flavour)
                entered, left = await writer.packets("nat", LOCALHOST_NODE_PORTS)
                assert entered > left, "who came by localhost is counted, for the metric"
                assert len(await writer.packets("filter", FORWARD)) == 3

    site.node.inside(check)


def test_a_service_without_endpoints_refuses_and_answers_once_it_has_one(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", "10.96.5.1"))
        async with running(site.config, api):
            await until(lambda: site.error(site.node, "10.96.5.1") == "ECONNREFUSED", "the host is refused")
            assert await asyncio.to_thread(site.error, site.pods["pod-a"], "10.96.5.1") == "ECONNREFUSED"
            api.put(slice_of("web", PODS["pod-b"]))
            await until(lambda: site.fetch(site.node, "10.96.5.1") == "pod-b", "the endpoint answers")
            api.put(slice_of("web"))
            await until(lambda: site.error(site.node, "10.96.5.1") == "ECONNREFUSED", "refused again")

    site.node.inside(check)


def test_a_socket_in_use_follows_a_udp_service_to_another_target_port(site: Site) -> None:
    """The server still answers at the former port, so nothing but the translation says which is the Service's."""
    answers = site.folder / "answers"
    echo = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', int(sys.argv[1])))\n"
        "while True:\n"
        "    d, a = s.recvfrom(99); s.sendto(sys.argv[1].encode(), a)\n"
    )
    ask = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('10.96.5.3', 53)); s.settimeout(0.1)\n"
        "out = open(sys.argv[1], 'w', buffering=1)\n"
        "while True:\n"
        "    try: s.send(b'?'); out.write(s.recv(99).decode() + '\\n')\n"
        "    except OSError: pass\n"
        "    time.sleep(0.02)\n"
    )

    def at(number: int) -> Any:
        return slice_of("dns", PODS["pod-b"], ports={"udp": number}, protocol="UDP")

    async def check() -> None:
        api = populated(service("dns", "10.96.5.3", port("udp", 53, "UDP")), at(5353))
        for number in ("5353", "5454"):
            site.pods["pod-b"].start(sys.executable, "-I", "-c", echo, number)
        async with running(site.config, api):
            site.pods["pod-a"].start(sys.executable, "-I", "-c", ask, str(answers))
            await until(lambda: answers.exists() and "5353" in answers.read_text(), "the first port answers")
            api.put(at(5454))
            await until(lambda: "5454" in answers.read_text(), "the same socket is answered from the other port")

    site.node.inside(check)


def test_a_cluster_ip_of_no_service_never_leaves_the_host(site: Site) -> None:
    async def check() -> None:
        # The way out is there: only the role's own routes and rules keep the packet in.
        site.node.run("ip", "route", "add", "default", "via", CLIENT_IP)
        site.client.run("ip", "address", "add", "10.111.1.1/32", "dev", "lo")
        site.client.start("busybox", "httpd", "-f", "-p", "80", "-h", str(site.folder / "pod-a"))
        api = populated(service("web", "10.96.5.1"), slice_of("web", PODS["pod-a"]))
        await until(lambda: site.fetch(site.node, "10.111.1.1") == "pod-a", "the way out is open at first")
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, "10.96.5.1") == "pod-a", "the proxy serves")
            assert await asyncio.to_thread(site.error, site.node, "10.111.1.1") == "ECONNREFUSED"
            assert await asyncio.to_thread(site.error, site.pods["pod-a"], "10.111.1.1") == "ECONNREFUSED"
            # Past the rules the route still leads nowhere.
            if site.config.mode == "nftables":
                await asyncio.to_thread(site.node.run, "nft", "flush", "chain", "ip", "kube-proxy", "filter-output")
            else:
                await asyncio.to_thread(site.node.run, f"iptables-{site.config.iptables_flavour}", "-F", "OUTPUT")
            assert await asyncio.to_thread(site.fetch, site.node, "10.111.1.1", 80, 1) == ""

    site.node.inside(check)


def test_external_traffic_policy_local_keeps_the_client_address_and_drops_without_local_endpoints(site: Site) -> None:
    async def check() -> None:
        web = service(
            "web", "10.96.5.1", port("http", 80, node_port=30080), type="NodePort", external_traffic_policy="Local"
        )
        here, elsewhere = endpoint(PODS["pod-a"], node="node-1"), endpoint(PODS["pod-b"], node="node-2")
        api = populated(web, slice_of("web", here, elsewhere))
        async with running(site.config, api):
            for _ in range(8):
                await until(
                    lambda: site.fetch(site.client, NODE_IP, 30080) == "pod-a", "only the local endpoint answers"
                )
            flows = await asyncio.to_thread(site.node.run, "conntrack", "-L", "-p", "tcp", "--orig-port-dst", "30080")
            assert f"src={PODS['pod-a']} dst={CLIENT_IP}" in flows  # the answer goes to the client itself: no SNAT
            api.put(slice_of("web", elsewhere))
            await until(
                lambda: site.error(site.client, NODE_IP, 30080) == "ETIMEDOUT", "packets from outside are dropped"
            )
            # What starts on the node itself takes the way of the cluster policy.
            await until(lambda: site.fetch(site.node, NODE_IP, 30080) == "pod-b", "the node reaches the other endpoint")

    site.node.inside(check)


def test_session_affinity_keeps_a_client_at_its_endpoint(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", "10.96.5.1", session_affinity="ClientIP"), slice_of("web", *PODS.values()))
        async with running(site.config, api):
            await until(lambda: site.fetch(site.pods["pod-a"], "10.96.5.1"), "the pod gets an answer")
            answers = {await asyncio.to_thread(site.fetch, site.pods["pod-a"], "10.96.5.1") for _ in range(12)}
            assert len(answers) == 1

    site.node.inside(check)


def test_load_balancer_source_ranges_let_in_only_whom_they_name(site: Site) -> None:
    async def check() -> None:
        web = service(
            "web",
            "10.96.5.1",
            type="LoadBalancer",
            ingress=("203.0.113.9",),
            load_balancer_source_ranges=["198.51.100.0/24"],
        )
        api = populated(web, slice_of("web", PODS["pod-a"]))
        site.node.run("ip", "route", "add", "default", "via", CLIENT_IP)
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, "10.96.5.1") == "pod-a", "the proxy serves")
            assert await asyncio.to_thread(site.error, site.client, "203.0.113.9") == "ETIMEDOUT"
            web.spec.load_balancer_source_ranges = [f"{CLIENT_IP}/32"]
            api.put(web)
            await until(lambda: site.fetch(site.client, "203.0.113.9") == "pod-a", "the client is let in")

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft", "legacy"], indirect=True)
def test_packets_from_outside_to_the_loopback_range_are_dropped(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", "10.96.5.1"), slice_of("web", PODS["pod-a"]))
        site.node.start("busybox", "httpd", "-f", "-p", "127.0.0.1:9999", "-h", str(site.folder / "pod-a"))
        send_loopback_to(site.client, NODE_IP, CLIENT_IP)
        async with running(site.config, api):
            await until(lambda: site.fetch(site.node, "10.96.5.1") == "pod-a", "the proxy serves")
            await until(lambda: route_localnet(site) == "1", "localnet opens")
            site.node.start("busybox", "httpd", "-f", "-p", "127.0.0.5:9998", "-h", str(site.folder / "pod-a"))
            await until(lambda: site.fetch(site.node, "127.0.0.5", 9998) == "pod-a", "the local server answers locally")
            assert await asyncio.to_thread(site.fetch, site.client, "127.0.0.5", 9998, 2) == ""
            flavour = site.config.iptables_flavour
            # The guard is what drops it: without it, the packet would have arrived.
            listing = await asyncio.to_thread(site.node.run, f"iptables-{flavour}", "-nvL", "KUBE-FIREWALL", "-x")
            dropped = int(next(line for line in listing.splitlines() if "DROP" in line).split()[0])
            assert dropped > 0

    site.node.inside(check)


def send_loopback_to(namespace: Namespace, gateway: str, own: str) -> None:
    """Have a namespace send what is for 127.0.0.5 to a neighbour."""
    namespace.run("sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
    namespace.run("ip", "route", "add", "127.0.0.5/32", "via", gateway, "dev", "eth0", "src", own)
    namespace.run("ip", "rule", "add", "pref", "1000", "to", "127.0.0.5", "lookup", "main")
    namespace.run("ip", "rule", "add", "pref", "2000", "lookup", "local")
    namespace.run("ip", "rule", "del", "pref", "0")


def route_localnet(site: Site) -> str:
    return site.node.run("sysctl", "-n", "net.ipv4.conf.all.route_localnet").strip()


@pytest.mark.parametrize("then", ["nftables", "removed", "no node ports on 127.0.0.1"])
@pytest.mark.parametrize("site", ["nft", "legacy"], indirect=True)
def test_the_loopback_range_stays_closed_when_its_guard_goes(site: Site, then: str) -> None:
    """But for what the machine's owner has opened, which shows that packets come that far; pods' packets never do."""
    pod = site.pods["pod-b"]

    def guarded() -> bool:
        tool = f"iptables-{site.config.iptables_flavour}"
        return "block incoming localnet" in site.node.run(tool, "-S", "KUBE-FIREWALL", check=False)

    def readers() -> list[str]:
        """Return who reads a page of a server on 127.0.0.5 of the node."""
        found = {"client": site.client, "pod-b": pod}
        return [name for name, each in found.items() if site.fetch(each, "127.0.0.5", 9998, 2) == "pod-a"]

    async def go_on(api: MemoryAPI, setting: str) -> None:
        """Have come what comes after the iptables mode, and wait until all is as it must be."""
        if then == "removed":
            await cleanup.remove_services()
        else:
            off = then.startswith("no")
            config = replace(site.config, **({"localhost_node_ports": False} if off else {"mode": then}))
            async with running(config, api):
                await until(lambda: site.fetch(site.node, "10.96.5.1") == "pod-a", "the proxy serves")
                await until(lambda: route_localnet(site) == setting, "the setting is the owner's")
                await until(lambda: guarded() == off, "the other mode's rules are gone")

    async def check() -> None:
        api = populated(service("web", "10.96.5.1"), slice_of("web", PODS["pod-a"]))
        send_loopback_to(site.client, NODE_IP, CLIENT_IP)
        send_loopback_to(pod, "10.244.1.1", PODS["pod-b"])
        site.node.start("busybox", "httpd", "-f", "-p", "127.0.0.5:9998", "-h", str(site.folder / "pod-a"))
        await until(lambda: site.fetch(site.node, "127.0.0.5", 9998) == "pod-a", "the local server answers locally")
        for opened in (False, True):
            site.node.run("sysctl", "-qw", f"net.ipv4.conf.all.route_localnet={int(opened)}")
            async with running(site.config, api):
                await until(lambda: site.fetch(site.node, "10.96.5.1") == "pod-a", "the proxy serves")
                await until(lambda: guarded() and route_localnet(site) == "1", "localnet opens")
                assert await asyncio.to_thread(readers) == []
            await go_on(api, str(int(opened)))
            assert route_localnet(site) == str(int(opened))
            assert await asyncio.to_thread(readers) == (["client"] if opened and not guarded() else [])

    site.node.inside(check)
    assert not (localnet.RUN / f"{localnet.MARK}{site.node.path.stat().st_ino}").exists()


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_health_and_metrics_answer_as_upstreams_proxy_does(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", "10.96.5.1"), slice_of("web", PODS["pod-a"]))
        async with running(site.config, api):
            await until(lambda: '"nodeEligible":true' in get(site, "/healthz", 10256), "healthy")
            assert "lastUpdated" in await asyncio.to_thread(get, site, "/livez", 10256)
            assert await asyncio.to_thread(get, site, "/proxyMode", 10249) == "iptables"
            shown = await asyncio.to_thread(get, site, "/metrics", 10249)
            assert "kubeproxy_sync_proxy_rules_duration_seconds_bucket" in shown

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_a_health_check_node_port_reports_local_endpoints(site: Site) -> None:
    async def check() -> None:
        web = service(
            "web",
            "10.96.5.1",
            type="LoadBalancer",
            ingress=("203.0.113.9",),
            external_traffic_policy="Local",
            health_check_node_port=31999,
        )
        ask = ("curl", "-s", "-m", "2", "-w", " %{http_code}", f"http://{NODE_IP}:31999/healthz")
        api = populated(web, slice_of("web", endpoint(PODS["pod-a"], node="node-1"), endpoint(PODS["pod-b"], node="x")))
        async with running(site.config, api):
            await until(lambda: '"localEndpoints": 1' in site.client.run(*ask, check=False), "one endpoint is here")
            assert (await asyncio.to_thread(site.client.run, *ask)).endswith(" 200")
            api.put(slice_of("web", endpoint(PODS["pod-b"], node="x")))
            await until(lambda: site.client.run(*ask, check=False).endswith(" 503"), "none is here any more")
            api.remove(web)
            await until(lambda: site.client.run(*ask, check=False).strip() == "000", "the port is closed")

    site.node.inside(check)


def get(site: Site, path: str, number: int) -> str:
    return site.node.run("curl", "-s", f"http://127.0.0.1:{number}{path}", check=False)
