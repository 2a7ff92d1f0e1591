"""The search for devices yields to the event loop: steps in an iteration are limited, whatever a claim requests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control.cel import parser
from control.cel.program import Program
from control.event_loop import inline, offload
from control.registry.resource.selectors import validate_selectors
from control.scheduler.decisions import Failed, Placed
from control.scheduler.devices import requests, slice_device
from control.scheduler.devices.allocation import DeviceSearch
from control.scheduler.devices.slice_device import DEVICE_COST, SliceDevice
from kube.api import core_v1, resource_v1
from kube.step_limit import sampling
from kube.step_shares import Shares
from tests.support.cost import Lines
from tests.support.scheduling import Bench
from tests.unit.control.scheduler.clusters import node, pod
from tests.unit.control.scheduler.devices import DRIVER, Devices, claim, class_of, device, request, slice_of

NUMBER = f'device.attributes["{DRIVER}"].n'


def dear(number: int, verdict: str = "") -> str:
    """Return a selector that costs some 20 000 units, other than those of other numbers."""
    outer = ", ".join(str(i) for i in range(50))
    return f"[{outer}].all(x, [{outer}].all(y, x + y + {number} >= 0)) && {verdict or f'{NUMBER} >= 0'}"


class Rounds:
    """Work on the event loop in each of its iterations: devices checked, and cost of expressions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks, self.costs, self.evaluated = [0], [0], 0
        here, take, evaluate = threading.get_ident(), DeviceSearch._take, Program.evaluate

        def counted(search: DeviceSearch, *args: Any) -> Any:
            self.looks[-1] += threading.get_ident() == here
            return take(search, *args)

        def costed(program: Program, *args: Any) -> Any:
            left = inline.left()
            try:
                found = evaluate(program, *args)
            except inline.TooMuchHere:
                self.costs[-1] += left or 0
                raise
            self.evaluated += 1
            self.costs[-1] += found.cost if threading.get_ident() == here else 0
            return found

        monkeypatch.setattr(DeviceSearch, "_take", counted)
        monkeypatch.setattr(Program, "evaluate", costed)

    async def count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.looks.append(0)
            self.costs.append(0)

    def check(self) -> None:
        """Two slices may meet in a round: one of a decision, one of a search."""
        assert max(self.looks) <= 2 * inline.MOST // DEVICE_COST
        assert max(self.costs) <= 2 * inline.MOST + 100


class Running(Bench):
    """A scheduler that decides, and writes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[tuple[str, Placed | Failed]] = []

        async def carry_out(queued: Any, decision: Placed | Failed) -> None:
            self.decisions.append((queued.info.pod.metadata.name, decision))
            self.scheduler._slots.release()

        self.scheduler._carry_out = carry_out  # type: ignore[method-assign]

    async def decided(self, number: int) -> dict[str, Placed | Failed]:
        """Wait for so many decisions."""
        async with asyncio.timeout(60):
            while len(self.decisions) < number:
                await asyncio.sleep(0.001)
        return dict(self.decisions)


@contextlib.asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch, *objects: Any) -> AsyncIterator[tuple[Running, Rounds]]:
    bench, rounds = Running(), Rounds(monkeypatch)
    bench.put(node("worker-1"), class_of(), *objects)
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(rounds.count())
        scheduling = group.create_task(asyncio.wait_for(_all(bench), 120))
        try:
            yield bench, rounds
        finally:
            counting.cancel()
            scheduling.cancel()


async def _all(bench: Running) -> None:
    async with asyncio.TaskGroup() as group:
        await bench.scheduler._schedule_all(group)


def wanting(name: str, claim_name: str = "claim", **more: Any) -> core_v1.Pod:
    entry = core_v1.PodResourceClaim(name="c", resource_claim_name=claim_name)
    return pod(name, resource_claims=[entry], **more)


def many(number: int) -> resource_v1.ResourceSlice:
    return slice_of(*(device(f"d{i:03}", {"n": i, "group": f"g{i % 9}"}) for i in range(number)))


def with_selectors(*expressions: str, **more: Any) -> dict[str, Any]:
    wanted = request(**more)
    wanted["exactly"]["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return wanted


async def test_a_search_without_end_holds_up_neither_the_loop_nor_other_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [with_selectors(f"{NUMBER} >= 0", dear(0), name=f"r{number}", count=2) for number in range(16)]
    endless = claim(*requests, constraints=[{"matchAttribute": f"{DRIVER}/group"}])
    others = [pod(f"p{number}") for number in range(20)]
    async with running(monkeypatch, many(128), endless, wanting("endless"), *others) as (bench, rounds):
        found = await bench.decided(21)
        assert [name for name, _ in bench.decisions][-1] == "endless"
        failed = found["endless"]
        assert isinstance(failed, Failed) and failed.reason == "Unschedulable"
        assert failed.message.startswith("0/1 nodes are available: 1 timed out trying to allocate devices.")
        assert bench.scheduler.queue.lengths() == (0, 1, 0), "it is tried again after its back-off"
        assert sum(rounds.looks) > 10 * max(rounds.looks)
        rounds.check()


async def test_dear_selectors_are_evaluated_beside_the_loop_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = with_selectors(*(dear(number) for number in range(4)), count=20)
    claims = [claim(wanted, name="first"), claim(wanted, name="second")]
    async with running(monkeypatch, many(20), *claims, wanting("p", "first")) as (bench, rounds):
        assert await bench.decided(1) == {"p": Placed("worker-1")}
        assert rounds.evaluated == 80
        rounds.check()
        bench.scheduler._devices.unreserve(bench.scheduler.cluster.pod("default/p"))
        bench.put(wanting("q", "second"))
        assert (await bench.decided(2))["q"] == Placed("worker-1")
        assert rounds.evaluated == 80


async def test_long_selectors_are_compiled_beside_the_loop_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = list[int]()

    def parse(expression: str) -> Any:
        compiled.append(threading.get_ident())
        return parser.parse(expression)

    monkeypatch.setattr("control.cel.program.parse", parse)
    expression = " && ".join(f"{NUMBER} >= -{number}" for number in range(100))
    assert (
        await offload.evaluate("ann", 0, validate_selectors, [{"cel": {"expression": expression}}], "selectors") == []
    )
    assert len(compiled) == 1 and compiled[0] != threading.get_ident()


async def test_what_cannot_be_evaluated_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = claim(with_selectors(dear(0, f"{NUMBER} / 0 == 1")))
    async with running(monkeypatch, many(3), wanted, wanting("p"), wanting("q")) as (bench, rounds):
        for failed in (await bench.decided(2)).values():
            assert isinstance(failed, Failed) and "selector #0: CEL runtime error: division by zero" in failed.message
        assert sum(cost > 0 for cost in rounds.costs) <= 2
        rounds.check()


async def test_of_searches_that_find_the_same_device_one_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [claim(with_selectors(dear(number)), name=f"c{number}") for number in range(3)]
    pods = [wanting(f"p{number}", f"c{number}") for number in range(3)]
    async with running(monkeypatch, many(2), *claims, *pods) as (bench, _):
        found = (await bench.decided(3)).values()
        assert sum(isinstance(each, Placed) for each in found) == 2
        [failed] = [each for each in found if isinstance(each, Failed)]
        assert "1 cannot allocate all claims" in failed.message
        assert len(bench.scheduler._devices.allocated.in_use) == 2


async def test_a_pod_that_goes_while_its_devices_are_searched_is_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    going = wanting("going")
    async with running(monkeypatch, many(2), claim(with_selectors(dear(0))), going) as (bench, _):
        while bench.scheduler.queue.lengths()[0]:
            await asyncio.sleep(0)
        bench.remove(going)
        bench.put(pod("other"))
        await bench.decided(1)
        while bench.scheduler.queue._in_flight:
            await asyncio.sleep(0.001)
        assert [name for name, _ in bench.decisions] == ["other"]


async def test_more_pods_than_have_a_place_are_decided_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [claim(with_selectors(dear(number)), name=f"c{number}") for number in range(40)]
    pods = [wanting(f"p{number}", f"c{number}") for number in range(40)]
    async with running(monkeypatch, many(40), *claims, *pods) as (bench, rounds):
        assert all(isinstance(each, Placed) for each in (await bench.decided(40)).values())
        rounds.check()


def naming(name: str, *claims: str) -> core_v1.Pod:
    entries = [core_v1.PodResourceClaim(name=f"c{n}", resource_claim_name=one) for n, one in enumerate(claims)]
    return pod(name, resource_claims=entries)


def test_a_claim_that_a_pod_names_often_is_allocated_once() -> None:
    counts = []
    for entries in (10, 110):
        bench = Bench()
        constraints = [{"matchAttribute": f"{DRIVER}/group"}] * 32
        bench.put(node("worker-1"), class_of(), many(4), claim(request(), constraints=constraints))
        bench.put(naming("p", *["claim"] * entries))
        with Lines() as lines:
            decisions = bench.schedule()
        assert isinstance(decisions[0], Placed)
        assert len(bench.scheduler._devices.allocated.in_use) == 1
        counts.append(lines.count)
    assert (counts[1] - counts[0]) / 100 < 40, "lines for each entry"


async def test_many_claims_of_a_pod_are_prepared_and_searched_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/group"}] * 32
    names = [f"c{number}" for number in range(100)]
    claims = [claim(with_selectors(*[f"{NUMBER} >= 0"] * 8), name=name, constraints=constraints) for name in names]
    made: list[int] = []
    begin, step = requests.claim_to_allocate, [0]
    monkeypatch.setattr(
        "control.scheduler.devices.prepared_claims.claim_to_allocate",
        lambda *args: (made.append(step[0]), begin(*args))[1],
    )
    monkeypatch.setattr("control.event_loop.pacing.SLICE_SECONDS", 0.0)
    async with running(monkeypatch, many(128), *claims, naming("p", *names)) as (bench, rounds):

        async def count() -> None:
            while True:
                await asyncio.sleep(0)
                step[0] += 1

        counting = asyncio.create_task(count())
        decided = await bench.decided(1)
        counting.cancel()
        assert isinstance(decided["p"], Placed), decided
        rounds.check()
    assert len(made) == 100 + made.count(made[0]) and max(map(made.count, made)) <= 8


async def test_a_claim_that_cannot_be_prepared_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{number}" for number in range(30)]
    claims = [claim(with_selectors(*[f"{NUMBER} >= 0"] * 8), name=name) for name in names[:-1]]
    claims.append(claim(request(device_class="none"), name=names[-1]))
    async with running(monkeypatch, many(64), *claims, naming("p", *names)) as (bench, _):
        failed = (await bench.decided(1))["p"]
        assert isinstance(failed, Failed) and "device class none does not exist" in failed.message


def test_a_device_costs_no_comparison_with_each_toleration() -> None:
    counts = []
    tainted = [{"key": f"a{n}", "effect": "NoSchedule"} for n in range(16)]
    for number in (100, 200):
        tolerations = [{"key": f"b{n}", "operator": "Exists"} for n in range(number)]
        found = Devices(slice_of(*(device(f"d{n}", taints=tainted) for n in range(40))), class_of())
        wish = claim(request(tolerations=tolerations))
        with Lines() as lines:
            assert found.names(wish) is None
        counts.append(lines.count)
    assert counts[1] - counts[0] < 100 * 40


async def test_a_node_that_must_be_made_room_on_is_searched_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preemption asks plugins that were not asked before; what they cannot say fails the one pod."""
    weak = pod("weak", cpu="4", node_name="worker-1")
    strong = wanting("strong", cpu="4", priority=10)
    wanted = claim(with_selectors(f"{NUMBER} / 0 == 1"))
    async with running(monkeypatch, many(1), wanted, weak, strong) as (bench, _):
        failed = (await bench.decided(1))["strong"]
        assert isinstance(failed, Failed) and "division by zero" in failed.message


async def test_a_namespace_whose_selectors_were_stopped_delays_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some code takes longer than its charge says: on the event loop for a moment, and then in the thread only."""
    loop_thread, threads = threading.get_ident(), list[tuple[str, bool]]()
    seconds = dict.fromkeys(("greedy", "default"), 0.0)
    evaluated = SliceDevice._evaluated

    def burn(found: SliceDevice, selector: requests.Selector) -> Any:
        owner = "greedy" if "greedy" in selector.expression else "default"
        begin = time.thread_time()
        threads.append((owner, threading.get_ident() == loop_thread))
        try:
            while owner == "greedy" and time.thread_time() - begin < 0.35:
                pass
            return evaluated(found, selector)
        finally:
            seconds[owner] += time.thread_time() - begin if threading.get_ident() == loop_thread else 0

    monkeypatch.setattr(SliceDevice, "_evaluated", burn)
    monkeypatch.setattr(slice_device, "_SHARES", Shares("test", seconds=0.2, share=0.2, pause=600))
    greedy = [claim(with_selectors(f"'greedy{n}' != ''"), name=f"g{n}") for n in range(3)]
    for one in greedy:
        one.metadata.namespace = "greedy"
    own = [claim(with_selectors(f"'own{n}' != ''"), name=f"o{n}") for n in range(3)]
    pods = [wanting(f"pg{n}", f"g{n}", namespace="greedy") for n in range(3)]
    pods += [wanting(f"po{n}", f"o{n}") for n in range(3)]
    with sampling():
        async with running(monkeypatch, many(6), *greedy, *own, *pods) as (bench, _):
            found = await bench.decided(6)
    assert all(isinstance(found[f"po{n}"], Placed) for n in range(3))
    assert seconds["greedy"] < 0.5, "one evaluation, which was stopped"
    assert all(here for owner, here in threads if owner == "default")
    assert any(not here for owner, here in threads if owner == "greedy")
