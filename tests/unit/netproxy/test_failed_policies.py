"""Policies that cannot be enforced: the pods that they select are isolated, and all other policies are in force."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from kube.api import networking_v1
from netproxy.errors import PolicyError, WriteError
from netproxy.policy import policy_loader
from netproxy.policy import table as table_module
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.family_writer import RETRY
from netproxy.policy.limits import MAX_ELEMENTS, MAX_SELECTORS, TOO_MANY_MEMBERS
from netproxy.policy.parsing import parse
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.policy_loader import CLOSED_RETRY
from netproxy.policy.selector import Selector
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy

WEB, DB, CLIENT = "10.244.1.2", "10.244.1.3", "10.244.2.2"
BAD_PORT = "666"
ANYBODY: dict[str, Any] = {"namespaceSelector": {}}


class Refusing(RecordingWriter):
    """Refuses texts with any of some words, as the kernel might."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words

    def _after(self, text: str) -> Any:
        if any(word in text for word in self.words):
            raise WriteError("refused")
        return super()._after(text)


class Watched(NamedTuple):
    clock: FakeClock
    enforcer: PolicyEnforcer
    reported: list[str]


@asynccontextmanager
async def enforcing(api: MemoryAPI, *writers: RecordingWriter) -> AsyncIterator[Watched]:
    clock = FakeClock()
    reported: list[str] = []
    enforcer = PolicyEnforcer(
        api.client(),
        "node-1",
        [PolicyBackend(writer, family, clock=clock) for writer, family in zip(writers, (4, 6), strict=False)],
        clock=clock,
        on_failed=lambda found, why: reported.append(f"{found.metadata.name}: {why}"),
    )
    enforcer.set_node_ranges(["10.244.1.0/24", "fd00:1::/64"])
    task = asyncio.create_task(enforcer.run())
    try:
        await settle(200)
        yield Watched(clock, enforcer, reported)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def cluster(*policies: networking_v1.NetworkPolicy) -> MemoryAPI:
    api = MemoryAPI()
    pods = [
        pod("web", WEB, "fd00:1::2", labels={"app": "web"}),
        pod("db", DB, "fd00:1::3", labels={"app": "db"}),
        pod("client", CLIENT, "fd00:2::2", node="node-2"),
    ]
    for each in (SlimNamespace(SlimMeta(name="default")), *pods, *policies):
        api.put(each)
    return api


def about(name: str, *rules: dict[str, Any]) -> networking_v1.NetworkPolicy:
    return policy(name, podSelector={"matchLabels": {"app": name}}, ingress=list(rules))


def allows(writer: RecordingWriter, destination: str, port: int) -> bool:
    return PolicyTracer(writer.contents).allows(CLIENT, destination, port)


GOOD = about("db", {"from": [ANYBODY], "ports": [{"port": 80}]})
UNREADABLE = [
    {"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}}]},
    {"from": [ANYBODY], "ports": [{"port": 80, "endPort": 79}]},
    {"from": [ANYBODY], "ports": [{"port": 70000}]},
    {"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.1/32"] * MAX_ELEMENTS}}]},
]


@pytest.mark.parametrize("rule", UNREADABLE, ids=["selector", "range of ports", "port", "cost"])
async def test_a_policy_that_cannot_be_read_isolates_its_pods_and_leaves_others_in_force(rule: dict[str, Any]) -> None:
    writer = RecordingWriter()
    api = cluster(about("web", {"from": [ANYBODY]}, rule), GOOD)
    async with enforcing(api, writer) as watched:
        assert watched.enforcer.started.is_set()
        assert not allows(writer, WEB, 80)
        assert allows(writer, DB, 80)
        assert not allows(writer, DB, 81)
        assert [each.partition(":")[0] for each in watched.reported] == ["web"]
        api.put(about("web", {"from": [ANYBODY]}))
        await settle(80)
        assert allows(writer, WEB, 80)
        assert len(watched.reported) == 1


async def test_a_policy_whose_subject_cannot_be_read_isolates_its_namespace() -> None:
    writer = RecordingWriter()
    selector = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
    async with enforcing(cluster(policy("odd", podSelector=selector)), writer):
        assert not allows(writer, WEB, 80)
        assert not allows(writer, DB, 80)


async def test_a_policy_whose_rules_the_kernel_refuses_is_found_and_others_are_in_force() -> None:
    bad = {"from": [ANYBODY], "ports": [{"port": int(BAD_PORT)}]}
    others = [policy(f"other-{number}", podSelector={"matchLabels": {"app": "none"}}) for number in range(5)]
    writer = Refusing(BAD_PORT)
    api = cluster(about("web", {"from": [ANYBODY], "ports": [{"port": 80}]}, bad), GOOD, *others)
    async with enforcing(api, writer) as watched:
        assert watched.enforcer.started.is_set()
        assert not allows(writer, WEB, 80)
        assert allows(writer, DB, 80)
        assert not allows(writer, DB, 81)
        assert watched.reported == ["web: the kernel refuses its rules"]
        api.put(about("web", {"from": [ANYBODY], "ports": [{"port": 80}]}))
        await settle(80)
        assert allows(writer, WEB, 80)


async def test_a_family_that_cannot_be_written_holds_up_no_other() -> None:
    broken, whole = Refusing("table"), RecordingWriter()
    async with enforcing(cluster(GOOD), broken, whole) as watched:
        assert PolicyTracer(whole.contents).allows("fd00:2::2", "fd00:1::3", 80)
        assert not PolicyTracer(whole.contents).allows("fd00:2::2", "fd00:1::3", 81)
        assert not watched.enforcer.started.is_set()
        assert watched.reported == []
        broken.words = ()
        await watched.clock.advance(RETRY)
        await settle(80)
        assert watched.enforcer.started.is_set()
        assert not allows(broken, DB, 81)


async def test_a_node_takes_no_pods_while_policies_that_it_knows_cannot_be_put_in_force() -> None:
    broken = Refusing("table")
    async with enforcing(cluster(GOOD), broken) as watched:
        waiting = asyncio.create_task(watched.enforcer.wait_started(0))
        await settle(80)
        assert not waiting.done()
        broken.words = ()
        await watched.clock.advance(RETRY)
        await waiting


@pytest.mark.parametrize(
    "rule",
    [
        {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}] * (MAX_ELEMENTS + 1)},
        {"from": [{"podSelector": {}}] * (MAX_SELECTORS + 1)},
        {"from": [{"podSelector": {}}] * 100, "ports": [{"port": "http"}] * 100},
    ],
    ids=["ranges", "selectors", "rules"],
)
def test_a_policy_that_costs_too_much_is_not_read(rule: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="enforced at most"):
        parse(policy("costly", ingress=[rule]))
    with pytest.raises(PolicyError, match="enforced at most"):
        parse(policy("costly", egress=[{"to": rule["from"], "ports": rule.get("ports", [])}]))


def everywhere(name: str, *requirements: str) -> networking_v1.NetworkPolicy:
    """Return a policy for pods of an app, with a peer by selector for each requirement, which all pods meet."""
    matching = [{"key": each, "operator": "DoesNotExist"} for each in requirements]
    peers = [{"namespaceSelector": {}, "podSelector": {"matchExpressions": [each]}} for each in matching]
    return about(name, {"from": peers})


async def test_policies_of_a_namespace_whose_peers_are_too_many_pods_are_closed_the_largest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "MAX_MEMBERS", 9)
    api, writer = cluster(everywhere("web", "a", "b"), everywhere("db", "c")), RecordingWriter()
    async with enforcing(api, writer) as watched:
        tracer = PolicyTracer(writer.contents)
        assert tracer.allows(CLIENT, WEB, "tcp", 80) and tracer.allows(CLIENT, DB, "tcp", 80)
        extra = pod("more", "10.244.2.3", node="node-2")
        api.put(extra)  # now 2 x 4 + 4 are more than 9
        await settle(200)
        tracer = PolicyTracer(writer.contents)
        assert not tracer.allows(CLIENT, WEB, "tcp", 80) and tracer.allows(CLIENT, DB, "tcp", 80)
        assert watched.reported == [f"web: {TOO_MANY_MEMBERS}"]
        await watched.clock.advance(CLOSED_RETRY)
        await watched.enforcer.verify()
        await settle(200)
        assert not PolicyTracer(writer.contents).allows(CLIENT, WEB, "tcp", 80)
        api.remove(extra)
        await settle(200)
        await watched.clock.advance(CLOSED_RETRY)
        await watched.enforcer.verify()
        await settle(200)
        assert PolicyTracer(writer.contents).allows(CLIENT, WEB, "tcp", 80)
        assert len(watched.reported) == 1


async def test_a_policy_whose_peers_are_too_many_pods_by_itself_is_closed_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "MAX_MEMBERS", 9)
    api, writer = cluster(everywhere("db", "c")), RecordingWriter()
    async with enforcing(api, writer) as watched:
        api.put(everywhere("web", "a", "b", "d", "e"))
        await settle(200)
        tracer = PolicyTracer(writer.contents)
        assert not tracer.allows(CLIENT, WEB, "tcp", 80) and tracer.allows(CLIENT, DB, "tcp", 80)
        assert watched.reported == [f"web: {TOO_MANY_MEMBERS}"]
        api.put(everywhere("web", "a"))
        await settle(200)
        assert PolicyTracer(writer.contents).allows(CLIENT, WEB, "tcp", 80)


async def test_a_policy_whose_reading_fails_isolates_its_pods_and_leaves_others_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writer = policy_loader.read, RecordingWriter()

    def read(found: networking_v1.NetworkPolicy) -> Any:
        if found.metadata.name == "web":
            raise RuntimeError("a fault of ours")
        return reading(found)

    monkeypatch.setattr(policy_loader, "read", read)
    async with enforcing(cluster(about("web", {"from": [ANYBODY]}), GOOD), writer) as watched:
        assert not allows(writer, WEB, 80)
        assert allows(writer, DB, 80) and not allows(writer, DB, 81)
        assert watched.reported == ["web: it cannot be processed: RuntimeError('a fault of ours')"]
        monkeypatch.undo()
        await watched.clock.advance(CLOSED_RETRY)
        await watched.enforcer.verify()
        await settle(80)
        assert allows(writer, WEB, 80)


@pytest.mark.parametrize("fails", ["pod", "namespace", "policy"])
async def test_a_selector_that_cannot_be_matched_closes_its_policy_for_the_namespace_and_no_other(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matches = Selector.matches

    def failing(self: Selector, pod: PodFacts, labels: Mapping[str, str] | None) -> bool:
        if any(each.key == "odd" for each in self.pods.requirements) and pod.ips[:1] != ("10.244.1.9",):
            raise RuntimeError("a fault of ours")
        return matches(self, pod, labels)

    selector = {"matchExpressions": [{"key": "odd", "operator": "DoesNotExist"}]}
    odd = policy("odd", podSelector=selector, ingress=[{}])
    if fails == "namespace":
        odd = about("web", {"from": [{"podSelector": selector, "namespaceSelector": {"matchLabels": {"a": "b"}}}]})
    api, writer = MemoryAPI(), RecordingWriter()
    if fails == "policy":
        monkeypatch.setattr(Selector, "matches", failing)
    for each in (SlimNamespace(SlimMeta(name="default")), pod("first", "10.244.1.9"), odd, GOOD):
        api.put(each)
    async with enforcing(api, writer) as watched:
        monkeypatch.setattr(Selector, "matches", failing)
        web, db = pod("web", WEB, labels={"app": "web"}), pod("db", DB, labels={"app": "db"})
        for each in (web, db, pod("client", CLIENT, node="node-2")):
            api.put(each)
        await settle(80)
        if fails == "namespace":
            api.put(SlimNamespace(SlimMeta(name="default", labels={"a": "b"})))
            await settle(80)
        assert not allows(writer, WEB, 80)
        assert allows(writer, DB, 80) and not allows(writer, DB, 81)
        assert [each.partition(":")[0] for each in watched.reported] == [odd.metadata.name]
