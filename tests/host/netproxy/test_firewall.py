"""The chains that the kernel lists, with real firewalls in a namespace of the test's own."""

import os

from tests.support.netns import namespaces
from wherry.firewall import Chain, read_chains

RULES = """
table inet filter {
    chain helper { }
    chain forward { type filter hook forward priority 0; policy drop; }
    chain input { type filter hook input priority 0; policy accept; }
}
table ip nat {
    chain post { type nat hook postrouting priority 100; }
}
"""


def test_base_chains_are_read_with_hook_and_policy() -> None:
    async def read() -> set[Chain]:
        return set(read_chains())

    with namespaces(f"fw-{os.getpid()}") as (namespace,):
        assert namespace.inside(read) == set()
        namespace.run("nft", "-f", "-", input=RULES)
        assert namespace.inside(read) == {
            Chain("inet", "filter", "helper", ""),
            Chain("inet", "filter", "forward", "forward", drops=True),
            Chain("inet", "filter", "input", "input"),
            Chain("ip", "nat", "post", "other"),
        }
        namespace.run("iptables-nft", "-P", "INPUT", "DROP")
        assert Chain("ip", "filter", "INPUT", "input", drops=True) in namespace.inside(read)
