"""Changes of policies wait in lanes of their namespaces: those of one delay neither others' nor addresses of others' pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kube.api import networking_v1
from kube.clock import settle
from netproxy.pod_addresses import Given
from netproxy.policy import policy_loader, table_writer
from netproxy.policy.work_queue import WorkQueue
from tests.support.policies import policy
from tests.unit.netproxy.test_enforcer import WEB, Site, closing, cluster, on_a_node


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue]:
    made = WorkQueue()
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def recorder(done: list[str]) -> Callable[[str], Callable[[], Iterator[None]]]:
    def job(name: str) -> Callable[[], Iterator[None]]:
        def run() -> Iterator[None]:
            done.append(name)
            yield

        return run

    return job


async def test_lanes_have_turns(queue: WorkQueue) -> None:
    done: list[str] = []
    job = recorder(done)
    for number in range(4):
        queue.add(job(f"evil {number}"), "evil")
    for number in range(2):
        queue.add(job(f"pod {number}"))
    queue.add(job("shop"), "shop")
    await queue.join()
    assert done == ["evil 0", "pod 0", "shop", "evil 1", "pod 1", "evil 2", "evil 3"]
    assert not queue.busy and queue.lanes() == []


async def test_a_job_runs_after_those_that_wait_in_the_lanes_that_it_names(queue: WorkQueue) -> None:
    done: list[str] = []
    job = recorder(done)
    for number in range(3):
        queue.add(job(f"evil {number}"), "evil")
        queue.add(job(f"shop {number}"), "shop")
    queue.add(job("address"), after=("shop", "none"))
    await queue.join()
    assert done == ["evil 0", "shop 0", "shop 1", "shop 2", "address", "evil 1", "evil 2"]


async def test_a_job_that_fails_ends_neither_its_lane_nor_the_queue(queue: WorkQueue) -> None:
    done: list[str] = []

    def fails() -> Iterator[None]:
        yield
        raise ValueError("wrong")

    for lane in ("", "shop"):
        queue.add(fails, lane)
        queue.add(recorder(done)("next"), lane)
    await asyncio.wait_for(queue.join(), 1)
    assert done == ["next", "next"]
    queue.add(recorder(done)("later"))
    await asyncio.wait_for(queue.join(), 1)
    assert done[-1] == "later"


def block(site: Site, lane: str = "") -> asyncio.Event:
    """Keep the queue busy until an event is set."""
    going = asyncio.Event()

    def wait() -> Iterator[None]:
        while not going.is_set():
            yield

    site.enforcer._queue.add(wait, lane)
    return going


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The policies that are read, in order."""
    found, read = list[str](), policy_loader.read

    def recording(policy_: networking_v1.NetworkPolicy) -> Any:
        found.append(f"{policy_.metadata.namespace}/{policy_.metadata.name}")
        return read(policy_)

    monkeypatch.setattr(policy_loader, "read", recording)
    return found


def of_port(number: int) -> networking_v1.NetworkPolicy:
    return policy("mine", ingress=[{"ports": [{"port": number}]}])


async def test_of_a_policy_that_changes_while_it_waits_only_the_last_state_is_read(read: list[str]) -> None:
    api = cluster(closing("other"), of_port(1))
    async with on_a_node(api, {}) as site:
        read.clear()
        going = block(site)
        await settle(80)
        for number in range(2, 20):
            api.put(of_port(number))
            await settle(20)
        going.set()
        await settle(80)
        assert read == ["default/mine"]
        assert site.enforcer._table.policies["default/mine"].rules["ingress"][0].ports[0].number == 19
        for states in ((None, of_port(19)), (of_port(7), None)):
            going = block(site)
            await settle(80)
            for state in states:
                api.remove(of_port(1)) if state is None else api.put(state)
                await settle(20)
            going.set()
            await settle(80)
            assert ("default/mine" in site.enforcer._table.policies) == (states[-1] is not None)


async def test_policies_of_another_namespace_do_not_delay_an_address_and_its_own_are_in_force_before(
    read: list[str],
) -> None:
    api = cluster(closing("other"))
    async with on_a_node(api, {}) as site:
        read.clear()
        going = block(site, "evil")
        await settle(80)
        for number in range(30):
            api.put(policy(f"p{number}", "evil"))
        for number in range(3):
            api.put(policy(f"p{number}", podSelector={"matchLabels": {"app": "web"}}))
        await settle(80)
        setting = asyncio.create_task(site.enforcer.set_given_addresses({"web": Given("default/web", (WEB,))}))
        await settle(1)
        stored, store = list[str](), site.enforcer._addresses.set_given

        def recording(given: Any) -> Any:
            stored.extend(read)
            return store(given)

        site.enforcer._addresses.set_given = recording  # type: ignore[method-assign]
        going.set()
        await setting
        assert [each for each in stored if each.startswith("default/")] == ["default/p0", "default/p1", "default/p2"]
        assert len(stored) <= 3 + 3


async def test_an_address_is_not_handed_over_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is for kernels that refuse a write, not for a queue that is long."""
    monkeypatch.setattr(table_writer, "MAX_WAIT", 0.01)
    async with on_a_node(cluster(closing("other")), {}) as site:
        going = block(site)
        setting = asyncio.create_task(site.enforcer.set_given_addresses({}, [WEB]))
        await asyncio.sleep(0.1)
        assert not setting.done() and site.allows()
        going.set()
        await asyncio.wait_for(setting, 5)
        await settle(80)
        assert not site.allows()
