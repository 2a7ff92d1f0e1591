"""Flows of pods of other nodes end with these pods, before another pod at the address is a peer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from kube.errors import StatusError
from netproxy.errors import WriteError
from netproxy.policy import table_writer
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.family_writer import RETRY
from netproxy.policy.former_addresses import MAX_PAUSE, MIN_PAUSE, pause_after
from netproxy.slim_objects import SlimMeta, SlimNamespace, SlimPod
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy

WEB, FAR, SECOND, FAR_6 = "10.244.1.2", "10.244.2.5", "10.244.2.6", "fd00:2::5"
FRIENDS = policy("friends", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}])
"""Isolates all pods of the namespace."""


def friend(*ips: str, name: str = "friend", uid: str = "", app: str = "friend", **fields: Any) -> SlimPod:
    made = pod(name, *(ips or (FAR,)), labels={"app": app}, **{"node": "node-2", **fields})
    made.metadata.uid = uid or name
    return made


class Flows:
    """Records deletions, and whether the address was a peer meanwhile."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self.deleted: list[tuple[set[str], set[str]]] = []
        self.peers: list[bool] = []
        self.going = asyncio.Event()
        self.going.set()

    async def delete(self, addresses: Collection[str], others: Collection[str]) -> None:
        self.deleted.append((set(addresses), set(others)))
        await self.going.wait()
        self.peers.append(is_peer(self._writer))


def is_peer(writer: RecordingWriter, address: str = FAR) -> bool:
    return PolicyTracer(writer.contents).allows(address, WEB, 80)


class API(MemoryAPI):
    """An API that can let the next watch of pods start too late, so that they are listed again."""

    expired = False

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.expired and path.endswith("/pods"):
            self.expired = False
            raise StatusError(410, "Expired", "too old resource version")
        async with super().stream(path, **options) as lines:
            yield lines


class Site:
    """An enforcer on a clock, after the friend's packets pass."""

    def __init__(self, *objects: Any, families: tuple[int, ...] = (4,)) -> None:
        self.api, self.writer, self.clock = API(), RecordingWriter(), FakeClock()
        self.writer_6 = RecordingWriter()
        self.ranges = {"10.244.1.": "node-1", "10.244.2.": "node-2", "fd00:2:": "node-2"}
        for each in (SlimNamespace(SlimMeta(name="default")), pod("web", WEB), friend(), FRIENDS, *objects):
            self.api.put(each)
        self.flows = Flows(self.writer)
        writers = {4: self.writer, 6: self.writer_6}
        backends = [PolicyBackend(writers[each], each, clock=self.clock) for each in families]
        self.enforcer = PolicyEnforcer(
            self.api.client(),
            "node-1",
            backends,
            clock=self.clock,
            delete_flows=self.flows.delete,
            node_of=lambda ip: next((node for start, node in self.ranges.items() if ip.startswith(start)), ""),
        )
        self.enforcer.set_node_ranges(["10.244.1.0/24"])

    def is_peer(self, address: str = FAR) -> bool:
        return is_peer(self.writer, address)

    async def next_batch(self, seconds: float = MIN_PAUSE) -> None:
        await settle(80)
        await self.clock.advance(seconds)
        await settle(80)


@contextlib.asynccontextmanager
async def enforcing(*objects: Any, families: tuple[int, ...] = (4,)) -> AsyncIterator[Site]:
    site = Site(*objects, families=families)
    task = asyncio.create_task(site.enforcer.run())
    try:
        await site.enforcer.started.wait()
        await settle(80)
        yield site
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "after",
    [
        None,
        friend(phase="Succeeded"),
        friend(SECOND),
        friend(uid="again", app="next"),
        friend(uid="again"),
        friend(node="node-1"),
    ],
    ids=["deleted", "finished", "another address", "replaced by another pod", "replaced by a friend", "moved here"],
)
async def test_flows_of_an_address_are_deleted_once_it_is_in_no_set(after: SlimPod | None) -> None:
    async with enforcing() as site:
        assert site.is_peer() and not site.flows.deleted
        site.flows.going.clear()
        site.api.remove(friend()) if after is None else site.api.put(after)
        await settle(80)
        here = {WEB, FAR} if after is not None and after.spec.node_name == "node-1" else {WEB}
        assert site.flows.deleted == [({FAR} - here, here)]
        site.flows.going.set()
        await settle(80)
        again = after is not None and after.metadata.uid == "again"
        assert site.flows.peers == [len(here) == 2] and site.is_peer() == (
            (again and after is not None and after.metadata.labels["app"] == "friend") or len(here) == 2
        )
        await site.next_batch()
        assert len(site.flows.deleted) == 1


async def test_another_pod_at_the_address_is_a_peer_when_the_flows_are_deleted() -> None:
    async with enforcing() as site:
        site.flows.going.clear()
        site.api.remove(friend())
        site.api.put(friend(name="next"))
        await settle(80)
        assert site.flows.deleted and not site.is_peer()
        site.api.put(friend(name="other", phase="Pending"))
        site.api.remove(friend(name="other"))
        await settle(80)
        site.flows.going.set()
        await settle(80)
        assert site.flows.peers == [False] and site.is_peer()
        await site.next_batch()
        assert len(site.flows.deleted) == 1, "the third one never was a peer by this address"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (friend(), friend(app="next")),
        (friend(), friend(FAR, FAR_6)),
        (friend(), friend(created="2026-02-01T00:00:00Z")),
        (friend(name="host", host_network=True), None),
        (friend(name="host", host_network=True), friend(SECOND, name="host", host_network=True)),
        (pod("here", "10.244.1.9"), None),
    ],
    ids=["labels", "one more address", "other fields", "host network", "node's address", "this node's"],
)
async def test_a_pod_that_has_its_address_keeps_its_flows(before: SlimPod, after: SlimPod | None) -> None:
    async with enforcing(before) as site:
        site.api.remove(before) if after is None else site.api.put(after)
        await site.next_batch()
        assert not site.flows.deleted


async def test_a_deletion_that_was_missed_deletes_flows_of_both_families() -> None:
    async with enforcing(friend(FAR, FAR_6)) as site:
        site.api.go_away()
        await settle(80)
        site.api.remove(friend())
        site.api.put(friend(name="next", app="next"))
        site.api.expired = True
        site.api.go_away(False)
        for _ in range(5):
            await site.next_batch(10)
        assert site.flows.deleted == [({FAR, FAR_6}, {WEB})] and not site.is_peer()


async def test_pods_that_end_together_cost_a_few_listings() -> None:
    many = [friend(f"10.244.{3 + n // 250}.{n % 250 + 1}", name=f"f{n}") for n in range(1000)]
    async with enforcing(*many) as site:
        await site.next_batch()
        site.flows.going.clear()
        for each in many:
            site.api.remove(each)
        for _ in range(20):
            await settle(80)
        assert len(site.flows.deleted) == 1, "one at a time"
        site.flows.going.set()
        await site.next_batch(MIN_PAUSE / 2)
        assert len(site.flows.deleted) == 1
        for _ in range(5):
            await site.next_batch(60)
        assert len(site.flows.deleted) <= 3
        assert set().union(*(ends for ends, _ in site.flows.deleted)) == {each.status.pod_ip for each in many}


def test_batches_take_a_tenth_of_the_time_and_the_next_one_waits_no_longer_than_the_limit() -> None:
    assert [pause_after(duration) for duration in (0, 0.5, 1, 60)] == [MIN_PAUSE, 4.5, 9, MAX_PAUSE]


async def test_a_node_without_isolated_pods_lists_no_flows() -> None:
    async with enforcing() as site:
        site.api.remove(pod("web", WEB))
        await site.next_batch()
        site.api.put(pod("elsewhere", WEB, namespace="other"))
        site.api.remove(friend())
        await site.next_batch()
        assert not site.flows.deleted


async def test_flows_stay_until_the_kernel_has_the_sets_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with enforcing() as site:
        apply = site.writer.apply

        async def refuse(text: str) -> None:
            raise WriteError("no memory")

        monkeypatch.setattr(site.writer, "apply", refuse)
        site.api.remove(friend())
        await site.next_batch()
        assert site.is_peer() and not site.flows.deleted
        monkeypatch.setattr(site.writer, "apply", apply)
        await site.next_batch(10)
        assert site.flows.deleted == [({FAR}, {WEB})] and not site.is_peer()


async def test_an_unforeseen_error_leaves_policies_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    async with enforcing() as site:
        monkeypatch.setattr(site.flows, "peers", None)
        site.api.remove(friend())
        await site.next_batch()
        assert site.flows.deleted and not site.is_peer()
        site.api.put(friend(name="next"))
        await site.next_batch()
        assert site.is_peer()


async def test_without_policies_nothing_is_recorded() -> None:
    async with enforcing() as site:
        site.api.remove(FRIENDS)
        await settle(80)
        site.api.remove(friend())
        site.api.put(friend(name="next"))
        await site.next_batch()
        site.api.put(FRIENDS)
        await site.next_batch()
        assert site.is_peer() and not site.flows.deleted


@pytest.mark.parametrize("app", ["friend", "other"])
async def test_flows_of_the_pod_that_an_address_had_before_are_deleted_while_its_object_remains(app: str) -> None:
    async with enforcing(friend("10.244.2.9", name="next", created="2025-01-01T00:00:00Z", app=app)) as site:
        site.flows.going.clear()
        site.api.put(friend(FAR, name="next", created="2025-01-01T00:00:00Z", app=app))
        await settle(80)
        assert site.flows.deleted == [({FAR, "10.244.2.9"}, {WEB})] and not site.is_peer()
        site.api.put(friend(created="2026-02-01T00:00:00Z"))
        site.flows.going.set()
        await site.next_batch()
        assert site.flows.peers == [False] and site.is_peer() == (app == "friend"), "the last pod that got it counts"
        site.api.remove(friend())
        await site.next_batch()
        assert len(site.flows.deleted) == 1 and site.is_peer() == (app == "friend"), "the flows are the other pod's"
        site.api.remove(friend(FAR, name="next"))
        await site.next_batch()
        assert [ends for ends, _ in site.flows.deleted[1:]] == ([{FAR}]) and not site.is_peer()


async def test_a_pod_has_its_address_again_when_the_other_pod_that_got_it_is_gone() -> None:
    async with enforcing() as site:
        other = friend(name="other", app="other")
        site.api.put(other)
        await site.next_batch()
        assert site.flows.deleted == [({FAR}, {WEB})] and not site.is_peer()
        site.flows.going.clear()
        site.api.remove(other)
        await site.next_batch()
        assert len(site.flows.deleted) == 2 and not site.is_peer()
        site.flows.going.set()
        await site.next_batch()
        assert site.is_peer()


@pytest.mark.parametrize("name", ["a", "z"])
async def test_of_pods_listed_with_the_same_address_the_last_created_has_it(name: str) -> None:
    async with enforcing(friend(name=name, app="other", created="2025-01-01T00:00:00Z")) as site:
        assert site.is_peer()
        site.api.put(friend(name=name, app="next", created="2025-01-01T00:00:00Z"))
        await site.next_batch()
        assert site.is_peer()
        deleted = len(site.flows.deleted)
        site.api.remove(friend(name=name))
        await site.next_batch()
        assert site.is_peer() and len(site.flows.deleted) == deleted


async def test_a_pod_that_gets_an_address_and_goes_before_the_flows_are_deleted_leaves_it_to_the_next() -> None:
    async with enforcing() as site:
        site.flows.going.clear()
        site.api.put(friend(name="short", app="other"))
        await settle(80)
        site.api.put(friend(name="next"))
        await settle(80)
        site.api.remove(friend(name="short"))
        site.api.remove(friend())
        await settle(80)
        assert not site.is_peer()
        site.flows.going.set()
        await site.next_batch()
        assert site.is_peer() and site.flows.deleted == [({FAR}, {WEB})]


async def test_a_family_that_cannot_be_written_withholds_addresses_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_writer, "MAX_WAIT", 0.01)

    async def refuse(text: str) -> None:
        raise WriteError("no table of this family")

    async with enforcing(pod("web", WEB, "fd00:1::2"), friend(FAR, FAR_6), families=(4, 6)) as site:
        monkeypatch.setattr(site.writer_6, "apply", refuse)
        site.flows.going.clear()
        site.api.remove(friend())
        site.api.put(friend(name="next"))
        await settle(80)
        assert not site.is_peer()
        site.flows.going.set()
        for _ in range(3):
            await asyncio.sleep(0.02)
            await site.next_batch(RETRY)
        assert (
            site.flows.deleted == [({FAR, FAR_6}, {WEB, "fd00:1::2"})]
            and site.flows.peers == [False]
            and site.is_peer()
        )
        site.api.remove(friend(name="next"))
        for _ in range(3):
            await asyncio.sleep(0.02)
            await site.next_batch(RETRY)
        assert len(site.flows.deleted) == 2 and not site.enforcer._writer._unwritten


def claimed(ip: str = FAR, app: str = "other", *, had: bool = True) -> list[SlimPod]:
    """Return the states of a pod of node-9, which names an address that is not in its range."""
    made = [friend(ip, name="claim", app=app, node="node-9", created="2026-03-01T00:00:00Z")]
    return [friend("10.244.9.2", name="claim", app=app, node="node-9"), *made] if had else made


@pytest.mark.parametrize("had", [True, False])
async def test_a_node_takes_no_address_from_a_pod_of_another_node_by_a_status(had: bool) -> None:
    async with enforcing() as site:
        for state in claimed(had=had):
            site.api.put(state)
            await site.next_batch()
        assert site.is_peer() and not [each for each, _ in site.flows.deleted if FAR in each]
        site.api.remove(friend())
        await site.next_batch()
        assert not site.is_peer()
        site.api.put(friend(name="next"))
        await site.next_batch()
        assert site.is_peer()


@pytest.mark.parametrize("address", [SECOND, "10.244.1.77"])
async def test_no_other_address_is_a_peer_by_the_status_of_a_pod_of_another_node(address: str) -> None:
    async with enforcing() as site:
        for state in claimed(address, app="friend"):
            site.api.put(state)
        await site.next_batch()
        assert not site.is_peer(address)
        site.api.put(friend("10.244.9.3", name="claim", app="friend", node="node-9"))
        await site.next_batch()
        assert site.is_peer("10.244.9.3"), "no node is known to have this range"


async def test_an_address_in_no_known_range_stays_with_the_pod_that_has_it_until_it_is_gone() -> None:
    async with enforcing() as site:
        del site.ranges["10.244.2."]
        site.api.put(friend(name="next", app="next"))
        await site.next_batch()
        assert site.is_peer() and not site.flows.deleted
        site.api.remove(friend())
        await site.next_batch()
        assert site.flows.deleted == [({FAR}, {WEB})] and not site.is_peer()
        site.api.put(friend(name="next", app="friend"))
        await site.next_batch()
        assert site.is_peer()


async def test_an_address_that_was_believed_is_taken_back_once_its_range_is_known_to_be_another_nodes() -> None:
    async with enforcing() as site:
        del site.ranges["10.244.2."]
        site.api.put(friend(SECOND, name="claim", node="node-9"))
        site.api.put(friend(SECOND, name="mine", app="other"))
        await site.next_batch()
        assert site.is_peer(SECOND) and site.is_peer()
        site.ranges["10.244.2."] = "node-2"
        for _ in range(3):
            site.enforcer.pod_ranges_changed()
        assert len(site.enforcer._queue.lanes()) == 1
        await site.next_batch()
        assert not site.is_peer(SECOND) and site.is_peer()
        assert site.flows.deleted == [({SECOND}, {WEB})]
        site.api.put(friend(SECOND, name="mine"))
        await site.next_batch()
        assert site.is_peer(SECOND)
