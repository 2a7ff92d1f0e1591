"""Network policies against imagined packets, and the deltas that lead from one ruleset to the next."""

import random
from typing import Any

import pytest

from kube.api import networking_v1
from kube.clock import FakeClock
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.base_chains import HOOKS
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.ruleset import Ruleset
from netproxy.policy.table import PolicyTable
from netproxy.slim_objects import SlimPod
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy, random_policy
from tests.support.second_family import likeness

WEB, DB, OTHER = "10.244.1.2", "10.244.1.3", "10.244.1.4"
FAR_WEB, FAR_OTHER = "10.244.2.2", "10.244.2.4"
WORLD = "203.0.113.5"
EVERYBODY, GROUP = "255.255.255.255", "224.0.0.1"
NODE = ("192.168.0.1", "10.244.1.1", "10.96.5.1")
"""The node's own addresses: IPVS binds those of Services to it too."""
PODS = [
    pod("web", WEB, labels={"app": "web"}, ports={"http": ("TCP", 8080), "metrics": ("UDP", 9100)}),
    pod("db", DB, labels={"app": "db"}, ports={"sql": ("TCP", 5432)}),
    pod("other", OTHER, namespace="other", labels={"app": "web"}, ports={"sql": ("TCP", 6543)}),
    pod("far-web", FAR_WEB, node="node-2", labels={"app": "web"}, ports={"http": ("TCP", 8081)}),
    pod("far-other", FAR_OTHER, namespace="other", node="node-2", labels={"app": "db"}, ports={"sql": ("TCP", 7654)}),
    pod("agent", "192.168.0.1", labels={"app": "web"}, host_network=True),
]
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}


def filled(*policies: networking_v1.NetworkPolicy, pods: list[SlimPod] | None = None) -> PolicyTable:
    table = PolicyTable()
    for name, labels in NAMESPACES.items():
        table.set_namespace(name, labels)
    for each in PODS if pods is None else pods:
        table.set_pod(f"{each.metadata.namespace}/{each.metadata.name}", facts_of(each, "node-1"))
    for given in policies:
        table.set_policy(parse(given))
    return table


def made(table: PolicyTable, family: int = 4, *, ipvs: bool = True) -> Ruleset:
    rulesets = RulesetBuilder(table, family, ipvs=ipvs)
    rulesets.ranges = ("10.244.1.0/24",) if family == 4 else ("fd00:1::/64",)
    return rulesets.build()


async def tracer(
    *policies: networking_v1.NetworkPolicy, pods: list[SlimPod] | None = None, family: int = 4
) -> PolicyTracer:
    writer = RecordingWriter()
    await PolicyBackend(writer, family, clock=FakeClock()).put(made(filled(*policies, pods=pods), family))
    return PolicyTracer(writer.contents, node=likeness(NODE) if family == 6 else NODE)


Packet = tuple[Any, ...]
WEB_ONLY = {"podSelector": {"matchLabels": {"app": "web"}}}
CASES: list[tuple[str, list[networking_v1.NetworkPolicy], list[Packet], list[Packet]]] = [
    (
        "an empty ingress list lets nobody in, and leaves what goes out alone",
        [policy("deny")],
        [(WEB, WORLD, 443), (OTHER, FAR_OTHER, 80), (WORLD, OTHER, 80), (WEB, WEB, 80)],
        [(DB, WEB, 80), (WORLD, WEB, 80), (OTHER, DB, 5432), (WORLD, DB, 0, "icmp")],
    ),
    (
        "an empty egress list lets nothing out, and leaves what comes in alone",
        [policy("deny", policyTypes=["Egress"])],
        [(WORLD, WEB, 80), (OTHER, WEB, 80), (WEB, WEB, 80)],
        [(WEB, WORLD, 443), (WEB, DB, 5432), (DB, OTHER, 53, "udp")],
    ),
    (
        "both types deny both ways",
        [policy("deny", policyTypes=["Ingress", "Egress"])],
        [(OTHER, WORLD, 80)],
        [(WEB, WORLD, 443), (WORLD, WEB, 80), (WEB, DB, 5432)],
    ),
    (
        "without policyTypes egress rules make a policy of both types",
        [policy("out", egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}])],
        [(WEB, WORLD, 53, "udp")],
        [(WEB, WORLD, 53), (WORLD, WEB, 80)],
    ),
    (
        "an empty rule allows everything, of every protocol",
        [policy("allow", ingress=[{}])],
        [(WORLD, WEB, 80), (WORLD, WEB, 0, "icmp"), (OTHER, DB, 1, "sctp")],
        [],
    ),
    (
        "what belongs to an accepted connection passes both ways",
        [policy("deny", policyTypes=["Ingress", "Egress"])],
        [(WEB, WORLD, 443, "tcp", "established"), (WORLD, WEB, 80, "tcp", "related")],
        [(WORLD, WEB, 80, "tcp", "invalid")],
    ),
    (
        "a pod selector alone speaks of the policy's own namespace",
        [policy("web", podSelector={"matchLabels": {"app": "db"}}, ingress=[{"from": [WEB_ONLY]}])],
        [(WEB, DB, 5432), (FAR_WEB, DB, 5432), (OTHER, WEB, 80)],
        [(OTHER, DB, 5432), (WORLD, DB, 5432)],
    ),
    (
        "a namespace selector speaks of all pods of the namespaces it matches",
        [policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}])],
        [(OTHER, DB, 5432), (FAR_OTHER, WEB, 80)],
        [(WEB, DB, 5432), (WORLD, DB, 80)],
    ),
    (
        "both selectors in one peer must both hold",
        [policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}, **WEB_ONLY}]}])],
        [(OTHER, DB, 5432)],
        [(FAR_OTHER, DB, 5432), (WEB, DB, 5432)],
    ),
    (
        "selectors in two peers: either will do",
        [policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}, WEB_ONLY]}])],
        [(OTHER, DB, 5432), (FAR_OTHER, DB, 5432), (WEB, DB, 5432), (FAR_WEB, DB, 5432)],
        [(DB, WEB, 1), (WORLD, DB, 1)],
    ),
    (
        "an empty namespace selector is every namespace, an expression is evaluated",
        [
            policy(
                "any",
                podSelector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
                ingress=[{"from": [{"namespaceSelector": {}}]}],
            )
        ],
        [(OTHER, WEB, 80), (FAR_WEB, WEB, 80), (WORLD, DB, 80)],
        [(WORLD, WEB, 80)],
    ),
    (
        "an address range less its exceptions",
        [
            policy(
                "range",
                ingress=[
                    {
                        "from": [
                            {"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.4/30", "203.0.113.128/25"]}}
                        ]
                    }
                ],
            )
        ],
        [("203.0.113.1", WEB, 80), ("203.0.113.8", WEB, 80), ("203.0.113.127", WEB, 80)],
        [("203.0.113.5", WEB, 80), ("203.0.113.200", WEB, 80), ("198.51.100.1", WEB, 80), (DB, WEB, 80)],
    ),
    (
        "everywhere but a range, one single address beside it",
        [
            policy(
                "range",
                policyTypes=["Egress"],
                egress=[
                    {
                        "to": [
                            {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
                            {"ipBlock": {"cidr": "10.244.1.4/32"}},
                        ]
                    }
                ],
            )
        ],
        [(WEB, WORLD, 443), (WEB, OTHER, 1)],
        [(WEB, DB, 5432)],
    ),
    (
        "the whole address space",
        [policy("range", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 80}]}])],
        [(WORLD, WEB, 80), (DB, WEB, 80)],
        [(WORLD, WEB, 81)],
    ),
    (
        "ports, ranges that overlap, protocols without a port, SCTP",
        [
            policy(
                "ports",
                ingress=[
                    {
                        "ports": [
                            {"port": 80},
                            {"port": 8000, "endPort": 8080},
                            {"port": 8050, "endPort": 8100, "protocol": "TCP"},
                            {"protocol": "UDP"},
                            {"port": 36412, "protocol": "SCTP"},
                        ]
                    }
                ],
            )
        ],
        [(DB, WEB, 80), (DB, WEB, 8000), (DB, WEB, 8100), (DB, WEB, 5, "udp"), (DB, WEB, 36412, "sctp")],
        [(DB, WEB, 81), (DB, WEB, 8101), (DB, WEB, 80, "sctp"), (DB, WEB, 0, "icmp")],
    ),
    (
        "a named port is the receiving pod's own",
        [
            policy(
                "named",
                ingress=[
                    {
                        "ports": [
                            {"port": "http"},
                            {"port": "metrics", "protocol": "UDP"},
                            {"port": "sql", "protocol": "UDP"},
                        ]
                    }
                ],
            )
        ],
        [(DB, WEB, 8080), (DB, WEB, 9100, "udp")],
        [(DB, WEB, 8081), (DB, WEB, 9100), (WEB, DB, 8080), (WEB, DB, 5432), (WEB, DB, 5432, "udp")],
    ),
    (
        "a named port of an egress rule is that of each peer",
        [
            policy(
                "named",
                policyTypes=["Egress"],
                egress=[{"to": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}], "ports": [{"port": "sql"}]}],
            )
        ],
        [(WEB, OTHER, 6543), (WEB, FAR_OTHER, 7654)],
        [(WEB, OTHER, 7654), (WEB, DB, 5432), (WEB, FAR_OTHER, 6543)],
    ),
    (
        "a named port of an egress rule to anywhere is that of any pod",
        [policy("named", policyTypes=["Egress"], egress=[{"ports": [{"port": "sql"}]}])],
        [(WEB, OTHER, 6543), (WEB, FAR_OTHER, 7654), (WEB, DB, 5432)],
        [(WEB, WORLD, 5432), (WEB, FAR_OTHER, 6543)],
    ),
    (
        "policies that select the same pod add up",
        [
            policy("deny"),
            policy("http", ingress=[{"ports": [{"port": 80}]}]),
            policy("db", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}], **WEB_ONLY),
        ],
        [(WORLD, WEB, 80), (WORLD, DB, 80), (DB, WEB, 5)],
        [(WORLD, WEB, 81), (WEB, DB, 5)],
    ),
    (
        "leaving the sender is not yet entering the receiver",
        [
            policy("out", policyTypes=["Egress"], egress=[{}]),
            policy("in", "other", ingress=[{"ports": [{"port": 80}]}]),
        ],
        [(WEB, OTHER, 80), (WEB, WORLD, 1)],
        [(WEB, OTHER, 81)],
    ),
    (
        "what reaches every pod at once is dropped where not everybody may send to every pod",
        [policy("web", ingress=[{"ports": [{"port": 80, "protocol": "UDP"}]}], **WEB_ONLY)],
        [(OTHER, WEB, 80, "udp"), (OTHER, DB, 81, "udp"), (OTHER, WORLD, 80, "udp")],
        [(OTHER, EVERYBODY, 81, "udp"), (OTHER, GROUP, 81, "udp"), (DB, GROUP, 0, "icmp")],
    ),
    (
        "where no pod is isolated for what comes in, it passes",
        [policy("out", policyTypes=["Egress"], **WEB_ONLY)],
        [(OTHER, EVERYBODY, 81, "udp"), (OTHER, GROUP, 81, "udp")],
        [(WEB, EVERYBODY, 81, "udp"), (WEB, GROUP, 81, "udp")],
    ),
]


@pytest.mark.parametrize(
    ("policies", "allowed", "refused"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
async def test_packets_pass_or_not_as_the_table_says(
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


async def test_a_change_of_modes_leaves_the_chains_of_the_new_one() -> None:
    table, writer = filled(policy("deny")), RecordingWriter()
    for ipvs in (False, True, False):
        await PolicyBackend(writer, 4, clock=FakeClock()).put(made(table, ipvs=ipvs))
        assert set(writer.contents.rules) == set(made(table, ipvs=ipvs).chains)


async def test_a_pod_on_the_hosts_network_and_one_that_finished_are_not_selected() -> None:
    pods = [pod("host", "192.168.0.1", host_network=True), pod("done", DB, phase="Succeeded"), pod("web", WEB)]
    trace = await tracer(policy("deny"), pods=pods)
    assert trace.allows(WORLD, "192.168.0.1", 80)
    assert trace.allows(WORLD, DB, 80)
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


async def test_an_address_nobody_is_known_to_have_is_closed_while_a_selected_pod_starts() -> None:
    starting = pod("new", labels={"app": "web"})
    trace = await tracer(policy("deny", **WEB_ONLY), pods=[*PODS, starting])
    assert not trace.allows(WORLD, "10.244.1.77", 80)
    assert not trace.allows("10.244.1.77", WORLD, 80)
    assert not trace.allows(WORLD, "10.244.1.77", 80, hook="output")
    assert not trace.allows("10.244.1.77", WORLD, 80, hook="output")
    assert trace.allows(WORLD, DB, 80)  # pods that are known are not touched
    assert trace.allows("10.244.2.77", WORLD, 80)
    trace = await tracer(policy("deny", **WEB_ONLY), pods=[*PODS, pod("new", labels={"app": "db"})])
    assert trace.allows(WORLD, "10.244.1.77", 80)  # nobody waits whom a policy selects


async def test_an_address_that_two_pods_claim_is_the_youngers() -> None:
    old = pod("old", WEB, labels={"app": "web"}, created="2026-01-01T00:00:00Z")
    new = pod("new", WEB, labels={"app": "db"}, created="2026-01-02T00:00:00Z")
    assert (await tracer(policy("deny", **WEB_ONLY), pods=[old, new])).allows(WORLD, WEB, 80)
    assert not (await tracer(policy("deny", podSelector={"matchLabels": {"app": "db"}}), pods=[old, new])).allows(
        WORLD, WEB, 80
    )


async def test_a_pod_more_in_a_peer_changes_one_element_and_no_rule() -> None:
    table = filled(policy("team", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]))
    writer, rulesets = RecordingWriter(), RulesetBuilder(table, 4)
    backend = PolicyBackend(writer, 4, clock=FakeClock())
    await backend.put(rulesets.build())
    new = pod("new", "10.244.2.99", namespace="other", node="node-2")
    assert table.set_pod("other/new", facts_of(new, "node-1"))
    await backend.put(rulesets.build())
    (line,) = writer.applied[-1].splitlines()
    assert line.startswith("add element ip wherry-policy pods-")
    assert line.endswith("{ 10.244.2.99 }")
    elsewhere = pod("elsewhere", "10.244.2.98", node="node-2")
    table.set_pod("default/elsewhere", facts_of(elsewhere, "node-1"))
    written = len(writer.applied)
    await backend.put(rulesets.build())
    assert len(writer.applied) == written  # a pod of another node that nobody names as a peer


@pytest.mark.parametrize("seed", range(6))
async def test_after_any_sequence_of_changes_deltas_equal_a_fresh_start(seed: int) -> None:
    """Pods, namespaces and policies come, change and go; the kernel's refusals are the recording writer's."""
    chance = random.Random(seed)
    table, writer = filled(pods=[]), RecordingWriter()
    rulesets = RulesetBuilder(table, 4)
    rulesets.ranges = ("10.244.1.0/24",)
    backend = PolicyBackend(writer, 4, clock=FakeClock())
    pods: dict[str, SlimPod] = {}
    policies: dict[str, networking_v1.NetworkPolicy] = {}
    for _ in range(150):
        kind, number = chance.randrange(5), chance.randrange(12)
        if kind < 2:
            name = f"pod{number}"
            if chance.random() < 0.3:
                pods.pop(name, None)
                table.set_pod(f"default/{name}", None) if f"default/{name}" in table.known.pods else None
            else:
                ips = (f"10.244.{1 + number % 2}.{10 + number}",) if chance.random() < 0.8 else ()
                ports = {"http": ("TCP", 8000 + chance.randrange(3))}
                pods[name] = pod(
                    name, *ips, node=f"node-{1 + number % 2}", labels={"app": chance.choice(["web", "db"])}, ports=ports
                )
                table.set_pod(f"default/{name}", facts_of(pods[name], "node-1"))
        elif kind == 2:
            table.set_namespace("default", {"team": chance.choice("ab")})
        elif chance.random() < 0.3:
            policies.pop(f"p{number}", None)
            for namespace in ("default", "other"):
                table.delete_policy(f"{namespace}/p{number}")
        else:
            new = random_policy(number, chance)
            for namespace in ("default", "other"):
                table.delete_policy(f"{namespace}/p{number}")
            policies[f"p{number}"] = new
            table.set_policy(parse(new))
        await backend.put(rulesets.build())
    fresh_table = filled(*policies.values(), pods=list(pods.values()))
    fresh_table.set_namespace("default", table.known.labels_of("default"))
    fresh, other = RecordingWriter(), RulesetBuilder(fresh_table, 4)
    other.ranges = ("10.244.1.0/24",)
    await PolicyBackend(fresh, 4, clock=FakeClock()).put(other.build())
    assert writer.contents.elements == fresh.contents.elements
    assert writer.contents.rules == fresh.contents.rules
    assert sorted(writer.contents.sets) == sorted(fresh.contents.sets)


async def test_a_change_others_made_is_repaired_and_a_restart_writes_no_element() -> None:
    writer, clock = RecordingWriter(), FakeClock()
    ruleset = made(filled(policy("deny")))
    backend = PolicyBackend(writer, 4, clock=clock)
    await backend.put(ruleset)
    whole = await writer.read()
    assert not await backend.verify()
    writer.contents.elements.pop(("ingress-pods", WEB))
    writer.generation += 1
    await clock.advance(5)
    assert await backend.verify()
    assert (await writer.read()).elements == whole.elements
    await PolicyBackend(writer, 4, clock=clock).put(made(filled(policy("deny"))))
    assert "element" not in writer.applied[-1]
    await backend.cleanup()
    assert not writer.there
