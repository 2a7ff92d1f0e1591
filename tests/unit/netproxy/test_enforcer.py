"""When the enforcer follows what, and that no node waits for policies that nobody can show it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from kube.api import networking_v1
from kube.clock import FakeClock, settle
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.orphaned_pods import CHECK_PERIOD, MAX_WITHOUT_ADDRESS, START_TIMEOUT
from netproxy.slim_objects import SlimMeta, SlimNamespace
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
async def enforcing(api: MemoryAPI, writer: RecordingWriter) -> AsyncIterator[PolicyEnforcer]:
    clock = FakeClock()
    enforcer = PolicyEnforcer(api.client(), "node-1", [PolicyBackend(writer, 4, clock=clock)], clock=clock)
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
    api, writer = cluster(), RecordingWriter()
    async with enforcing(api, writer) as enforcer:
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
        followed = len(api.followed)
        api.put(pod("another", "10.244.1.9"))
        await settle(80)
        assert len(api.followed) == followed


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
            api.client(), "node-1", backends, clock=self.clock, addresses_here=lambda: dict(self.held)
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
        assert site.allows()


STARTING = pod("starting", labels={"app": "starting"})
OTHER = "10.244.1.9"


def closing(app: str) -> networking_v1.NetworkPolicy:
    return policy("deny", podSelector={"matchLabels": {"app": app}}, policyTypes=["Ingress"])


async def test_a_pod_deleted_by_force_before_its_address_is_known_stays_closed() -> None:
    """Its address comes from the CNI plugins' result; until there is one, nobody's addresses are closed."""
    api = cluster(closing("starting"), STARTING)
    async with on_a_node(api, {WEB: "web", CLIENT: "client"}) as site:
        assert not site.allows(target=OTHER)
        api.remove(STARTING)
        await settle(80)
        await site.look()
        assert not site.allows(target=OTHER)
        site.held[OTHER] = "starting"
        await site.look()
        assert not site.allows(target=OTHER)
        assert site.allows(target="10.244.1.10"), "its own address is known now: others are open again"
        del site.held[OTHER]
        await site.look()
        assert site.allows(target=OTHER)


async def test_a_pod_that_never_got_an_address_is_forgotten_after_the_time_that_a_start_may_take() -> None:
    api = cluster(closing("starting"), STARTING)
    async with on_a_node(api, {WEB: "web", CLIENT: "client"}) as site:
        api.remove(STARTING)
        await site.look(START_TIMEOUT - 2 * CHECK_PERIOD)
        assert not site.allows(target=OTHER)
        await site.look(2 * CHECK_PERIOD)
        await site.look()
        assert site.allows(target=OTHER)


async def test_where_a_runtime_names_no_pods_an_address_of_nobody_keeps_a_pod_without_one() -> None:
    api = cluster(closing("starting"), STARTING)
    async with on_a_node(api, {WEB: "", CLIENT: "", OTHER: ""}) as site:
        api.remove(STARTING)
        await site.look(START_TIMEOUT + CHECK_PERIOD)
        await site.look()
        assert not site.allows(target=OTHER)
        del site.held[OTHER]
        await site.look()
        assert site.allows(target=OTHER)


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


async def test_a_finished_pod_without_an_address_closes_nothing() -> None:
    api = cluster(closing("starting"), STARTING)
    async with on_a_node(api, {}) as site:
        api.put(pod("starting", labels={"app": "starting"}, phase="Failed"))
        await settle(80)
        assert site.allows(target=OTHER)


async def test_many_pods_deleted_by_force_cost_one_job_a_look_and_close_all_unknown_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may create pods may delete them by force a hundred times a second."""
    api = cluster(closing("starting"))
    async with on_a_node(api, {WEB: "web", CLIENT: "client"}) as site:
        jobs: list[object] = []
        add = site.enforcer._queue.add

        def count(work: Callable[[], Iterator[None]]) -> None:
            jobs.append(work)
            add(work)

        for number in range(MAX_WITHOUT_ADDRESS + 50):
            each = pod(f"p{number}")
            api.put(each)
            await settle(3)
            api.remove(each)
            await settle(3)
        monkeypatch.setattr(site.enforcer._queue, "add", count)
        await site.look()
        assert len(jobs) <= 3
        assert not site.allows(target=OTHER)
        await site.look(START_TIMEOUT)
        await site.look()
        assert site.allows(target=OTHER)
