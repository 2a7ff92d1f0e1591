"""Three nodes with real kernels, CNI plugins and packets: two on one link, the third behind a router that knows no pods.

Each node runs the whole role in a separate thread; all get the same Nodes. A pod answers who it is and whom it sees.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube.api import core_v1, meta_v1
from netproxy import main
from netproxy.config import DNSConfig, PodNetworkConfig, ProxyConfig
from tests.host.netproxy.test_podnet import cni
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace, namespaces, wire

LINK_OF = {"n1": 0, "n2": 0, "n3": 1}
NUMBER = {"n1": 1, "n2": 2, "n3": 3}
ANSWER = """
import socket, sys, threading
def echo():
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.bind(("", 7000))
    while True:
        datagrams.sendto(*datagrams.recvfrom(65536))
threading.Thread(target=echo, daemon=True).start()
server = socket.create_server(("", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    client, peer = server.accept()
    size = int(client.recv(100))
    client.sendall(f"{sys.argv[1]} {peer[0].removeprefix('::ffff:')} ".encode() + b"x" * size)
    client.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), timeout=3) as link:
    link.settimeout(5)
    link.sendall(sys.argv[2].encode())
    data = b""
    while part := link.recv(65536):
        data += part
who, seen, rest = data.decode().split(" ")
print(who, seen, len(rest))
"""
# One datagram that no router may cut up (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER: IP_PMTUDISC_DO), there and back.
SEND = """
import errno, os, socket, sys
address, size = sys.argv[1], int(sys.argv[2])
six = ":" in address
with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as link:
    link.setsockopt(*((41, 23, 2) if six else (0, 10, 2)))
    link.settimeout(2)
    data = os.urandom(size)
    try:
        link.sendto(data, (address, 7000))
        print("whole" if link.recv(65536) == data else "other")
    except TimeoutError:
        print("lost")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def addresses_of(name: str, link: int | None = None) -> list[str]:
    link = LINK_OF[name] if link is None else link
    return [f"192.168.{77 + link}.{NUMBER[name]}", f"fd99:{link}::{NUMBER[name]}"]


def node_of(name: str, link: int | None = None) -> core_v1.Node:
    number = NUMBER[name]
    cidrs = [f"10.244.{number}.0/24", f"fd00:0:0:{number}::/64"]
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name=name),
        spec=core_v1.NodeSpec(pod_cidr=cidrs[0], pod_cidrs=cidrs),
        status=core_v1.NodeStatus(
            addresses=[core_v1.NodeAddress(type="InternalIP", address=each) for each in addresses_of(name, link)]
        ),
    )


def nodes_api() -> MemoryAPI:
    """An API that knows all nodes; it lives in one event loop."""
    api = MemoryAPI()
    for name in LINK_OF:
        api.put(node_of(name))
    return api


@dataclass
class RunningNode:
    """A node's namespace with the role in it, and its one pod."""

    name: str
    namespace: Namespace
    pod: Namespace
    config: ProxyConfig
    folder: Path
    api: MemoryAPI
    loop: asyncio.AbstractEventLoop | None = None
    stop: asyncio.Event | None = None
    thread: threading.Thread | None = None
    ips: tuple[str, ...] = ()

    def start(self) -> None:
        async def work() -> None:
            self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
            task = asyncio.create_task(main.run(self.config, self.api.client()))
            stopped = asyncio.create_task(self.stop.wait())
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        self.thread = threading.Thread(target=lambda: self.namespace.inside(work, timeout=300), name=self.name)
        self.thread.start()

    def end(self) -> None:
        if self.loop is not None and self.stop is not None and self.thread is not None:
            self.loop.call_soon_threadsafe(self.stop.set)
            self.thread.join()
            self.loop = None

    def tell(self, change: Callable[[MemoryAPI], None]) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(change, self.api)

    def add_pod(self) -> None:
        path = self.folder / "net.d" / "10-wherry.conflist"
        until(path.exists, f"{self.name} writes its CNI configuration")
        result = cni("ADD", json.loads(path.read_text()), self.namespace, self.pod)
        cached = {"kind": "cniCacheV1", "networkName": "wherry", "result": result}
        (self.folder / "results" / "wherry-pod-eth0").write_text(json.dumps(cached))  # as libcni does
        self.ips = tuple(each["address"].split("/")[0] for each in result["ips"])
        self.pod.start(sys.executable, "-I", "-c", ANSWER, self.name)

    def ask(self, address: str, size: int = 0) -> str:
        """Return "who answered, whom it saw, how many bytes came", or "" where nobody did."""
        argv = [sys.executable, "-I", "-c", ASK, address, str(size)]
        return self.pod.run(*argv, check=False, timeout=30).strip()

    def routes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for family in ("-4", "-6"):
            text = self.namespace.run("ip", family, "-j", "route", "show", "proto", "87")
            found += [each for each in json.loads(text or "[]") if "gateway" in each]
        return found

    def route_to(self, other: str) -> tuple[str, ...]:
        """Return the devices that lead to another node's pods, one a family."""
        ranges = (f"10.244.{NUMBER[other]}.0/24", f"fd00:0:0:{NUMBER[other]}::/64")
        return tuple(each["dev"] for each in self.routes() if each["dst"] in ranges)


def until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def running_nodes(new_folder: Callable[[str], Path]) -> Iterator[dict[str, RunningNode]]:
    """Start the three nodes, each with a pod whose address is guarded."""
    tag = f"nodes-{os.getpid()}"
    names = [f"{tag}-{name}" for name in ("router", *LINK_OF, *(f"{name}-pod" for name in LINK_OF))]
    nodes: dict[str, RunningNode] = {}
    with namespaces(*names) as (router, *rest), contextlib.ExitStack() as running:
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for link in set(LINK_OF.values()):
            router.run("ip", "link", "add", f"br{link}", "type", "bridge")
            router.run("ip", "address", "add", f"192.168.{77 + link}.254/24", "dev", f"br{link}")
            router.run("ip", "address", "add", f"fd99:{link}::fe/64", "dev", f"br{link}", "nodad")
            router.run("ip", "link", "set", f"br{link}", "up")
        for (name, link), namespace, pod in zip(LINK_OF.items(), rest[:3], rest[3:], strict=True):
            wire(namespace, "eth0", router, f"to-{name}")
            plug(router, namespace, name, link)
            folder = new_folder(name)
            pods = PodNetworkConfig(
                cni_conf_dir=str(folder / "net.d"),
                cni_data_dir=str(folder / "cni"),
                run_dir=str(folder / "run"),
                cni_results_dir=str(folder / "results"),
            )
            config = ProxyConfig(
                hostname_override=name,
                healthz_bind_address="127.0.0.1:10256",
                metrics_bind_address="127.0.0.1:10249",
                cluster_cidrs=("10.244.0.0/16", "fd00::/48"),
                iptables_flavour="nft",
                dns=DNSConfig(enabled=False),
                pod_network=pods,
            )
            nodes[name] = RunningNode(name, namespace, pod, config, folder, nodes_api())
            nodes[name].start()
            running.callback(nodes[name].end)
        for node in nodes.values():
            node.add_pod()
            for family, address in zip((4, 6), node.ips, strict=True):
                held = ["nft", "list", "set", "bridge", "wherry-sources", f"addresses{family}"]
                until(lambda n=node, a=address, h=held: a in n.namespace.run(*h), "the pod's address is guarded")  # type: ignore[misc]
        yield nodes


def plug(router: Namespace, node: Namespace, name: str, link: int) -> None:
    """Put a node's uplink on one of the links, with its addresses there."""
    router.run("ip", "link", "set", f"to-{name}", "master", f"br{link}")
    node.run("ip", "address", "flush", "dev", "eth0", "scope", "global")
    four, six = addresses_of(name, link)
    node.run("ip", "address", "add", f"{four}/24", "dev", "eth0")
    node.run("ip", "address", "add", f"{six}/64", "dev", "eth0", "nodad")
    node.run("ip", "route", "replace", "default", "via", f"192.168.{77 + link}.254")
    node.run("ip", "-6", "route", "replace", "default", "via", f"fd99:{link}::fe")
