"""Entries of the kernel's neighbour tables, deleted by netlink."""

import os

from netproxy.podnet.address_follower import delete_neighbours
from tests.support.netns import namespaces

MAC = "02:00:00:00:00:01"


def test_entries_of_both_families_are_deleted_and_missing_ones_are_no_error() -> None:
    with namespaces(f"neighbours-{os.getpid()}") as (node,):
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        node.run("ip", "link", "set", "cni0", "up")
        for address in ("10.244.1.2", "10.244.1.3", "fd00:1::2", "fd00:1::3"):
            node.run("ip", "neigh", "replace", address, "lladdr", MAC, "dev", "cni0", "nud", "permanent")

        async def delete() -> None:
            await delete_neighbours("cni0", ["10.244.1.2", "10.244.1.9", "fd00:1::2"])
            await delete_neighbours("cni0", ["10.244.1.2"])
            await delete_neighbours("nothing", ["10.244.1.3"])

        node.inside(delete)
        left = node.run("ip", "neigh", "show", "nud", "permanent")
        assert sorted(line.split()[0] for line in left.splitlines() if MAC in line) == ["10.244.1.3", "fd00:1::3"]
