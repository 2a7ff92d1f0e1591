"""Cost of controllers is proportional to the objects, however large one of them is and however many others there are.

One large valid object times many others is what a user may send who may write to one namespace, and the API server shares its
event loop with the controllers. Each controller of the manager's table is run in virtual time on a server in memory, with one
large object and N small ones of each kind that it follows; no list of kinds or fields stands here, so a new controller is
covered. Lines of Python are counted by line, which tells where the product is; and between two suspensions. An entry of a map
or list that one line copies in C code counts as an execution of the line.
"""

from __future__ import annotations

import asyncio
import functools
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from control.controllers import batch_delay, history
from control.controllers.addons.settings import AddonSettings
from control.controllers.context import Context
from control.controllers.deployment import template
from control.controllers.manager import CONTROLLERS, ControllerConfig
from kube import client, pki, resources, serialize
from kube.resources import Resource
from tests.support import copies, product_world
from tests.support.clock import FakeClock, settle
from tests.support.lines_by_place import FOLDERS, SHARE, Lines, Place, copied, squares

ITEMS, OBJECTS = 16, 4
"""Items in each list and map of the large object, and small objects of each kind, at the least."""
PRODUCT = 0.7
"""Maximum executions of a line for each item and object: 1 is a product. Fewer are none: something that changes meanwhile is
visited once more."""
MOST_LINES = 10_000
"""Lines of Python between two suspensions, about 1 ms, for lists of 32 items in every field: what gives the loop back after
step_counter.STEPS_PER_ITERATION steps, or the bytes of a template for one iteration, stays below."""
TOGETHER = "together"
PARTS = ("spec", "selectors", "apart", TOGETHER)
FIELDS = product_world.fields_by_part()

PRODUCTS, SQUARES, MANY = "items times objects", "items squared", "objects squared, for the large one"
TOLERATED = {
    # Each selector is compared with each role, as upstream does it, but in steps.
    ("clusterrole-aggregation", PRODUCTS): ("control/controllers/role_aggregation.py", "kube/selectors.py"),
    # A node whose labels or taints change has every DaemonSet looked at, with all nodes and the pods that it may adopt.
    ("daemonset", MANY): ("",),
}
"""Files, or their beginnings, in which a controller does as often as upstream what it has to."""
TURNS = "control/controllers/step_counter.py"


@pytest.fixture(scope="module", autouse=True)
def counted_copies() -> Iterator[None]:
    with copies.counting(FOLDERS, copied):
        yield


FOLLOW_NOTHING = {"addons"}
"""Controllers without informers: this one reads files, in threads, and lists what it applied."""


@pytest.fixture(scope="module")
def config() -> ControllerConfig:
    """Return a configuration that leaves no controller out."""
    ca = pki.new_ca("test", product_world.NOW)
    certificate, key = ca.cert_pem.decode(), ca.key_pem.decode()
    return ControllerConfig(
        root_ca=certificate,
        signing_cert=certificate,
        signing_key=key,
        service_account_key=key,
        local_path=True,
        addons=AddonSettings(Path("/nowhere")),
    )


def followed(name: str, config: ControllerConfig) -> list[Resource]:
    """Return the kinds that a controller follows, and one that those follow who follow everything."""
    context = Context(product_world.World().client(), FakeClock())
    with context.informers.requested() as asked:
        assert CONTROLLERS[name](context, config) is not None
    kinds = [resources.of(informer.kind) for informer in asked]
    return list(dict.fromkeys([*kinds, resources.of(resources.by_kind("v1", "ConfigMap").type)]))


@functools.lru_cache(512)
def _encoded(kind: Resource, part: str, items: int, version: str) -> bytes:
    fields = FIELDS.get((kind.target, part), [])
    return serialize.encode(product_world.large(kind, fields, items, version, together=part == TOGETHER))


def large(kind: Resource, part: str, items: int, version: str) -> Any:
    """Return the large object of a kind, in a copy: to make one takes longer than what is measured."""
    return serialize.decode(_encoded(kind, part, items, version), kind.type)


async def quick_hash(data: bytes) -> int:
    return zlib.crc32(data)


async def at_rest(lines: Lines) -> None:
    """Wait until nothing is done any more."""
    for _ in range(300):
        before = lines.number
        await settle(12)
        if lines.number == before:
            return


async def work(name: str, config: ControllerConfig, part: str, items: int, objects: int, lines: Lines) -> None:
    """Run a controller while objects of its kinds come, change and go."""
    kinds, clock, world = followed(name, config), FakeClock(), product_world.World()
    context = Context(world.client(), clock)
    larges = {version: [large(kind, part, items, version) for kind in kinds] for version in ("1", "2")}
    smalls = {
        version: [product_world.small(kind, number, version) for kind in kinds for number in range(objects)]
        for version in ("1", "2")
    }

    async def passes(seconds: float) -> None:
        await at_rest(lines)
        await clock.advance(seconds)
        await at_rest(lines)

    with lines:
        controller = CONTROLLERS[name](context, config)
        assert controller is not None
        tasks = [asyncio.create_task(context.informers.run())]
        await context.informers.wait_synced()
        tasks.append(asyncio.create_task(controller.run()))
        tasks.append(asyncio.create_task(context.recorders.run()))
        await settle(20)
        for obj in larges["1"]:
            world.put(obj)
        for version in ("1", "2"):
            for obj in smalls[version]:
                world.put(obj)
            await passes(11)
        before = lines.counts
        for obj in larges["2"]:
            world.put(obj)
        await passes(31)
        lines.large = lines.counts - before
        for kind in kinds:
            world.clear(kind)
        await passes(11)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def measure(name: str, config: ControllerConfig, part: str, items: int, objects: int) -> Lines:
    lines = Lines()
    with product_world.quiet():
        asyncio.run(work(name, config, part, items, objects, lines))
    return lines


def products(few: Counter[Place], *more: Counter[Place]) -> dict[Place, float]:
    """Return the lines whose number grows with items times objects, from twice the items, four times the objects, and both."""
    items, objects, both = more
    found = {}
    for place, count in both.items():
        rise = count - items[place] - objects[place] + few[place]
        if rise > max(PRODUCT * 3 * ITEMS * OBJECTS, SHARE * count):
            found[place] = round(rise / (3 * ITEMS * OBJECTS), 1)
    return found


def judge(name: str, config: ControllerConfig, part: str) -> list[str]:
    """Return what is wrong with a controller's cost where fields of one part are large."""
    few, items, objects, both, many_items, many_objects = (
        measure(name, config, part, factor * ITEMS, others * OBJECTS)
        for factor, others in ((1, 1), (2, 1), (1, 2), (2, 4), (4, 1), (1, 4))
    )
    found = {
        PRODUCTS: products(few.counts, items.counts, many_objects.counts, both.counts),
        SQUARES: squares(ITEMS, few.counts, items.counts, many_items.counts),
        MANY: squares(OBJECTS, few.large, objects.large, many_objects.large),
    }
    problems = [
        f"{part}: {what}: {file}:{line} {count}"
        for what, places in found.items()
        for (file, line), count in sorted(places.items())
        if not file.startswith((TURNS, *TOLERATED.get((name, what), ())))
    ]
    if both.longest > MOST_LINES:
        problems.append(f"{part}: {both.longest} lines at a stretch")
    return problems


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(CONTROLLERS.keys() - FOLLOW_NOTHING))
def test_work_grows_with_the_objects_and_goes_on_in_turns(
    name: str, config: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_delay, "MANY", 0)  # as few objects as there are here are looked at after each change
    # test_client_turns.py sees that events are decoded in steps, in each of which an object may be reconciled once more.
    monkeypatch.setattr(client, "TURN_BYTES", 1 << 40)
    # Its lines, two for each byte of a template, take minutes to count; test_deployment.py sees that it yields in between.
    for module in (history, template):
        monkeypatch.setattr(module, "fnv32a", quick_hash)
    measure(name, config, PARTS[0], 2, 2)  # what is made once and kept does not count
    assert [problem for part in PARTS for problem in judge(name, config, part)] == []


def test_controllers_that_are_left_out_follow_no_objects(config: ControllerConfig) -> None:
    for name in FOLLOW_NOTHING:
        context = Context(product_world.World().client(), FakeClock())
        with context.informers.requested() as asked:
            assert CONTROLLERS[name](context, config) is not None
        assert not list(asked)


# -- the judge itself -----------------------------------------------------------------------------------------------------
def counted(lines: Sequence[tuple[int, int]], what: Any) -> list[Counter[Place]]:
    return [Counter({("f", 1): what(items, objects)}) for items, objects in lines]


MORE = ((ITEMS, OBJECTS), (2 * ITEMS, OBJECTS), (ITEMS, 4 * OBJECTS), (2 * ITEMS, 4 * OBJECTS))


def test_a_product_is_seen_and_a_sum_is_not() -> None:
    assert products(*counted(MORE, lambda items, objects: items * objects)) == {("f", 1): 1.0}
    assert products(*counted(MORE, lambda items, objects: 90 * items + 70 * objects)) == {}


def test_a_square_is_seen_and_a_line_is_not() -> None:
    sizes = [(factor * ITEMS, 0) for factor in (1, 2, 4)]
    assert squares(ITEMS, *counted(sizes, lambda items, _: items * items // 2)) == {("f", 1): 0.5}
    assert squares(ITEMS, *counted(sizes, lambda items, _: 90 * items + 1000)) == {}


async def test_a_stretch_ends_where_a_task_waits() -> None:
    async def looks(turns: int) -> None:
        for _ in range(turns):
            for _ in range(10):
                resources.of(resources.by_kind("v1", "Pod").type)
            await asyncio.sleep(0)

    longest = []
    for turns in (1, 5):
        with Lines() as lines:
            await asyncio.create_task(looks(turns))
        longest.append(lines.longest)
        assert lines.number >= turns * 10
    assert longest[1] < 2 * longest[0]
