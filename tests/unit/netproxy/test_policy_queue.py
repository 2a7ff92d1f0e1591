"""Changes of policies wait in lanes of their namespaces: those of one delay neither others' nor addresses of others' pods."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kube.api import networking_v1
from netproxy.pod_addresses import Given
from netproxy.policy import enforcer, policy_loader, table_writer
from netproxy.policy.address_changes import AddressChange, AddressChanges
from netproxy.policy.work_queue import WorkQueue
from tests.support.clock import settle
from tests.support.policies import pod, policy
from tests.unit.netproxy.test_enforcer import OTHER, WEB, Site, closing, cluster, on_a_node


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue]:
    made = WorkQueue(timer=itertools.count().__next__)  # a slice takes 1
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
    await settle(5)
    assert not queue.busy and queue.lanes() == []


async def test_a_lane_of_long_jobs_gets_no_more_time_than_others(queue: WorkQueue) -> None:
    done: list[str] = []

    def long(number: int) -> Callable[[], Iterator[None]]:
        def run() -> Iterator[None]:
            done.append(f"evil {number}")
            yield from itertools.repeat(None, 50)

        return run

    for number in range(3):
        queue.add(long(number), "evil")
    for _ in range(60):
        queue.add(recorder(done)("pod"), "shop")
    await queue.join()
    assert [done.index(f"evil {number}") for number in range(3)] == [0, 27, 53]  # a pod's job takes two slices


def updates(queue: WorkQueue, done: list[str]) -> Callable[[], Iterator[None]]:
    """A job that adds itself again, as updates of a policy that never end."""

    def run() -> Iterator[None]:
        done.append("evil")
        assert len(done) < 200
        queue.add(run, "evil")
        yield

    return run


async def test_a_lane_that_is_never_empty_delays_no_wait(queue: WorkQueue) -> None:
    done: list[str] = []
    for _ in range(3):
        queue.add(updates(queue, done), "evil")
    await settle(10)
    before = len(done)
    queue.add(recorder(done)("address"), after=("evil",))
    await queue.join()
    assert done.count("address") == 1
    assert done.index("address") - before <= 3 + 1, "only those that waited, and the one that ran, go before"
    await asyncio.wait_for(queue.join(), 5)


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
        site.enforcer._queue._timer = itertools.count().__next__
        read.clear()
        going = block(site, "evil")
        await settle(80)
        for number in range(30):
            api.put(policy(f"p{number}", "evil"))
        for number in range(3):
            api.put(policy(f"p{number}", podSelector={"matchLabels": {"app": "web"}}))
        await settle(80)
        stored, store = dict[str, list[str]](), site.enforcer._addresses.set_given

        def recording(given: Any) -> Any:
            stored.update({uid: list(read) for uid in given if uid not in stored})
            return store(given)

        site.enforcer._addresses.set_given = recording  # type: ignore[method-assign]
        given = {"web": Given("default/web", (WEB,)), "new": Given("shop/new", ("10.244.1.8",))}
        setting = asyncio.create_task(site.enforcer.set_given_addresses(given))
        await settle(1)
        going.set()
        await setting
        await settle(80)
        assert [each for each in stored["web"] if each.startswith("default/")] == [
            "default/p0",
            "default/p1",
            "default/p2",
        ]
        assert len(stored["web"]) < 3 + 30
        assert len(stored["new"]) <= 2, "it waits for no more than one policy of each other namespace"


async def test_policies_that_are_updated_all_the_time_delay_no_pod_and_no_start(read: list[str]) -> None:
    """Each policy that is read is changed again."""
    api = cluster(closing("other"), policy("p", "evil"))
    versions = itertools.count(1)

    def update() -> Iterator[None]:
        assert next(versions) < 300
        api.put(policy("p", "evil", ingress=[{"ports": [{"port": next(versions)}]}]))
        site.enforcer._queue.add(update, "evil")
        yield

    async with on_a_node(api, {}) as site:
        site.enforcer._queue._timer = itertools.count().__next__
        site.enforcer._queue.add(update, "evil")
        await settle(80)
        addresses = {"web": Given("default/web", (WEB,)), "mine": Given("evil/mine", ("10.244.1.8",))}
        await site.enforcer.set_given_addresses(addresses, [OTHER])
        api.put(pod("late", "10.245.0.1", node="node-2"))
        await settle(10)
        assert "default/late" in site.enforcer._table.known.pods
        await asyncio.wait_for(site.enforcer._queue.join(), 5)


async def test_an_address_is_not_handed_over_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the kernel refuses has another limit than changes that take long: nothing is closed without them."""
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


async def test_who_closes_addresses_hears_that_they_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforcer, "MAX_STORE", 0.01)
    async with on_a_node(cluster(closing("other")), {}) as site:
        going = block(site)
        await settle(1)
        with pytest.raises(OSError, match="cannot store"):
            await site.enforcer.set_given_addresses({}, [WEB])
        going.set()
        await site.enforcer.set_given_addresses({}, [WEB])
        await settle(80)
        assert not site.allows()


def test_an_address_that_is_closed_again_is_not_opened_by_an_earlier_change() -> None:
    changes = AddressChanges()
    evil, shop = Given("evil/a", ("10.0.0.1",)), Given("shop/b", ("10.0.0.2",))
    assert changes.report({"a": evil, "b": shop}, ["10.0.0.1"], ["10.0.0.1", "10.0.0.9"]) == {"evil", "shop"}
    taken = changes.taken()
    assert (taken.given, set(taken.closed), set(taken.opened)) == ({}, {"10.0.0.1"}, {"10.0.0.9"})
    assert changes.given("shop").given == {"b": shop}
    assert changes.report({"b": Given("shop/b", ("10.0.0.1",))}, ["10.0.0.1", "10.0.0.2"], ()) >= {"shop"}
    assert changes.taken().given == {"b": Given("shop/b", ())}
    assert changes.given("evil") == AddressChange({"b": Given("shop/b", ())}, (), set())
    assert changes.given("shop").given == {"b": Given("shop/b", ("10.0.0.1",))}
