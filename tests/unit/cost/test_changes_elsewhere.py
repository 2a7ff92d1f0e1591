"""Cost of a change in one namespace does not depend on the objects of others.

Whoever may write to one namespace may have very many objects there, or change one of a few very often. Each controller of the
manager's table is run in virtual time on a server in memory with objects of each kind that it follows, while those of one
namespace change, go and come again, beside few and beside many objects of another namespace. No line of Python may be executed
for each of those. No list of kinds stands here, so a new controller is covered, unless it follows nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from control.controllers import batch_delay
from control.controllers.account_tokens import AccountTokenController
from control.controllers.context import Context
from control.controllers.manager import CONTROLLERS, ControllerConfig
from kube import client, pki, resources
from kube.object_names import key_of, metadata_of
from kube.resources import Resource
from tests.support import copies, product_world
from tests.support.clock import FakeClock, settle
from tests.support.lines_by_place import FOLDERS, Lines, Place, copied

ELSEWHERE = "elsewhere"
FEW, MANY = 8, 40
EACH = 0.7
"""Maximum executions of a line for each object elsewhere; 1 is a loop over all of them."""
FOLLOW_NOTHING = {"addons"}
"""Controllers without informers: this one lists what it applied."""
SECONDS = 3.0
"""Time that passes after a change: more than what controllers wait for further changes."""


@pytest.fixture(scope="module", autouse=True)
def counted_copies() -> Iterator[None]:
    with copies.counting(FOLDERS, copied):
        yield


@pytest.fixture(scope="module")
def config() -> ControllerConfig:
    """Return a configuration that leaves no controller out."""
    ca = pki.new_ca("test", product_world.NOW)
    certificate, key = ca.cert_pem.decode(), ca.key_pem.decode()
    return ControllerConfig(
        root_ca=certificate, signing_cert=certificate, signing_key=key, service_account_key=key, local_path=True
    )


def followed(name: str, config: ControllerConfig) -> list[Resource]:
    """Return the kinds that a controller follows."""
    context = Context(product_world.World().client(), FakeClock())
    with context.informers.requested() as asked:
        assert CONTROLLERS[name](context, config) is not None
    return list(dict.fromkeys(resources.of(informer.kind) for informer in asked))


def elsewhere(kind: Resource, number: int) -> Any:
    obj = product_world.small(kind, number)
    metadata = metadata_of(obj)
    metadata.namespace, metadata.uid = ELSEWHERE, f"{metadata.uid}-{ELSEWHERE}"
    return obj


async def at_rest(lines: Lines) -> None:
    """Wait until nothing is done any more."""
    for _ in range(300):
        before = lines.number
        await settle(12)
        if lines.number == before:
            return


async def work(name: str, config: ControllerConfig, others: int, *, change: bool) -> Counter[Place]:
    """Return the lines that a controller takes beside so many objects of each kind in another namespace.

    `change`: the objects of the first namespace change, go and come again; without, the same time passes.
    """
    kinds, clock, world, lines = followed(name, config), FakeClock(), product_world.World(), Lines()
    for kind in kinds:
        for number in range(2):
            world.put(product_world.small(kind, number))
        for number in range(others if kind.namespaced else 0):
            world.put(elsewhere(kind, number))
    context = Context(world.client(), clock)

    async def passes() -> None:
        await at_rest(lines)
        await clock.advance(SECONDS)
        await at_rest(lines)

    with lines:
        controller = CONTROLLERS[name](context, config)
        assert controller is not None
        tasks = [asyncio.create_task(context.informers.run())]
        await context.informers.wait_synced()
        tasks += [asyncio.create_task(controller.run()), asyncio.create_task(context.recorders.run())]
        for _ in range(4):
            await passes()
        before = lines.counts
        for version in ("2", "", "1"):
            for kind in kinds if change else ():
                for number in range(2 if kind.namespaced else 0):
                    obj = product_world.small(kind, number, version or "1")
                    if version:
                        world.put(obj)
                    elif key_of(obj) in world.objects[kind.path()]:
                        world.remove(obj)
            await passes()
        steps = lines.counts - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return steps


def changes(name: str, config: ControllerConfig, others: int) -> Counter[Place]:
    """Return the lines that the changes take."""
    with product_world.quiet():
        both, alone = (asyncio.run(work(name, config, others, change=change)) for change in (True, False))
    return both - alone


def judge(name: str, config: ControllerConfig) -> list[str]:
    """Return the lines that are executed for each object elsewhere."""
    few, many = (changes(name, config, others) for others in (FEW, MANY))
    found = []
    for (file, line), count in sorted(many.items()):
        each = (count - few[file, line]) / (MANY - FEW)
        if each > EACH:
            found.append(f"{file}:{line} {each:.1f}")
    return found


@pytest.mark.parametrize("name", sorted(CONTROLLERS.keys() - FOLLOW_NOTHING))
def test_a_change_takes_no_line_for_each_object_of_another_namespace(
    name: str, config: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_delay, "MANY", 0)
    monkeypatch.setattr(client, "TURN_BYTES", 1 << 40)
    assert judge(name, config) == []


# -- the judge itself -----------------------------------------------------------------------------------------------------
def test_a_look_at_all_objects_is_seen(config: ControllerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(self: AccountTokenController, change: object) -> None:
        for secret in self._secrets.list():
            self.controller.enqueue(key_of(secret))

    monkeypatch.setattr(AccountTokenController, "_account_changed", everywhere)
    found = judge("serviceaccount-token", config)
    assert any(place.startswith("control/controllers/account_tokens.py:") for place in found)
