"""Pods of a site that send raw frames and record those that they receive."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.host.netproxy.conftest import PODS, Site
from tests.host.netproxy.raw_frames import (
    A6,
    B6,
    BROADCAST,
    GATEWAY,
    GATEWAY6,
    A,
    B,
    C,
    ether,
    frames,
    ip4,
    ip6,
    udp,
)
from tests.support.netns import Namespace, namespaces, wire

SEND = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))\n"
    "for line in sys.stdin: s.send(bytes.fromhex(line.strip()))\n"
)
HEAR = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)); s.bind(('eth0', 0))\n"
    "out = open(sys.argv[1], 'w'); print('listening', file=out, flush=True)\n"
    "while True:\n"
    "    data, where = s.recvfrom(2048)\n"
    "    if where[2] == 4: continue\n"
    "    print(data.hex(), file=out, flush=True)\n"
)


def device(namespace: Namespace, name: str = "eth0") -> tuple[str, str]:
    """Return a device's MAC and link-local address."""
    (found,) = json.loads(namespace.run("ip", "-j", "address", "show", "dev", name))
    return found["address"], next(a["local"] for a in found["addr_info"] if a["scope"] == "link")


def write_result(site: Site, port: str, pod: Namespace, *addresses: str, annotation: str = "", uid: str = "") -> None:
    """Write what libcni keeps of a pod, as Go writes it: "<" as six characters."""
    interfaces = [{"name": "cni0"}, {"name": port}, {"name": "eth0", "mac": device(pod)[0], "sandbox": str(pod.path)}]
    ips = [{"address": each, "gateway": GATEWAY6 if ":" in each else GATEWAY} for each in addresses]
    result = {"cniVersion": "0.4.0", "interfaces": interfaces, "ips": ips}
    folder = Path(site.config.pod_network.cni_results_dir)
    folder.mkdir(exist_ok=True)
    annotations = {"io.kubernetes.cri.pod-annotations": {"x": annotation}}
    arguments = [["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", uid], ["K8S_POD_UID", uid]] if uid else []
    cached = {
        "kind": "cniCacheV1",
        "networkName": "wherry",
        "cniArgs": arguments,
        "capabilityArgs": annotations,
        "result": result,
    }
    (folder / f"wherry-{port}-eth0").write_text(json.dumps(cached).replace("<", "\\u003c"))


def prepare(site: Site) -> None:
    """Give the site IPv6 too, and write the pods' results."""
    site.node.run("ip", "address", "add", f"{GATEWAY6}/64", "dev", "cni0", "nodad")
    for (name, namespace), address in zip(site.pods.items(), (A6, B6), strict=True):
        namespace.run("ip", "address", "add", f"{address}/64", "dev", "eth0", "nodad")
        namespace.run("ip", "-6", "route", "add", "default", "via", GATEWAY6)
        write_result(site, name, namespace, f"{PODS[name]}/24", f"{address}/64")


def ready_file(site: Site, *ports: str) -> bool:
    table = site.node.run("nft", "list", "table", "bridge", "wherry-sources", check=False)
    return "prerouting" in table and all(f'"{port}"' in table for port in ports)


def arrived(site: Site) -> set[str]:
    """Send every frame from pod-a; return the names of those that pod-b heard."""
    sender, receiver = site.pods.values()
    own, link = device(sender)
    other, other_link = device(receiver)
    honest = ether(own, other, 0x800, ip4(A, B, 17, udp(b"<last>")))
    made = {name: frame for name, (_, frame) in frames(own, other, link, other_link).items()}
    return heard_of(site, sender, made, honest)


def heard_of(
    site: Site, sender: Namespace, made: dict[str, bytes], honest: bytes, witness: Namespace | None = None
) -> set[str]:
    """Send frames and, until it is heard, one that may pass (the witness does); return the names of those that pod-b heard."""
    receiver = site.pods["pod-b"]
    heard = site.folder / f"heard-{time.monotonic()}"
    process = receiver.start(sys.executable, "-I", "-c", HEAR, str(heard))
    deadline = time.monotonic() + 30
    while not heard.exists() or "listening" not in heard.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # The last one says that all before it have come or will not.
    lines, last = [frame.hex() for frame in made.values()], honest.hex()
    sender.run(sys.executable, "-I", "-c", SEND, input="\n".join(lines))
    witness = witness or sender
    witness.run(sys.executable, "-I", "-c", SEND, input=last)
    while last not in heard.read_text().split():
        assert time.monotonic() < deadline, "not even an honest frame arrives"
        time.sleep(0.1)
        witness.run(sys.executable, "-I", "-c", SEND, input=last)
    process.kill()
    received = [bytes.fromhex(line) for line in heard.read_text().split()[1:]]
    return {name for name, frame in made.items() if any(is_of(name, frame, each) for each in received)}


def is_of(name: str, frame: bytes, received: bytes) -> bool:
    """Return whether one frame came of another: the kernel takes tags away, and padding behind a packet."""
    return f"<{name}>".encode() in received or (len(received) > 34 and frame.startswith(received))


def expected() -> set[str]:
    zero = "00:00:00:00:00:00"
    return {name for name, (allowed, _) in frames(zero, zero, "fe80::1", "fe80::2").items() if allowed}


@contextlib.contextmanager
def third_pod(site: Site) -> Iterator[Namespace]:
    with namespaces(f"{site.node.name}-c") as (namespace,):
        wire(site.node, "pod-c", namespace, "eth0")
        site.node.run("ip", "link", "set", "pod-c", "master", "cni0")
        namespace.run("ip", "address", "add", f"{C}/24", "dev", "eth0")
        namespace.run("ip", "route", "add", "default", "via", GATEWAY)
        yield namespace


def spoken_to_all(site: Site, target: str) -> set[str]:
    """Send to a broadcast or multicast address from pod-a; return what pod-b heard."""
    sender, receiver = site.pods.values()
    own, other = device(sender)[0], device(receiver)[0]
    if ":" in target:
        frame = ether(own, BROADCAST, 0x86DD, ip6(A6, target, 17, udp(b"<all>"), 6))
    else:
        frame = ether(own, BROADCAST, 0x800, ip4(A, target, 17, udp(b"<all>")))
    last = ether(own, other, 0x800, ip4(A, B, 17, udp(b"<last>")))
    return heard_of(site, sender, {"all": frame, "last": last}, last)
