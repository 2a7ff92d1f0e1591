"""Services whose endpoint is the node's own tunnel: ip_vs translates to it after most filters, in both families."""

import dataclasses
import ipaddress
import sys

from netproxy.podnet.tunnel_guard import TunnelGuard
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, Site, running, until
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of
from tests.vm.ipvs.machine_site import CLIENT_SIX, LIMIT, NODE_SIX

PORT, NODE_PORT = 8472, 30111
RECEIVE = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('', int(sys.argv[2])))\n"
    "out = open(sys.argv[1], 'a')\n"
    "while True: print(s.recv(99).decode(), file=out, flush=True)\n"
)
SEND = (
    "import socket, sys\n"
    "address, port, data = sys.argv[1:]\n"
    "s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)\n"
    "s.sendto(data.encode(), (address, int(port)))\n"
)


class Receiver:
    """Receiver at the tunnel's port."""

    def __init__(self, site: Site) -> None:
        self._site, self._file, self._number = site, site.folder / "tunnel", 0
        site.node.start(sys.executable, "-I", "-c", RECEIVE, str(self._file), str(PORT))

    async def started(self) -> None:
        await until(self._file.exists, "the receiver listens", LIMIT)

    async def passed(self, origin: str, address: str, number: int, last: str) -> bool:
        """Send to a port, then to the tunnel from its neighbour until that arrives; return whether the first did."""
        self._number += 1
        text, end = f"first{self._number}", f"last{self._number}"
        self._send(origin, address, number, text)

        def arrived() -> bool:
            self._send("client", last, PORT, end)
            return end in self._texts()

        await until(arrived, "the tunnel works", LIMIT)
        return text in self._texts()

    def _send(self, origin: str, address: str, number: int, text: str) -> None:
        sender = {"client": self._site.client, **self._site.pods}[origin]
        sender.run(sys.executable, "-I", "-c", SEND, address, str(number), text)

    def _texts(self) -> list[str]:
        return self._file.read_text().splitlines()


async def tunnel(site: Site, api: MemoryAPI) -> None:
    ports = port("http", PORT, "UDP", NODE_PORT)
    api.put(service("inject", "10.96.5.9", ports, type="NodePort", ips=["10.96.5.9", "fd00:96::9"]))
    api.put(slice_of("inject", NODE_IP, ports={"http": PORT}, protocol="UDP"))
    api.put(slice_of("inject", NODE_SIX, ports={"http": PORT}, protocol="UDP", suffix="six", address_type="IPv6"))
    pods = dataclasses.replace(site.config.pod_network, node_routes="host-gw")  # the role writes no guard of its own
    ways = [
        (origin, address, number, node)
        for node, cluster_ip in ((NODE_IP, "10.96.5.9"), (NODE_SIX, "fd00:96::9"))
        for origin, address, number in (
            ("client", node, NODE_PORT),
            ("pod-a", node, NODE_PORT),
            ("pod-a", cluster_ip, PORT),
        )
    ]
    async with running(dataclasses.replace(site.config, pod_network=pods), api):
        for server in (f"{NODE_IP}:{NODE_PORT}", f"[{NODE_SIX}]:{NODE_PORT}"):
            await until(lambda server=server: server in site.node.run("ipvsadm", "-Ln"), server, LIMIT)  # type: ignore[misc]
        nodes = [ipaddress.ip_address(each) for each in (NODE_IP, CLIENT_IP, NODE_SIX, CLIENT_SIX)]
        await until(lambda: "wherry-tunnel" not in site.node.run("nft", "list", "tables"), "no guard", LIMIT)
        assert await TunnelGuard().set(nodes, PORT, "cni0"), "the guard was not written"
        receiver = Receiver(site)
        await receiver.started()
        got_in = [way for way in ways if await receiver.passed(*way)]
        assert not got_in, f"got in: {got_in}"
        # Without the rules all would arrive.
        site.node.run("nft", "flush", "chain", "inet", "wherry-tunnel", "input")
        site.node.run("conntrack", "-F")
        kept_out = [way for way in ways if not await receiver.passed(*way)]
        assert not kept_out, f"kept out without the rules: {kept_out}"
    site.node.run("nft", "delete", "table", "inet", "wherry-tunnel")
