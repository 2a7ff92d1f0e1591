"""Waiting pods with large affinity: memory for them is limited, and events are processed for them in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.scheduler import hints, prepared_pods, queue, sliced_work
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from control.scheduler.sliced_work import SlicedWork
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock
from tests.support.cost import Lines
from tests.support.scheduling import Bench

from .clusters import HOST, affinity, near, node, pod
from .devices import claim

FIT, NEAR = frozenset({"NodeResourcesFit"}), frozenset({"InterPodAffinity"})


def lonely(name: str, terms: int) -> core_v1.Pod:
    """Return a pod that wants to be near one that no pod is."""
    found = [near({f"l{n}": "z"}, key=HOST) for n in range(terms - 1)] + [near({"never": name}, key=HOST)]
    return pod(name, affinity=affinity(found))


async def failed(waiting: SchedulingQueue, count: int, *, plugins: frozenset[str] = FIT, prefix: str = "p") -> None:
    for number in range(count):
        waiting.add(PodInfo(pod(f"{prefix}{number:04}")))
        waiting.failed(await waiting.get(), plugins)


# -- memory ---------------------------------------------------------------------------------------------------------
def test_what_is_computed_for_waiting_pods_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.put(node("n1"))
    pods = [lonely(f"w{number}", 40) for number in range(6)]
    size = PodInfo(pods[0]).size * prepared_pods.COMPILED
    monkeypatch.setattr(prepared_pods, "MOST_BYTES", int(3.5 * size))
    bench.put(*pods)
    bench.schedule()
    waiting = bench.scheduler.queue._unschedulable.values()
    assert [("terms" in one.info.__dict__, one.info.forgotten) for one in waiting] == [(False, True)] * 3 + [
        (True, False)
    ] * 3
    assert bench.scheduler.queue.prepared.bytes <= 3.5 * size
    for one in pods:
        bench.remove(one)
    assert bench.scheduler.queue.prepared.bytes == 0


async def test_a_pod_whose_results_were_dropped_is_tried_again_and_may_be_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepared_pods, "MOST_BYTES", 0)
    bench = Bench()
    bench.put(node("n1"), lonely("w", 40))
    bench.schedule()
    friend = pod("friend", labels={"never": "w", **{f"l{n}": "z" for n in range(40)}}, node_name="n1")
    bench.put(friend)
    await bench.clock.advance(2)
    queued = await bench.scheduler.queue.get()
    assert not queued.info.forgotten and type(bench.scheduler._cycle.decide(queued)).__name__ == "Placed"


def test_hints_compute_nothing_for_a_pod_whose_results_were_dropped() -> None:
    waiting = PodInfo(lonely("w", 40))
    waiting.forget()
    helps = hints.of_node(NodeInfo(node("n")))
    assert all(helps(plugin, waiting) for plugin in ("NodeResourcesFit", "NodeAffinity", "TaintToleration"))
    assert hints.of_departure(PodInfo(pod("g")), None)("NodePorts", waiting)
    assert not hints.of_arrival(PodInfo(pod("new")), lambda name: {})("InterPodAffinity", waiting)
    assert not {"terms", "selection", "tolerations", "ports"} & waiting.__dict__.keys()


# -- affinity that is compared in part --------------------------------------------------------------------------------
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
EXPRESSION = st.builds(
    lambda key, operator, values: meta_v1.LabelSelectorRequirement(
        key=key, operator=operator, values=values if operator in ("In", "NotIn") else []
    ),
    st.sampled_from("abc"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=3),
)
SELECTOR = st.none() | st.builds(
    lambda labels, expressions: meta_v1.LabelSelector(match_labels=labels, match_expressions=expressions),
    LABELS,
    st.lists(EXPRESSION, max_size=3),
)
TERM = st.builds(
    lambda selector, by_label, names: core_v1.PodAffinityTerm(
        label_selector=selector, namespace_selector=by_label, namespaces=names, topology_key=HOST
    ),
    SELECTOR,
    SELECTOR,
    st.lists(st.sampled_from(["default", "team", "other"]), max_size=2),
)


@given(st.lists(TERM, min_size=1, max_size=7), LABELS, LABELS, st.sampled_from(["default", "team"]))
def test_a_part_of_the_terms_never_excludes_what_all_of_them_match(terms, of_pod, of_namespace, namespace) -> None:
    waiting = PodInfo(pod("w", affinity=affinity(terms)))
    all_match = waiting.terms.required_affinity.all_match(namespace, of_pod, lambda name: of_namespace)
    may_match = waiting.affinity_sample.may_match(namespace, of_pod, lambda name: of_namespace)
    assert may_match or not all_match
    assert may_match == all_match or len(terms) > 4


def test_long_selectors_are_compared_in_part() -> None:
    term = near({f"k{n:04}": "x" for n in range(1000)}, key=HOST)
    term.label_selector.match_expressions = [
        meta_v1.LabelSelectorRequirement(key="e", operator="In", values=[str(n) for n in range(1000)])
    ]
    term.namespaces = [f"n{number}" for number in range(100)]
    sample = PodInfo(pod("w", affinity=affinity([term]))).affinity_sample
    assert sample is not None
    first = {f"k{n:04}": "x" for n in range(1000)}
    assert sample.may_match("n99", first, lambda name: {})
    assert not sample.may_match("n99", {}, lambda name: {})
    assert sum(len(one.selector.requirements) for one in sample._terms) == 8


# -- events in slices -------------------------------------------------------------------------------------------------
async def test_pieces_of_work_are_done_in_their_order_and_the_first_part_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sliced_work, "AT_ONCE", 3)
    done: list[str] = []

    def piece(name: str, steps: int) -> Iterator[None]:
        for number in range(steps):
            done.append(f"{name}{number}")
            yield

    work = SlicedWork()
    work.add(piece("a", 2))
    assert done == ["a0", "a1"] and not len(work)
    work.add(piece("b", 5))
    work.add(piece("c", 1))
    assert done[2:] == ["b0", "b1", "b2"] and len(work) == 2
    task = asyncio.create_task(work.run())
    while len(work):
        await asyncio.sleep(0)
    task.cancel()
    assert done[2:] == ["b0", "b1", "b2", "b3", "b4", "c0"]


async def test_a_slice_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    monkeypatch.setattr(sliced_work, "now", lambda: next(times) * 0.003)
    iteration, steps = 0, []

    def piece() -> Iterator[None]:
        for _ in range(20):
            steps.append(iteration)
            yield

    work = SlicedWork()
    work.add(piece())
    assert len(steps) == 2
    iteration = 1
    task = asyncio.create_task(work.run())
    while len(work):
        await asyncio.sleep(0)
        iteration += 1
    task.cancel()
    assert len(steps) == 20 and max(map(steps.count, steps)) == 2


async def test_an_event_reaches_many_waiting_pods_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_work, "AT_ONCE", 10)
    clock = FakeClock()
    waiting = SchedulingQueue(clock)
    await failed(waiting, 50)
    await clock.advance(20)
    compared: list[str] = []

    def hint(plugin: str, info: PodInfo) -> bool:
        compared.append(info.key)
        return True

    waiting.event(FIT, hint)
    assert len(compared) == 10 and waiting.lengths()[2] == 40
    waiting.remove("default/p0040")
    task = asyncio.create_task(waiting.run())
    while waiting.lengths()[2]:
        await asyncio.sleep(0)
    task.cancel()
    assert len(compared) == 49 and compared == sorted(compared)


async def test_events_that_come_faster_than_they_are_processed_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_work, "AT_ONCE", 1)
    monkeypatch.setattr(queue, "MOST_EVENTS", 4)
    clock = FakeClock()
    waiting = SchedulingQueue(clock)
    await failed(waiting, 10)
    await failed(waiting, 12, plugins=NEAR, prefix="q")
    await clock.advance(20)
    for _ in range(8):
        waiting.event(FIT, lambda plugin, info: False)
    waiting.event(NEAR, lambda plugin, info: False)
    assert len(waiting.handlers_work) == 4 and waiting.lengths()[2] == 22
    task = asyncio.create_task(waiting.run())
    while len(waiting.handlers_work):
        await asyncio.sleep(0)
    task.cancel()
    assert waiting.lengths() == (22, 0, 0), "tried, since hints are not kept"


def test_the_arrival_of_a_pod_costs_no_comparison_with_each_term_of_those_that_wait() -> None:
    counts = []
    for terms in (20, 400):
        bench = Bench()
        bench.put(node("n1"))
        bench.put(*(lonely(f"w{number}", terms) for number in range(10)))
        bench.schedule()
        bench.scheduler.cluster._indexes.forget()
        new = pod("new", labels={f"l{n}": "z" for n in range(terms)}, node_name="n1")
        with Lines() as lines:
            bench.put(new)
        counts.append(lines.count)
    assert (counts[1] - counts[0]) / 380 < 5, counts


def test_held_pods_are_checked_in_slices_if_a_claim_changes() -> None:
    bench = Bench()
    entries = [core_v1.PodResourceClaim(name=f"c{n}", resource_claim_name="claim") for n in range(500)]
    bench.put(node("n1"), *(pod(f"p{n}", resource_claims=entries) for n in range(600)))
    handlers = bench.scheduler._event_handlers
    assert len(handlers._deferred) == 600
    bench.put(claim())
    assert len(bench.scheduler.queue.handlers_work) == 1 and 0 < len(handlers._deferred) < 600
    for number in range(5):
        bench.put(claim(name=f"other{number}"))
    assert len(bench.scheduler.queue.handlers_work) == 2, "once more for all of them"
