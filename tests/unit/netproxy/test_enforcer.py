"""When the enforcer follows what, and that no node waits for policies that nobody can show it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kube.clock import FakeClock, settle
from netproxy.nftables.writer import RecordingWriter
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.objects import SlimMeta, SlimNamespace
from netproxy.policy.remaining_pods import PERIOD
from netproxy.policy.sync import PolicyBackend
from tests.support.memory_api import MemoryAPI
from tests.support.policies import PolicyTracer, pod, policy

WEB, CLIENT = "10.244.1.2", "10.244.1.3"


class WatchingAPI(MemoryAPI):
    """Remembers what is followed."""

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


async def test_a_pod_deleted_by_force_stays_under_its_policies_while_its_network_exists() -> None:
    api, writer, clock, held = cluster(policy("deny")), RecordingWriter(), FakeClock(), {WEB}
    backends = [PolicyBackend(writer, 4, clock=clock)]
    enforcer = PolicyEnforcer(api.client(), "node-1", backends, clock=clock, addresses_here=lambda: held)
    task = asyncio.create_task(enforcer.run())

    async def look() -> None:
        await clock.advance(PERIOD)
        for _ in range(5):
            await asyncio.sleep(0.01)  # the results are read in a thread
            await settle(80)

    def allowed() -> bool:
        return PolicyTracer(writer.contents).allows(CLIENT, WEB, 80)

    try:
        await enforcer.started.wait()
        await settle(80)
        assert not allowed()
        api.remove(pod("web", WEB))
        await settle(80)
        assert not allowed()
        await look()
        assert not allowed()
        held.clear()
        for _ in range(100):
            if not allowed():
                await look()
        assert allowed()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
