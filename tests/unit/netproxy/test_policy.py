"""Network policies against imagined packets."""

import pytest

from kube.api import networking_v1
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.base_chains import HOOKS
from netproxy.slim_objects import SlimPod
from tests.support.clock import FakeClock
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy
from tests.support.policy_cases import CASES, Packet
from tests.support.policy_tables import (
    DB,
    FAR_OTHER,
    NODE,
    OTHER,
    PODS,
    WEB,
    WEB_ONLY,
    WORLD,
    filled,
    made,
)
from tests.support.second_family import likeness


async def tracer(
    *policies: networking_v1.NetworkPolicy, pods: list[SlimPod] | None = None, family: int = 4
) -> PolicyTracer:
    writer = RecordingWriter()
    await PolicyBackend(writer, family, clock=FakeClock()).put(made(filled(*policies, pods=pods), family))
    return PolicyTracer(writer.contents, node=likeness(NODE) if family == 6 else NODE)


@pytest.mark.parametrize(
    ("policies", "allowed", "refused"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
async def test_packets_pass_or_not_as_the_table_specifies(
    policies: list[networking_v1.NetworkPolicy], allowed: list[Packet], refused: list[Packet]
) -> None:
    trace = await tracer(*policies)
    for hook in ("forward", "output"):
        for packet in allowed:
            assert trace.allows(*packet, hook=hook), packet
        for packet in refused:
            assert not trace.allows(*packet, hook=hook), packet


@pytest.mark.parametrize(
    ("policies", "allowed", "refused"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
async def test_the_table_holds_in_ipv6(
    policies: list[networking_v1.NetworkPolicy], allowed: list[Packet], refused: list[Packet]
) -> None:
    trace = await tracer(*likeness(policies), pods=likeness(PODS), family=6)
    for hook in ("forward", "output"):
        for packet in likeness(allowed):
            assert trace.allows(*packet, hook=hook), packet
        for packet in likeness(refused):
            assert not trace.allows(*packet, hook=hook), packet


@pytest.mark.parametrize("family", [4, 6])
async def test_what_the_node_itself_sends_is_not_judged(family: int) -> None:
    policies = [policy("deny", policyTypes=["Ingress", "Egress"])]
    starting = pod("new", labels={"app": "web"})
    pods = [*PODS, starting] if family == 4 else likeness([*PODS, starting])
    trace = await tracer(*policies, pods=pods, family=family)
    of_family = likeness if family == 6 else str
    for source in NODE:
        assert trace.allows(of_family(source), of_family(WEB), 80, hook="output")
        assert trace.allows(of_family(source), of_family("10.244.1.77"), 80, hook="output")
    assert not trace.allows(of_family("192.168.0.2"), of_family(WEB), 80, hook="output")


def test_only_the_ipvs_mode_judges_what_leaves_by_hook_output() -> None:
    table = filled(policy("deny", policyTypes=["Ingress", "Egress"]))
    for family in (4, 6):
        others, ipvs = (made(table, family, ipvs=ipvs).chains for ipvs in (False, True))
        assert {name for name in others if name in HOOKS} == {"egress", "ingress"}
        assert set(ipvs) - set(others) == {name for name, hook in HOOKS.items() if " hook output " in hook}


async def test_a_pod_on_the_hosts_network_and_one_that_finished_are_not_selected() -> None:
    pods = [pod("host", "192.168.0.1", host_network=True), pod("done", DB, phase="Succeeded"), pod("web", WEB)]
    trace = await tracer(policy("deny"), pods=pods)
    assert trace.allows(WORLD, "192.168.0.1", 80)
    assert not trace.allows(WORLD, DB, 80)  # the next pod may have the address already
    assert not trace.allows(WORLD, WEB, 80)


async def test_each_family_has_its_own_addresses_and_neighbours_find_each_other() -> None:
    pods = [
        pod("a", WEB, "fd00:1::2", labels={"app": "web"}),
        pod("b", DB, "fd00:1::3", labels={"app": "db"}),
        pod("c", OTHER, "fd00:1::4"),
    ]
    rules = [
        {
            "from": [
                {"podSelector": {"matchLabels": {"app": "db"}}},
                {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}},
            ]
        }
    ]
    for family, near, stranger in ((6, "fd00:1::3", "fd00:1::4"), (4, DB, OTHER)):
        trace = await tracer(policy("web", ingress=rules, **WEB_ONLY), pods=pods, family=family)
        web = "fd00:1::2" if family == 6 else WEB
        assert trace.allows(near, web, 80)
        assert not trace.allows(stranger, web, 80)
        if family == 6:
            assert trace.allows("2001:db8::5", web, 80)
            assert not trace.allows("2001:db8:1::5", web, 80)
            assert trace.allows(stranger, web, 0, "nd")
            assert trace.allows(stranger, web, 0, "nd", hook="output")


async def test_a_pod_of_a_namespace_whose_labels_are_not_known_is_no_peer_by_them() -> None:
    """The namespace's own event may come after its pods'; labels that are absent until then must not let anybody in."""
    not_b = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]}
    rules = policy("in", ingress=[{"from": [{"namespaceSelector": not_b}], "ports": [{"port": "http"}]}])
    late = pod("late", FAR_OTHER, namespace="late", node="node-2")
    table = filled(rules, pods=[*PODS[:1], late])

    async def allowed() -> bool:
        writer = RecordingWriter()
        await PolicyBackend(writer, 4, clock=FakeClock()).put(made(table))
        return PolicyTracer(writer.contents).allows(FAR_OTHER, WEB, 8080)

    assert not await allowed()
    table.set_namespace("late", {"team": "b"})
    assert not await allowed()
    assert table.set_namespace("late", {})
    assert await allowed()
    assert table.set_namespace("late", None)
    assert not await allowed()


async def test_an_address_nobody_is_known_to_have_is_closed_whoever_starts() -> None:
    """For accepted connections too, which a pod before may have had; the node itself always gets through."""
    trace = await tracer(policy("deny", **WEB_ONLY))
    for hook in ("forward", "output"):
        for state in ("new", "established"):
            assert not trace.allows(WORLD, "10.244.1.77", 80, state=state, hook=hook)
            assert not trace.allows("10.244.1.77", WORLD, 80, state=state, hook=hook)
        assert trace.allows(WORLD, DB, 80, hook=hook)  # pods that are known are not touched
        assert trace.allows("10.244.2.77", WORLD, 80, hook=hook)
    assert trace.allows(NODE[0], "10.244.1.77", 80, hook="output")
    six = await tracer(policy("deny", **WEB_ONLY), family=6)
    assert not six.allows("fd00:1::77", "2001:db8::1", 80) and six.allows("fd00:1::77", "2001:db8::1", 0, "nd")


async def test_an_address_that_two_pods_claim_is_the_youngers() -> None:
    old = pod("old", WEB, labels={"app": "web"}, created="2026-01-01T00:00:00Z")
    new = pod("new", WEB, labels={"app": "db"}, created="2026-01-02T00:00:00Z")
    assert (await tracer(policy("deny", **WEB_ONLY), pods=[old, new])).allows(WORLD, WEB, 80)
    assert not (await tracer(policy("deny", podSelector={"matchLabels": {"app": "db"}}), pods=[old, new])).allows(
        WORLD, WEB, 80
    )
