"""Address ranges of policies in the kernel: read back as written, and a rejected ruleset is detected beforehand."""

import os

import pytest

from netproxy.nft.writer import NftWriter
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.ruleset import TABLE, flatten
from tests.support.netns import namespaces
from tests.support.policies import policy
from tests.support.policy_tables import PODS, filled, made
from tests.support.second_family import likeness


@pytest.mark.parametrize(
    ("family", "whole", "hole"),
    [(4, "0.0.0.0/0", "10.{}.{}.2/31"), (6, "::/0", "fd00:{:x}:{:x}::/64"), (6, "::/0", "::10.{}.{}.0/121")],
)
def test_the_kernel_holds_ranges_as_they_were_written(family: int, whole: str, hole: str) -> None:
    holes = [hole.format(number // 200, number % 200) for number in range(2000)]
    given = policy("wide", ingress=[{"from": [{"ipBlock": {"cidr": whole, "except": holes}}]}])
    ruleset = made(filled(given, pods=PODS if family == 4 else likeness(PODS)), family)
    assert sum(name.startswith("blocks-") for name, _ in flatten(ruleset)) > 1000

    async def check() -> None:
        writer = NftWriter(family, TABLE)
        backend = PolicyBackend(writer, family)
        assert not await backend.refuses(ruleset)
        assert not await writer.exists()
        await backend.put(ruleset)
        assert (await writer.read()).elements == flatten(ruleset)

    with namespaces(f"np-r{os.getpid()}") as (node,):
        node.inside(check)


def test_a_ruleset_that_the_kernel_refuses_is_reported_and_changes_nothing() -> None:
    async def check() -> None:
        writer = NftWriter(4, TABLE)
        backend = PolicyBackend(writer, 4)
        await backend.put(made(filled(policy("deny"))))
        before = await writer.read()
        ruleset = made(filled(policy("deny"), policy("egress", policyTypes=["Egress"])))
        assert not await backend.refuses(ruleset)
        for rule in ("tcp dport 80-79 accept", "goto nowhere"):
            ruleset.chains["egress"] = (rule,)
            assert await backend.refuses(ruleset)
        assert await writer.read() == before

    with namespaces(f"np-r{os.getpid()}") as (node,):
        node.inside(check)
