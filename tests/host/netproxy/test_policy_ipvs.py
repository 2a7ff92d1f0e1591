"""Network policies in the IPVS mode, without ip_vs, which few kernels have: the node sends from a pod's address instead.

Such datagrams (IP_TRANSPARENT) take the last part of the way that ip_vs sends packets: hook `output`, with an address that is
not the node's. tests/vm/test_ipvs.py has the whole way.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import socket
from collections.abc import AsyncIterator

import pytest

from kube.clock import SYSTEM
from netproxy import pod_subsystem
from netproxy.api import Api
from netproxy.policy.ruleset import TABLE
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.host.netproxy.conftest import PODS, Site, populated, until
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace
from tests.support.policies import pod, policy

SIX = {"pod-a": "fd00:244:1::2", "pod-b": "fd00:244:1::3"}
ADDRESSES = {4: {**PODS, "node": "10.244.1.1"}, 6: {**SIX, "node": "fd00:244:1::1"}}
RANGES = ("10.244.1.0/24", "fd00:244:1::/64")
TRANSPARENT = {4: (socket.SOL_IP, 19), 6: (socket.IPPROTO_IPV6, 75)}
"""IP_TRANSPARENT and IPV6_TRANSPARENT by their numbers: Python has no name for the latter."""


def datagrams(namespace: Namespace, family: int, address: str, port: int) -> socket.socket:
    """Return a UDP socket in a namespace with any address, its own or not."""

    async def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(*TRANSPARENT[family], 1)
        sock.settimeout(30)
        sock.bind((address, port))
        return sock

    return namespace.inside(opened)


@contextlib.asynccontextmanager
async def enforcing(site: Site, api: MemoryAPI) -> AsyncIterator[None]:
    """Run the policies alone, as the role puts them together for the IPVS mode."""
    both_families = dataclasses.replace(site.config, cluster_cidrs=(*site.config.cluster_cidrs, "fd00:244::/32"))
    followed = Api.build(api.client(), "kube-proxy", both_families.node_name, SYSTEM)
    policies = pod_subsystem.build(both_families, followed, SYSTEM, ipvs=True).policy
    assert policies is not None
    policies.set_node_ranges(RANGES)
    task = asyncio.create_task(policies.run())
    try:
        await policies.started.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("site", ["ipvs"], indirect=True)
def test_what_leaves_the_node_from_a_pods_address_is_judged_and_its_own_is_not(site: Site, family: int) -> None:
    here, open_sockets, numbers = ADDRESSES[family], contextlib.ExitStack(), itertools.count()
    site.node.run("ip", "address", "add", f"{SIX['pod-a'][:-1]}1/64", "dev", "cni0", "nodad")
    for name, namespace in site.pods.items():
        namespace.run("ip", "address", "add", f"{SIX[name]}/64", "dev", "eth0", "nodad")

    def opened(namespace: Namespace, name: str, port: int) -> socket.socket:
        return open_sockets.enter_context(datagrams(namespace, family, here[name], port))

    server, client = opened(site.pods["pod-a"], "pod-a", 7000), opened(site.pods["pod-b"], "pod-b", 6001)
    known, fresh, own = (
        opened(site.node, "pod-b", 6001),
        opened(site.node, "pod-b", 6002),
        opened(site.node, "node", 6003),
    )

    def arrives(sender: socket.socket) -> bool:
        """Send, then another from the node itself: what passes arrives before that."""
        mine, last = (str(next(numbers)).encode() for _ in range(2))
        with contextlib.suppress(PermissionError):
            sender.sendto(mine, (here["pod-a"], 7000))
        own.sendto(last, (here["pod-a"], 7000))
        seen = []
        while last not in seen:
            seen.append(server.recv(100))
        return mine in seen

    table = ("nft", "list", "table", "ip" if family == 4 else "ip6", TABLE)

    async def listed(text: str) -> None:
        await until(lambda: text in site.node.run(*table, check=False), f"{text} is in the table")

    async def check() -> None:
        selected = {"podSelector": {"matchLabels": {"app": "a"}}}
        named = [pod(name, PODS[name], SIX[name], labels={"app": name[-1]}) for name in PODS]
        api = populated(SlimNamespace(SlimMeta(name="default")), *named)
        async with enforcing(site, api):
            api.put(policy("none", podSelector={"matchLabels": {"app": "nobody"}}))
            # The families' tables come one after the other, and the kernel tracks a family's connections from its own on.
            await until(lambda: TABLE in site.node.run(*table, check=False), "policies are in force")
            assert arrives(known)
            server.sendto(b"answer", (here["pod-b"], 6001))
            assert client.recv(100) == b"answer"
            api.put(policy("in", **selected))
            await listed(f"{here['pod-a']} : goto ingress-all")
            assert not arrives(fresh)
            assert arrives(known)  # a connection that was accepted keeps running
            api.put(policy("b", **selected, ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]))
            await listed('"default/b"')
            assert arrives(fresh)
            api.put(policy("out", policyTypes=["Egress"], podSelector={"matchLabels": {"app": "b"}}))
            await listed(f"{here['pod-b']} : goto egress-all")
            assert not arrives(opened(site.node, "pod-b", 6004))

    with open_sockets:
        site.node.inside(check)
