from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.client import Client, Response
from kube.errors import StatusError
from kube.leases import Fenced, LeaderElector, hold
from tests.support.clock import FakeClock
from tests.unit.kube.fake_api import FakeAPI

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/boss"


class Candidate:
    def __init__(self, api: FakeAPI, clock: FakeClock, name: str) -> None:
        self.leading = False
        self.elector = LeaderElector(Client(api), "boss", name, clock=clock)
        self.task = asyncio.create_task(self.elector.run(self.lead))

    async def lead(self) -> None:
        self.leading = True
        try:
            await asyncio.Event().wait()
        finally:
            self.leading = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def spec(api: FakeAPI) -> dict[str, Any]:
    found: dict[str, Any] = api.objects[LEASE]["spec"]
    return found


async def test_one_leads_and_the_other_waits_until_the_lease_is_released() -> None:
    api, clock = FakeAPI(), FakeClock()
    first = Candidate(api, clock, "a")
    await clock.advance(1)
    second = Candidate(api, clock, "b")
    await clock.advance(60)
    assert (first.leading, second.leading) == (True, False)
    assert spec(api)["holderIdentity"] == "a"
    await first.stop()
    await clock.advance(5)
    assert second.leading
    assert spec(api)["leaseTransitions"] == 1
    await second.stop()


async def test_a_leader_that_cannot_renew_stops_within_10_s_and_before_another_takes_over() -> None:
    api, clock = FakeAPI(), FakeClock()
    first = Candidate(api, clock, "a")
    await clock.advance(5)
    api.away = True
    await clock.advance(13)
    assert not first.leading
    api.away = False
    await clock.advance(30)
    assert first.leading
    await first.stop()


async def test_a_dead_leaders_lease_is_taken_after_its_15_s() -> None:
    api, clock = FakeAPI(), FakeClock()
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    api.put(LEASE, {"metadata": {"name": "boss", "namespace": "kube-system"}, "spec": held})
    candidate = Candidate(api, clock, "b")
    await clock.advance(14)
    assert not candidate.leading
    await clock.advance(5)
    assert candidate.leading
    await candidate.stop()


class Silent(FakeAPI):
    """A server that takes requests and, once told so, never answers."""

    silent = False

    async def request(self, *arguments: Any, **named: Any) -> Response:
        if self.silent:
            await asyncio.Event().wait()
        return await super().request(*arguments, **named)


async def test_a_leader_whose_server_never_answers_stops_within_10_s_too() -> None:
    api, clock = Silent(), FakeClock()
    first = Candidate(api, clock, "a")
    await clock.advance(5)
    assert first.leading
    api.silent = True
    await clock.advance(13)
    assert not first.leading
    api.silent = False
    await first.stop()


async def test_a_leader_that_was_stopped_writes_nothing_when_it_wakes() -> None:
    api, clock = FakeAPI(), FakeClock()
    first = Candidate(api, clock, "a")
    await clock.advance(1)
    fenced = Fenced(api, first.elector)
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}'
    assert (await fenced.request("POST", "/api/v1/namespaces/default/configmaps", body=body)).status == 200
    # The process is stopped: time goes on, and none of its tasks runs.
    clock._elapsed += 11
    with pytest.raises(StatusError) as raised:
        await fenced.request("DELETE", "/api/v1/namespaces/default/configmaps/x")
    assert raised.value.code == 503
    assert (await fenced.request("GET", "/api/v1/namespaces/default/configmaps/x")).status == 200
    await clock.advance(5)
    assert (await fenced.request("DELETE", "/api/v1/namespaces/default/configmaps/x")).status == 200
    await first.stop()


async def test_a_leader_whose_machine_was_suspended_writes_nothing_when_it_wakes() -> None:
    api, clock = FakeAPI(), FakeClock()
    first = Candidate(api, clock, "a")
    await clock.advance(1)
    fenced = Fenced(api, first.elector)
    clock.suspend(3600)
    with pytest.raises(StatusError) as raised:
        await fenced.request("DELETE", "/api/v1/namespaces/default/configmaps/x")
    assert raised.value.code == 503
    await clock.advance(5)
    assert first.elector.in_time, "it took its lease again: nobody else had it"
    await first.stop()


async def test_a_candidate_that_was_suspended_gives_the_leader_the_lease_s_whole_time() -> None:
    api, clock = FakeAPI(), FakeClock()
    first, asleep = Candidate(api, clock, "a"), FakeClock()
    await clock.advance(1)
    second = Candidate(api, asleep, "b")
    await asleep.advance(1)
    asleep.suspend(3600)
    await asleep.advance(5)
    assert not second.leading
    await second.stop()
    await first.stop()


async def test_the_renewal_of_the_only_candidate_s_lease_outlasts_an_unforeseen_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, clock, failures = FakeAPI(), FakeClock(), [1]
    get = Client.get

    async def fails_once(self: Client, *arguments: Any) -> Any:
        if failures:
            failures.clear()
            raise ValueError("a bug")
        return await get(self, *arguments)

    monkeypatch.setattr(Client, "get", fails_once)
    task = asyncio.create_task(hold(Client(api), "boss", "b", asyncio.Event().wait, clock))  # type: ignore[arg-type]
    await clock.advance(30)
    assert spec(api)["holderIdentity"] == "b"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_only_candidate_takes_the_lease_of_its_dead_forerunner_at_once() -> None:
    api, clock, working = FakeAPI(), FakeClock(), asyncio.Event()
    dead = Candidate(api, clock, "a")
    await clock.advance(1)
    dead.elector._release = _nothing  # type: ignore[method-assign]  # it was killed
    await dead.stop()

    async def lead() -> None:
        working.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(hold(Client(api), "boss", "b", lead, clock))
    await clock.advance(0)
    assert working.is_set() and spec(api)["holderIdentity"] == "b"
    first = spec(api)["renewTime"]
    await clock.advance(10)
    assert spec(api)["renewTime"] > first
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert spec(api).get("holderIdentity", "") == ""


async def _nothing() -> None:
    """Stand in for a killed process."""
