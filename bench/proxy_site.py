"""A node's namespace with one pod behind it, for measuring the network role; and the clocks that tell wall from processor.

The API is in memory, so measurements are the role's and the kernel's. CPU time is this process's and its children's: on a
shared machine it tells more than the wall.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from netproxy.config import DNSConfig, PodNetworkConfig, ProxyConfig
from tests.support import services
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace, namespaces
from tests.support.netns import wire as join

T = TypeVar("T")
FLAVOURS = ("nft", "legacy", "nftables")
"""The iptables mode in both flavours and the nftables mode; few kernels have IPVS (tests/vm)."""
NODE, POD = "192.168.77.1", "10.244.1.2"
NODE_PORT = 30080


@dataclass
class Site:
    """The node's namespace and the role's configuration in it."""

    node: Namespace
    config: ProxyConfig

    def inside(self, main: Callable[[], Coroutine[Any, Any, T]], timeout: float = 120) -> T:
        """Run a coroutine in the node's namespace."""
        return self.node.inside(main, timeout)


@contextlib.contextmanager
def site(flavour: str) -> Iterator[Site]:
    """Make the namespaces; the pod answers TCP on 8080 with "pod"."""
    with (
        tempfile.TemporaryDirectory() as folder,
        namespaces(f"np-b{os.getpid()}", f"np-p{os.getpid()}") as (node, pod),
    ):
        join(node, "pod", pod, "eth0")
        node.run("ip", "address", "add", "10.244.1.1/24", "dev", "pod")
        node.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "uplink2")
        node.run("ip", "address", "add", f"{NODE}/24", "dev", "uplink")
        node.run("ip", "link", "set", "uplink", "up")
        pod.run("ip", "address", "add", f"{POD}/24", "dev", "eth0")
        pod.run("ip", "route", "add", "default", "via", "10.244.1.1")
        pod.start(sys.executable, "-I", "-c", _SERVER)
        yield Site(node, _config(flavour, folder))


_SERVER = """
import socket
s = socket.create_server(('', 8080), backlog=100)
while True:
    c, _ = s.accept(); c.sendall(b'pod'); c.close()
"""


def _config(flavour: str, folder: str) -> ProxyConfig:
    resolv_conf = Path(folder) / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\n")
    return ProxyConfig(
        hostname_override="bench",
        cluster_cidrs=("10.244.0.0/16",),
        mode="nftables" if flavour == "nftables" else "iptables",
        iptables_flavour="nft" if flavour == "nftables" else flavour,
        dns=DNSConfig(resolv_conf=str(resolv_conf)),
        pod_network=PodNetworkConfig(cni_conf_dir=folder, cni_data_dir=folder, run_dir=folder),
    )


def address(number: int) -> str:
    """Return the cluster IP of the Service of that number."""
    return f"10.{97 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def endpoint_address(number: int) -> str:
    """Return where the Service of that number leads: one pod of its own."""
    return f"10.244.{2 + number % 200}.{1 + number // 200}"


def populate(api: MemoryAPI, count: int) -> None:
    """Put a node and so many Services of one endpoint each into the API."""
    api.put(services.node("bench", "10.244.1.0/24", NODE))
    for number in range(count):
        name = f"other-{number}"
        api.put(services.service(name, address(number)))
        api.put(services.slice_of(name, endpoint_address(number)))


class Stopwatch:
    """Wall and processor seconds since it was made."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), _processor()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, _processor() - self._cpu


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
