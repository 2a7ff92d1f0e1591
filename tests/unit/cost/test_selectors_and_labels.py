"""A selector of tens of thousands of terms and an object of as many labels: both are one user's choice.

Each controller that compares selectors with objects is run on a server in memory with a large selector, and with objects whose
labels are all named by it. What is compared between two suspensions of the event loop is counted by the comparison's own
cost; and no large selector is compiled on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from control.controllers import replicaset, selector_index
from control.controllers.context import Context
from control.controllers.selector_index import MOST_LATER, CompiledSelectorIndex
from control.controllers.step_counter import STEPS_PER_ITERATION, StepCounter, selects
from kube.api import apps_v1, core_v1, meta_v1
from kube.label_rules import Rules
from kube.selectors import from_label_selector, parse_labels
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI
from tests.unit.control.controllers.test_orphans import CASES

TERMS, OBJECTS = 16_000, 3
MOST_STEPS = 2 * STEPS_PER_ITERATION
"""Maximum of comparisons between two suspensions."""
LABELS = {f"k{number}": "" for number in range(TERMS)}


def labels(number: int) -> dict[str, str]:
    """Return labels that are all named, the last of them so that it does not fit."""
    return {**LABELS, f"k{TERMS - 1 - number}": "z"}


def large_selector(kind: Any, operator: str = "NotIn") -> Any:
    if kind is core_v1.ReplicationController:
        return dict(LABELS)
    values = ["z"] if operator == "NotIn" else []
    terms = [meta_v1.LabelSelectorRequirement(key=key, operator=operator, values=values) for key in LABELS]
    return meta_v1.LabelSelector(match_expressions=terms)


def large(kind: Any, name: str = "large") -> Any:
    found = kind(metadata=meta_v1.ObjectMeta(name=name, namespace="here", uid=f"uid-{name}"))
    found.spec.selector = large_selector(kind)
    return found


class Compared:
    """Steps of comparisons, and what is compiled, between two suspensions of the event loop."""

    def __init__(self) -> None:
        self.total = self.steps = self.most = 0
        self.here = 0
        """Large selectors that were joined on the event loop's thread."""
        self._thread = threading.get_ident()

    def count(self, steps: int) -> None:
        self.total += steps
        self.steps += steps
        self.most = max(self.most, self.steps)

    def suspended(self) -> None:
        self.steps = 0

    def joined(self, number: int) -> None:
        if threading.get_ident() == self._thread and number > selector_index.LARGE:
            self.here += 1


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compared]:
    found = Compared()
    match, parts, made = Rules.match, Rules.parts, Rules.__init__

    def counted(rules: Rules, obj: Mapping[str, str]) -> bool:
        found.count(rules.cost(obj))
        return match(rules, obj)

    def in_parts(rules: Rules, obj: Mapping[str, str], steps: int) -> Iterator[bool]:
        for part in parts(rules, obj, steps):
            found.count(steps)
            yield part

    def make(rules: Rules, requirements: Any) -> None:
        each = list(requirements)
        found.joined(len(each))
        made(rules, each)

    monkeypatch.setattr(Rules, "match", counted)
    monkeypatch.setattr(Rules, "parts", in_parts)
    monkeypatch.setattr(Rules, "__init__", make)
    run = asyncio.events.Handle._run

    def handle(self: asyncio.Handle) -> None:
        found.suspended()
        run(self)

    monkeypatch.setattr(asyncio.events.Handle, "_run", handle)
    yield found


async def until(done: Any) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.005)


def replication(context: Context) -> replicaset.ReplicaSetController:
    return replicaset.ReplicaSetController(context, core_v1.ReplicationController)


EVERY_KIND = [*CASES, (replication, core_v1.ReplicationController, core_v1.Pod)]


@pytest.mark.parametrize(("make", "kind", "orphan"), EVERY_KIND, ids=[case[1].__name__ for case in EVERY_KIND])
async def test_a_large_selector_and_many_large_labels_are_compared_in_turns(
    make: Any, kind: Any, orphan: Any, compared: Compared
) -> None:
    api, clock = LaggingAPI(), FakeClock()
    api.put(large(kind))
    context = Context(api.client(), clock)
    controller = make(context)
    looked_at: list[str] = []
    reconcile = controller.controller._reconcile

    async def counted(key: str) -> Any:
        try:
            return await reconcile(key)
        finally:
            looked_at.append(key)

    controller.controller._reconcile = counted
    tasks = [asyncio.create_task(context.informers.run())]
    await context.informers.wait_synced()
    tasks.append(asyncio.create_task(controller.run()))
    try:
        await until(lambda: looked_at)
        for number in range(OBJECTS):
            api.put(orphan(metadata=meta_v1.ObjectMeta(name=f"o{number}", namespace="here", labels=labels(number))))
        # At least: a StatefulSet creates pods of its own.
        await until(lambda: len(context.informers.of(orphan).list()) >= OBJECTS)
        await asyncio.sleep(0.1)
        # Something of the object itself changes: what it may select is gone through.
        seen = len(looked_at)
        changed = large(kind)
        changed.metadata.generation = 2
        api.put(changed)
        await until(lambda: len(looked_at) > seen)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert compared.total >= TERMS // 4, "nothing was compared"
    assert compared.most <= MOST_STEPS
    assert compared.here == 0


async def test_an_orphan_reaches_a_large_selector_that_selects_it_later_and_no_other(compared: Compared) -> None:
    context = Context(LaggingAPI().client(), FakeClock())
    informer = context.informers.of(apps_v1.DaemonSet)
    known = CompiledSelectorIndex(informer)
    for name in ("large", "other"):
        informer._set(f"here/{name}", large(apps_v1.DaemonSet, name))
        assert not await selects(await known.of(informer.get(f"here/{name}")), labels(0), StepCounter())
    told: list[str] = []
    for _ in range(3):
        known.each("here", labels(0), told.append)
    known.each("here", LABELS, told.append)
    assert told == [] and compared.most <= MOST_STEPS
    await until(lambda: told == ["here/large", "here/other"])
    assert await known.matching("here", LABELS) == ["here/large", "here/other"]
    assert await known.matching("here", labels(1)) == []
    for _ in range(MOST_LATER + 1):
        known.each("here", labels(0), told.append)
    assert told[2:] == ["here/large", "here/other"], "too many wait: whoever may select has another look"


async def test_who_is_not_compiled_yet_has_another_look_and_keeps_what_it_compiles(
    monkeypatch: pytest.MonkeyPatch, compared: Compared
) -> None:
    informer = Context(LaggingAPI().client(), FakeClock()).informers.of(apps_v1.DaemonSet)
    known, read = CompiledSelectorIndex(informer), list[Any]()
    monkeypatch.setattr(selector_index, "from_label_selector", lambda s: (read.append(s), from_label_selector(s))[1])
    informer._set("here/large", large(apps_v1.DaemonSet))
    told: list[str] = []
    known.each("here", {"a": "b"}, told.append)
    assert (told, read) == (["here/large"], [])
    for _ in range(3):
        await known.of(informer.get("here/large"))
    known.each("here", {"k0": "z"}, told.append)
    assert (len(read), told, compared.here) == (1, ["here/large"], 0)


@pytest.mark.parametrize("term", ["k{}", "k{}!=z", "k{} in (,a)", "k{}="])
async def test_a_comparison_in_slices_gives_the_same_result_as_one_in_a_single_step(term: str) -> None:
    selector = parse_labels(",".join(term.format(number) for number in range(3000)))
    for obj in (LABELS, {**LABELS, "k2999": "z"}, {"a": "b"}, {key: "" for key in list(LABELS)[:2999]}):
        assert await selects(selector, obj, StepCounter()) is selector.matches(obj)
