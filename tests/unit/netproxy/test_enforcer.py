"""Watches of the enforcer, and the limit of a node's wait for policies that no server shows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.api import networking_v1
from netproxy.pod_addresses import Given
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import KEEP_FOLLOWING, PolicyEnforcer
from netproxy.policy.orphaned_pods import CHECK_PERIOD
from netproxy.slim_objects import SlimAnnotations, SlimMeta, SlimNamespace
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.support.nft_in_memory import RecordingWriter
from tests.support.policies import PolicyTracer, pod, policy

WEB, CLIENT = "10.244.1.2", "10.244.1.3"


class WatchingAPI(MemoryAPI):
    """Records what is watched."""

    def __init__(self) -> None:
        super().__init__()
        self.followed: list[str] = []

    async def request(self, method: str, path: str, **options: object) -> object:  # type: ignore[override]
        if method == "GET":
            self.followed.append(path.rpartition("/")[2])
        return await super().request(method, path, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def enforcing(
    api: MemoryAPI, writer: RecordingWriter, clock: FakeClock | None = None
) -> AsyncIterator[PolicyEnforcer]:
    clock = clock or FakeClock()
    enforcer = PolicyEnforcer(api.client(), "node-1", [PolicyBackend(writer, 4, clock=clock)], clock=clock)
    enforcer.set_node_ranges(["10.244.1.0/24"])
    task = asyncio.create_task(enforcer.run())
    try:
        yield enforcer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def cluster(*objects: object) -> WatchingAPI:
    api = WatchingAPI()
    for each in (SlimNamespace(SlimMeta(name="default")), pod("web", WEB), pod("client", CLIENT), *objects):
        api.put(each)  # type: ignore[arg-type]
    return api


async def test_pods_are_followed_only_while_there_is_a_policy() -> None:
    api, writer, clock = cluster(), RecordingWriter(), FakeClock()
    async with enforcing(api, writer, clock) as enforcer:
        await enforcer.started.wait()
        assert api.followed == ["networkpolicies"]
        assert not writer.there
        deny = policy("deny")
        api.put(deny)
        await settle(80)
        assert set(api.followed) == {"networkpolicies", "namespaces", "pods"}
        assert not PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)
        api.put(policy("allow", ingress=[{"from": [{"podSelector": {}}]}]))
        await settle(80)
        assert PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)
        api.remove(deny)
        api.remove(policy("allow"))
        await settle(80)
        assert not writer.there
        await clock.advance(KEEP_FOLLOWING)
        await settle(80)
        followed = len(api.followed)
        api.put(pod("another", "10.244.1.9"))
        await settle(80)
        assert len(api.followed) == followed and not enforcer._table.known.pods
        api.put(deny)
        await settle(80)
        assert len(api.followed) > followed and not PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)


async def test_who_creates_and_deletes_the_only_policy_all_the_time_makes_no_node_list_pods_each_time() -> None:
    api, writer, clock = cluster(), RecordingWriter(), FakeClock()
    async with enforcing(api, writer, clock) as enforcer:
        await enforcer.started.wait()
        deny = policy("deny")
        for _ in range(5):
            api.put(deny)
            await settle(80)
            assert not PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)
            api.remove(deny)
            await settle(80)
            assert not writer.there, "it is not in force while pods are followed"
            await clock.advance(KEEP_FOLLOWING / 2)
            await asyncio.wait_for(enforcer.set_given_addresses({}, [WEB]), 1)  # there is no table to wait for
            await enforcer.set_given_addresses({}, (), [WEB])
        assert sorted(api.followed) == ["namespaces", "networkpolicies", "pods"]


async def test_the_table_of_an_earlier_life_stays_until_everything_is_known() -> None:
    api, writer = cluster(policy("deny")), RecordingWriter()
    async with enforcing(api, writer) as enforcer:
        await enforcer.started.wait()
    api.go_away()
    written = len(writer.applied)
    async with enforcing(api, writer) as enforcer:
        await settle(80)
        assert not enforcer.started.is_set()
        assert len(writer.applied) == written
        assert not PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)


async def test_a_node_waits_once_for_policies_that_nobody_shows() -> None:
    api = cluster()
    api.go_away()
    async with enforcing(api, RecordingWriter()) as enforcer:
        await enforcer.wait_started(0.01)
        async with asyncio.timeout(5):
            await enforcer.wait_started(3600)


class Site:
    """An enforcer on a clock, and the addresses that CNI plugins have given, each with its pod's UID."""

    def __init__(self, api: MemoryAPI, held: dict[str, str]) -> None:
        self.writer, self.clock, self.held = RecordingWriter(), FakeClock(), held
        backends = [PolicyBackend(self.writer, 4, clock=self.clock)]
        self.enforcer = PolicyEnforcer(
            api.client(), "node-1", backends, clock=self.clock, addresses_here=lambda: set(self.held)
        )
        self.enforcer.set_node_ranges(["10.244.1.0/24"])

    async def look(self, seconds: float = CHECK_PERIOD) -> None:
        await self.clock.advance(seconds)
        for _ in range(5):
            await asyncio.sleep(0.01)  # the results are read in a thread
            await settle(80)

    def allows(self, source: str = CLIENT, target: str = WEB) -> bool:
        return PolicyTracer(self.writer.contents).allows(source, target, 80)


@asynccontextmanager
async def on_a_node(api: MemoryAPI, held: dict[str, str]) -> AsyncIterator[Site]:
    site = Site(api, held)
    task = asyncio.create_task(site.enforcer.run())
    try:
        await site.enforcer.started.wait()
        await settle(80)
        yield site
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_deleted_by_force_stays_under_its_policies_while_its_network_exists() -> None:
    api = cluster(policy("deny"))
    async with on_a_node(api, {WEB: "web", CLIENT: "client"}) as site:
        assert not site.allows()
        api.remove(pod("web", WEB))
        await settle(80)
        assert not site.allows()
        await site.look()
        assert not site.allows()
        del site.held[WEB]
        await site.look()
        assert ("local-pods", WEB) not in site.writer.contents.elements
        assert not site.allows(), "nobody is known to have its address"


STARTING = pod("starting", labels={"app": "starting"})
OTHER = "10.244.1.9"


def closing(app: str) -> networking_v1.NetworkPolicy:
    return policy("deny", podSelector={"matchLabels": {"app": app}}, policyTypes=["Ingress"])


async def test_an_address_that_no_pod_is_known_to_have_is_closed_whoever_starts() -> None:
    """So a pod sends nothing before its policies are in force, however late they, or it, come to be known."""
    api = cluster(closing("starting"))
    async with on_a_node(api, {}) as site:
        for source, target in ((CLIENT, OTHER), (OTHER, CLIENT), (OTHER, "203.0.113.9")):
            assert not site.allows(source, target)
        tracer = PolicyTracer(site.writer.contents)
        assert not tracer.allows(CLIENT, OTHER, 80, state="established")
        assert site.allows(), "pods that no policy selects are open"
        await site.enforcer.set_given_addresses({"open": Given("default/open", (OTHER,))})
        await settle(80)
        assert not site.allows(target=OTHER), "nobody knows which policies select the pod"
        api.put(pod("open"))
        await settle(80)
        assert site.allows(target=OTHER) and site.allows(OTHER, "203.0.113.9")


async def test_no_table_is_written_before_the_ranges_of_the_node_are_known() -> None:
    """At a restart the one of the process before closes unknown addresses."""
    api, writer, clock = cluster(policy("deny")), RecordingWriter(), FakeClock()
    enforcer = PolicyEnforcer(api.client(), "node-1", [PolicyBackend(writer, 4, clock=clock)], clock=clock)
    task = asyncio.create_task(enforcer.run())
    try:
        await settle(80)
        assert not writer.applied and not enforcer.started.is_set()
        enforcer.set_node_ranges(["10.244.1.0/24"])
        await settle(80)
        assert writer.there and enforcer.started.is_set()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_whose_sandbox_is_recreated_keeps_its_policies_before_its_status_has_the_address() -> None:
    """A pod can bring that about itself, as often as it likes."""
    egress = policy("deny", podSelector={"matchLabels": {"app": "web"}}, policyTypes=["Egress"])
    api = cluster(egress, pod("web", WEB, labels={"app": "web"}))
    async with on_a_node(api, {}) as site:
        await site.enforcer.set_given_addresses({"web": Given("default/web", (WEB,))})
        await settle(80)
        assert not site.allows(WEB, CLIENT)
        for number in range(2):
            new = f"10.244.1.{40 + number}"
            assert not site.allows(new, CLIENT)
            await site.enforcer.set_given_addresses({"web": Given("default/web", (new,))}, [new])
            await settle(80)
            assert not site.allows(CLIENT, new), "flows of the holder before may still be there"
            await site.enforcer.set_given_addresses({"web": Given("default/web", (new,))}, opened=[new])
            await settle(80)
            assert site.allows(CLIENT, new) and not site.allows(new, CLIENT)


async def test_an_address_that_was_given_to_another_pod_is_no_more_that_of_the_pod_whose_status_has_it() -> None:
    api = cluster(closing("client"), pod("client", CLIENT, labels={"app": "client"}, created="2027-01-01T00:00:00Z"))
    async with on_a_node(api, {}) as site:
        assert not site.allows(WEB, CLIENT)
        given = {"web": Given("default/web", (CLIENT,)), "client": Given("default/client", ("10.244.1.44",))}
        await site.enforcer.set_given_addresses(given)
        await settle(80)
        assert site.allows("203.0.113.9", CLIENT) and not site.allows("203.0.113.9", "10.244.1.44")


async def test_a_released_address_is_nobodys_while_the_status_of_a_pod_has_it() -> None:
    api = cluster(closing("other"))
    async with on_a_node(api, {}) as site:
        assert site.allows()
        await site.enforcer.set_given_addresses({}, [WEB])
        await settle(80)
        assert not site.allows() and not PolicyTracer(site.writer.contents).allows(CLIENT, WEB, 80, state="established")
        await site.enforcer.set_given_addresses({}, opened=[WEB])
        await settle(80)
        assert site.allows()


async def test_who_sets_addresses_hears_when_they_are_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then flows are deleted: a packet that passed before the write would make them anew."""
    async with on_a_node(cluster(closing("other")), {}) as site:
        going, apply = asyncio.Event(), site.writer.apply

        async def wait(text: str) -> None:
            await going.wait()
            await apply(text)

        monkeypatch.setattr(site.writer, "apply", wait)
        setting = asyncio.create_task(site.enforcer.set_given_addresses({}, [WEB]))
        await settle(80)
        assert not setting.done() and site.allows()
        going.set()
        await setting
        assert not site.allows()
    async with on_a_node(cluster(), {}) as site:
        await site.enforcer.set_given_addresses({}, [WEB])  # without a policy there is no table


async def test_addresses_are_not_in_force_before_earlier_changes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the API, too: without the pod, the address that is reported as released is nobody's already."""
    api = cluster(closing("other"))
    async with on_a_node(api, {}) as site:
        going, apply = asyncio.Event(), site.writer.apply

        async def wait(text: str) -> None:
            await going.wait()
            await apply(text)

        monkeypatch.setattr(site.writer, "apply", wait)
        finished = pod("web", WEB)
        finished.status.phase = "Succeeded"
        api.put(finished)
        await site.look()
        setting = asyncio.create_task(site.enforcer.set_given_addresses({}, [WEB]))
        await settle(80)
        assert not setting.done() and site.allows()
        going.set()
        await setting
        assert not site.allows()
        await asyncio.wait_for(site.enforcer.set_given_addresses({}, [WEB]), 1)


async def test_the_address_of_a_force_deleted_pod_is_closed_once_a_pod_that_is_not_known_yet_has_it() -> None:
    api = cluster(closing("next"))
    async with on_a_node(api, {WEB: "web"}) as site:
        await site.enforcer.set_given_addresses({"web": Given("default/web", (WEB,))})
        api.remove(pod("web", WEB))
        await site.look()
        assert site.allows(), "it still runs"
        await site.enforcer.set_given_addresses({"web": Given("default/web", (WEB,))}, [WEB])
        await site.enforcer.set_given_addresses({"next": Given("default/next", (WEB,))}, opened=[WEB])
        assert not site.allows()
        await site.look()
        assert not site.allows()
        another = pod("next", labels={"app": "another"})
        another.metadata.uid = "next"
        api.put(another)
        await settle(80)
        assert site.allows()


@pytest.mark.parametrize(("name", "mirror", "known"), [("s", "uid-s", True), ("s", "", False), ("t", "uid-s", False)])
async def test_a_static_pod_is_known_by_the_uid_under_which_the_node_runs_it(
    name: str, mirror: str, known: bool
) -> None:
    """Its object has another. An annotation of a pod with another name says nothing."""
    api = cluster(closing("other"))
    async with on_a_node(api, {}) as site:
        made = pod(name)
        made.metadata.annotations = SlimAnnotations(mirror)
        api.put(made)
        await site.enforcer.set_given_addresses({"uid-s": Given("default/s", (OTHER,))})
        await settle(80)
        assert site.allows(target=OTHER) is known


async def test_a_pod_made_anew_under_the_same_name_does_not_hide_the_one_before() -> None:
    """Deletion and creation can arrive as one change, as after a break of the watch."""
    api = cluster(closing("starting"), STARTING)
    async with on_a_node(api, {OTHER: "starting"}) as site:
        again = pod("starting", "10.244.1.10", labels={"app": "other"})
        again.metadata.uid = "again"
        api.put(again)
        await settle(80)
        await site.look()
        assert not site.allows(target=OTHER)
        assert site.allows(target="10.244.1.10")


async def test_who_waits_for_a_write_is_released_when_the_write_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster(closing("other"))
    site = Site(api, {})
    task = asyncio.create_task(site.enforcer.run())
    await site.enforcer.started.wait()
    await settle(80)

    async def never(text: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(site.writer, "apply", never)
    setting = asyncio.create_task(site.enforcer.set_given_addresses({}, [WEB]))
    await settle(80)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(setting, 1)
