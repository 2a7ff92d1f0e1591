"""The table that guards the tunnel, in a real kernel: written when it must be, and only then."""

import ipaddress
import os

from kube.process import run
from netproxy.netlink import nf_tables_generation
from netproxy.podnet import tunnel_guard
from netproxy.podnet.tunnel_guard import TunnelGuard
from tests.support.netns import namespaces

NODES = [ipaddress.ip_address(each) for each in ("192.168.0.2", "192.168.0.10", "fd99::2")]


def test_the_table_is_written_anew_only_where_it_differs() -> None:
    async def check() -> None:
        async def listed() -> str:
            return (await run(["nft", "list", "table", "inet", "wherry-tunnel"], check=False)).stdout

        made = TunnelGuard()
        await made.set(NODES, 8472, "cni0")
        text = await listed()
        assert all(str(each) in text for each in NODES)
        await run(["nft", "add", "table", "ip", "somebody"])
        before = nf_tables_generation()
        for same in (NODES[::-1], [*NODES, NODES[0]]):
            await made.set(same, 8472, "cni0")
            assert nf_tables_generation() == before
            await run(["nft", "add", "table", "ip", "somebody"])
            before = nf_tables_generation()
        for damage in (
            "delete table inet wherry-tunnel",
            "delete element inet wherry-tunnel nodes4 { 192.168.0.2 }",
            "add element inet wherry-tunnel nodes4 { 203.0.113.1 }",
            "flush chain inet wherry-tunnel input",
            "flush chain inet wherry-tunnel forward",
            "flush chain inet wherry-tunnel output",
            "flush chain inet wherry-tunnel marked",
            "flush chain inet wherry-tunnel unmarked",
        ):
            await run(["nft", *damage.split()])
            await made.set(NODES, 8472, "cni0")
            assert await listed() == text, damage
        behind = ["10.244.2.0/24", "10.244.3.0/24", "fd00:0:0:2::/64", "fd00:0:0:3::/64"]
        await made.set(NODES, 8472, "cni0", behind)
        text = await listed()
        assert all(each in text for each in behind)
        await run(["nft", "add", "table", "ip", "others"])
        before = nf_tables_generation()
        await made.set(NODES, 8472, "cni0", behind[::-1])
        assert nf_tables_generation() == before
        await run("nft flush chain inet wherry-tunnel sources".split())
        await made.set(NODES, 8472, "cni0", behind)
        assert await listed() == text
        await made.set([], 8472, "cni0")
        assert "drop" in await listed()
        assert "192.168.0.2" not in await listed()
        await made.remove()
        assert await listed() == ""
        await tunnel_guard.remove()

    with namespaces(f"guard-{os.getpid()}") as (namespace,):
        namespace.inside(check)
