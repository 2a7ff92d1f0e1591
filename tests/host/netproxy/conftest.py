"""A node with two pods on its bridge and a client on its uplink, all network namespaces of the test's own."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from netproxy import localnet, main
from netproxy.config import DNSConfig, PodNetworkConfig, ProxyConfig
from netproxy.modes import IPVS_TABLE
from netproxy.nft import library
from tests.support import services
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace, namespaces, wire

NODE_IP, CLIENT_IP = "192.168.77.1", "192.168.77.2"
PODS = {"pod-a": "10.244.1.2", "pod-b": "10.244.1.3"}


@dataclass
class Site:
    """The namespaces, and the configuration of the proxy in the node's."""

    node: Namespace
    client: Namespace
    pods: dict[str, Namespace]
    folder: Path
    config: ProxyConfig

    def fetch(self, origin: Namespace, address: str, port: int = 80, timeout: int = 10) -> str:
        """Return what an HTTP server answers, or "" where none does; `timeout` in seconds, for where nothing comes back."""
        url = f"http://{address}:{port}/"
        return origin.run("curl", "-s", "-m", str(timeout), url, check=False).strip()

    def fetch_path(self, origin: Namespace, url: str) -> str:
        return origin.run("curl", "-s", "-m", "10", f"http://{url}", check=False).strip()

    def error(self, origin: Namespace, address: str, port: int = 80) -> str:
        """Return the name of the error a TCP connection ends in ("ECONNREFUSED", "ETIMEDOUT"), or "" where it opens."""
        program = (
            "import errno, socket\n"
            "try:\n"
            f"    socket.create_connection(({address!r}, {port}), timeout=2).close()\n"
            "except TimeoutError:\n"
            "    print('ETIMEDOUT')\n"
            "except OSError as error:\n"
            "    print(errno.errorcode[error.errno])\n"
        )
        return origin.run(sys.executable, "-I", "-c", program).strip()


MODES = ["nft", "legacy", "nftables", *(["ipvs"] if Path(IPVS_TABLE).exists() else [])]
"""The iptables mode in both flavours, the nftables mode, and the IPVS mode where the kernel has it (tests/vm)."""


_REFUSALS = ("was refused", "replacing table", "libnftables refused")


@pytest.fixture(autouse=True)
def nft_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another library than libnftables, by its name in WHERRY_NFT_LIBRARY; with "none" the program nft makes all changes."""
    monkeypatch.setattr(library, "NAME", os.environ.get("WHERRY_NFT_LIBRARY", library.NAME))


@pytest.fixture(autouse=True)
def no_write_was_refused(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The kernel accepts every delta: a test does not pass by rewriting everything."""
    yield
    refused = [record.getMessage() for record in caplog.records if record.name.startswith("netproxy")]
    assert not [text for text in refused if any(each in text for each in _REFUSALS)]


@pytest.fixture(params=MODES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with build_site(request.param, tmp_path) as made:
        yield made


@contextlib.contextmanager
def build_site(mode: str, tmp_path: Path) -> Iterator[Site]:
    """Make the namespaces, with a configuration for a mode (one of MODES)."""
    tag = f"np-{os.getpid()}"
    with namespaces(*(f"{tag}-{name}" for name in ("node", "client", *PODS))) as made:
        node, client, *pods = made
        wire(node, "uplink", client, "eth0")
        node.run("ip", "address", "add", f"{NODE_IP}/24", "dev", "uplink")
        client.run("ip", "address", "add", f"{CLIENT_IP}/24", "dev", "eth0")
        # The client plays the rest of the world: it can reach node ports, and sees whatever leaks out.
        client.run("ip", "route", "add", "default", "via", NODE_IP)
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        node.run("ip", "address", "add", "10.244.1.1/24", "dev", "cni0")
        node.run("ip", "link", "set", "cni0", "up")
        for (name, ip), pod in zip(PODS.items(), pods, strict=True):
            wire(node, name, pod, "eth0")
            node.run("ip", "link", "set", name, "master", "cni0")
            node.run("ip", "link", "set", name, "type", "bridge_slave", "hairpin", "on")
            pod.run("ip", "address", "add", f"{ip}/24", "dev", "eth0")
            pod.run("ip", "route", "add", "default", "via", "10.244.1.1")
            serve_http(pod, tmp_path / name, name)
        config = ProxyConfig(
            hostname_override="node-1",
            healthz_bind_address="127.0.0.1:10256",
            metrics_bind_address="127.0.0.1:10249",
            cluster_cidrs=("10.244.0.0/16",),
            mode=mode if mode in ("nftables", "ipvs") else "iptables",
            iptables_flavour=mode if mode in ("nft", "legacy") else "nft",
            dns=DNSConfig(resolv_conf=str(tmp_path / "resolv.conf")),
            pod_network=PodNetworkConfig(
                cni_conf_dir=str(tmp_path / "net.d"),
                cni_data_dir=str(tmp_path / "cni"),
                run_dir=str(tmp_path / "run"),
                cni_results_dir=str(tmp_path / "results"),
            ),
        )
        mark = localnet.RUN / f"{localnet.MARK}{node.path.stat().st_ino}"
        try:
            yield Site(node, client, dict(zip(PODS, pods, strict=True)), tmp_path, config)
        finally:
            mark.unlink(missing_ok=True)  # a later namespace may get the number


def serve_http(pod: Namespace, folder: Path, text: str, port: int = 8080) -> subprocess.Popen[bytes]:
    """Serve a page that says `text` in a pod's namespace, and return the server once it answers."""
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(text)
    server = pod.start("busybox", "httpd", "-f", "-p", str(port), "-h", str(folder))
    deadline = time.monotonic() + 60
    while pod.run("curl", "-s", "-m", "10", f"http://127.0.0.1:{port}/", check=False).strip() != text:
        assert time.monotonic() < deadline, "the test's own web server does not start"
    return server


async def until_echo(site: Site, pod: str) -> None:
    """Have a pod send back, on port 7777, what it is sent."""
    echo = (
        "import socket, threading\n"
        "s = socket.create_server(('', 7777))\n"
        "def serve(c):\n"
        "    while d := c.recv(100): c.sendall(d)\n"
        "while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()\n"
    )
    site.pods[pod].start("python3", "-I", "-c", echo)
    await until(lambda: site.error(site.node, PODS[pod], 7777) == "", "the echo server listens")


def talk(site: Site, origin: Namespace, address: str, port: int) -> Callable[[], int]:
    """Open one connection to an echo server and use it for ever; return what tells how often it was answered."""
    reported = site.folder / "answers"
    program = (
        "import socket, time\n"
        f"s = socket.create_connection(({address!r}, {port}), timeout=30)\n"
        "n = 0\n"
        "while True:\n"
        "    s.sendall(b'x'); assert s.recv(10) == b'x'; n += 1\n"
        f"    open({str(reported)!r}, 'w').write(str(n)); time.sleep(0.05)\n"
    )
    origin.start("python3", "-I", "-c", program)

    most = 0

    def count() -> int:
        nonlocal most
        with contextlib.suppress(OSError):
            most = max(most, int(reported.read_text() or 0))  # it may be empty for a moment
        return most

    return count


@contextlib.asynccontextmanager
async def running(config: ProxyConfig, api: MemoryAPI) -> AsyncIterator[asyncio.Task[None]]:
    """Run the role against the API for the length of the block (call it inside the node's namespace)."""
    task = asyncio.create_task(main.run(config, api.client()), name="netproxy under test")
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until a blocking check is true; the failure says what was waited for."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s: {what}"
        await asyncio.sleep(0.02)


def populated(*objects: object) -> MemoryAPI:
    """An API that holds the node, its kube-dns Service and these objects."""
    api = MemoryAPI()
    api.put(services.node("node-1", "10.244.1.0/24", NODE_IP))
    api.put(
        services.service(
            "kube-dns",
            "10.96.0.10",
            services.port("dns", 53, "UDP"),
            services.port("dns-tcp", 53),
            namespace="kube-system",
        )
    )
    for each in objects:
        api.put(each)  # type: ignore[arg-type]
    return api
