from __future__ import annotations

import asyncio
from typing import Any

from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.event_queue import MAX_QUEUED, RETRY_SECONDS, TRIES
from kube.events import EventRecorder
from tests.support.clock import FakeClock
from tests.unit.kube.fake_api import FakeAPI

POD = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="web-1", namespace="shop", uid="u1", resource_version="7"))


def recorder(api: FakeAPI, clock: FakeClock) -> EventRecorder:
    return EventRecorder(Client(api), "kubelet", "node1", clock=clock)


async def test_an_event_names_its_object_source_and_time() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    events.event(POD, "Normal", "Started", "Started container web", field_path="spec.containers{web}")
    await events.flush()
    method, path, _, sent = api.requests[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/shop/events")
    assert sent["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "shop",
        "name": "web-1",
        "uid": "u1",
        "resourceVersion": "7",
        "fieldPath": "spec.containers{web}",
    }
    assert sent["source"] == {"component": "kubelet", "host": "node1"}
    assert sent["reportingComponent"] == "kubelet"
    assert (sent["firstTimestamp"], sent["count"], sent["type"]) == ("2026-01-01T00:00:00Z", 1, "Normal")
    assert sent["metadata"]["name"].startswith("web-1.")


async def test_the_same_event_again_is_counted_on_the_first() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    for _ in range(3):
        events.event(POD, "Warning", "BackOff", "Back-off restarting failed container")
        await events.flush()
        await clock.advance(10)
    assert [r[0] for r in api.requests] == ["POST", "PATCH", "PATCH"]
    (kept,) = api.objects.values()
    assert kept["count"] == 3
    assert kept["lastTimestamp"] == "2026-01-01T00:00:20Z"


async def test_an_event_that_has_expired_is_begun_anew() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    events.event(POD, "Normal", "Pulled", "m")
    await events.flush()
    api.objects.clear()
    events.event(POD, "Normal", "Pulled", "m")
    await events.flush()
    assert [r[0] for r in api.requests] == ["POST", "PATCH", "POST"]


async def test_many_similar_events_are_folded_into_one() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    for number in range(15):
        events.event(POD, "Warning", "Failed", f"attempt {number}")
    await events.flush()
    combined = [o for o in api.objects.values() if o["message"].startswith("(combined from similar events): ")]
    assert len(api.objects) == 10
    assert [o["count"] for o in combined] == [6]


async def test_a_flood_about_one_object_is_cut_off_at_25_and_let_through_again_slowly() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    for _ in range(100):
        events.event(POD, "Warning", "Unhealthy", "probe failed")
    await events.flush()
    (kept,) = api.objects.values()
    assert kept["count"] == 25
    await clock.advance(601)
    for _ in range(10):
        events.event(POD, "Warning", "Unhealthy", "probe failed")
    await events.flush()
    (kept,) = api.objects.values()
    assert kept["count"] == 27


async def test_several_workers_send_at_once_and_keep_the_order_for_each_object() -> None:
    """A thousand objects' events are queued before anything is sent, and none of them is lost."""
    api, clock = FakeAPI(), FakeClock()
    events = EventRecorder(Client(api), "default-scheduler", clock=clock, workers=16)
    pods = [
        core_v1.Pod(metadata=meta_v1.ObjectMeta(name=f"p{number}", namespace="shop", uid=f"u{number}"))
        for number in range(2000)
    ]
    for reason in ("First", "Second"):
        for pod in pods:
            events.event(pod, "Normal", reason, "m")
    task = asyncio.create_task(events.run())
    while len(api.requests) < 4000:
        await asyncio.sleep(0)
    task.cancel()
    seen: dict[str, list[str]] = {}
    for _, _, _, sent in api.requests:
        seen.setdefault(sent["involvedObject"]["name"], []).append(sent["reason"])
    assert len(seen) == 2000 and set(map(tuple, seen.values())) == {("First", "Second")}


async def test_a_message_that_is_no_unicode_is_sent_readable_and_counted_as_the_same() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    for _ in range(2):
        events.event(POD, "Warning", "Unhealthy", "redirected to /\udcff\ud800")
        await events.flush()
    (kept,) = api.objects.values()
    assert (kept["message"], kept["count"]) == ("redirected to /\ufffd\ufffd", 2)


async def test_an_event_that_cannot_be_sent_is_dropped_and_the_next_is_sent() -> None:
    class Failing(FakeAPI):
        async def request(self, *given: Any, **options: Any) -> Any:
            if b"unsendable" in options["body"]:
                raise ValueError("unforeseen")
            answer = await super().request(*given, **options)
            sent.set()
            return answer

    sent, api, clock = asyncio.Event(), Failing(), FakeClock()
    events = recorder(api, clock)
    running = asyncio.create_task(events.run())
    events.event(POD, "Normal", "Pulled", "unsendable")
    events.event(POD, "Normal", "Pulled", "a good one")
    try:
        async with asyncio.timeout(10):
            await sent.wait()
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [kept["message"] for kept in api.objects.values()] == ["a good one"]


class Refusing(FakeAPI):
    """An API that refuses writes of a namespace as one that has reached its limit."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.full: str | None = namespace
        self.tries = 0

    async def request(self, method: str, path: str, **options: Any) -> Any:
        if f"/namespaces/{self.full}/" in path:
            self.tries += 1
            raise StatusError(429, "TooManyRequests", "limit reached on type Namespace")
        return await super().request(method, path, **options)

    def reported(self, namespace: str) -> list[str]:
        return [o["message"] for o in self.objects.values() if o["involvedObject"]["namespace"] == namespace]


def _pod(namespace: str, name: str) -> core_v1.Pod:
    return core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}-{name}"))


async def test_refused_events_hold_up_their_own_namespace_alone_and_keep_their_order() -> None:
    api, clock = Refusing("full"), FakeClock()
    events = recorder(api, clock)
    running = asyncio.create_task(events.run())
    for number in range(5):
        events.event(_pod("full", f"p{number}"), "Warning", "BackOff", f"m{number}")
    events.event(_pod("quiet", "victim"), "Normal", "Started", "at once")
    await clock.advance(0)
    assert (api.reported("quiet"), api.tries) == (["at once"], 1)
    await clock.advance(2 * RETRY_SECONDS)
    events.event(_pod("quiet", "victim"), "Normal", "Killing", "later")
    await clock.advance(0)
    assert (api.reported("quiet"), api.tries) == (["at once", "later"], 3)
    api.full = None
    await clock.advance(RETRY_SECONDS)
    assert api.reported("full") == [f"m{number}" for number in range(5)]
    running.cancel()


async def test_an_event_is_dropped_after_its_tries() -> None:
    api, clock = Refusing("full"), FakeClock()
    events = recorder(api, clock)
    running = asyncio.create_task(events.run())
    events.event(_pod("full", "p"), "Normal", "Pulled", "m")
    await clock.advance(2 * TRIES * RETRY_SECONDS)
    assert api.tries == TRIES
    assert events._queues[0].take() is None and not events._queues[0]._namespaces
    running.cancel()


async def test_where_too_many_events_wait_those_of_the_namespace_that_has_most_are_dropped() -> None:
    api, clock = FakeAPI(), FakeClock()
    events = recorder(api, clock)
    events.event(_pod("quiet", "victim"), "Normal", "Started", "first")
    for number in range(2 * MAX_QUEUED):
        events.event(_pod("loud", f"p{number}"), "Normal", "Started", f"m{number}")
    await events.flush()
    sent = [request[3]["message"] for request in api.requests]
    assert len(sent) == MAX_QUEUED and "first" in sent[:2]
    assert sent[-1] == f"m{2 * MAX_QUEUED - 1}"


async def test_flushing_tries_what_is_refused_once() -> None:
    api, clock = Refusing("full"), FakeClock()
    events = recorder(api, clock)
    for namespace in ("full", "quiet"):
        for number in range(3):
            events.event(_pod(namespace, f"p{number}"), "Normal", "Started", f"m{number}")
    await events.flush()
    assert (len(api.reported("quiet")), api.tries) == (3, 1)
