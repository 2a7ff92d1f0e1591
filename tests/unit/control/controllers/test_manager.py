"""The manager beside kinds that cannot be listed: controllers that do not need them work, the others begin when they can."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from control.controllers import manager
from control.controllers.context import Context
from kube import resources
from kube.api import batch_v1, core_v1
from kube.client import Client, Response
from kube.errors import StatusError
from kube.shared_informers import SharedInformers
from tests.support.clock import FakeClock, settle

SETTINGS = manager.ControllerConfig(root_ca="pem", local_path=True)


class EmptyServer:
    """A transport to a server that has nothing; resources in `broken` answer 500."""

    def __init__(self) -> None:
        self.broken: set[str] = set()

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if path.split("/")[-1] in self.broken:
            raise StatusError(500, "InternalError", "conversion webhook failed")
        return Response(200, {}, b'{"metadata": {"resourceVersion": "1"}, "items": []}')

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        yield nothing()

    async def close(self) -> None:
        return


class Begun:
    """Stands for a controller whose `run` was called."""

    def __init__(self, name: str, begun: set[str]) -> None:
        self._name, self._begun = name, begun

    async def run(self) -> None:
        self._begun.add(self._name)
        await asyncio.Event().wait()


OPTIONAL = {"resourcequota": [core_v1.Pod, core_v1.Service, core_v1.PersistentVolumeClaim]}
Make = Callable[[Context, manager.ControllerConfig], manager.Runnable | None]


def needed_kinds() -> dict[str, set[type[msgspec.Struct]]]:
    """Return the kinds that each controller asks for when it is made by itself, but those that it can work without."""
    found = {}
    for name, make in manager.CONTROLLERS.items():
        context = Context(Client(EmptyServer()), FakeClock())
        optional: list[type[Any]] = OPTIONAL.get(name, [])
        if make(context, SETTINGS) is not None:
            found[name] = {kind for kind, _, _ in context.informers._informers} - set(optional)
    return found


@contextlib.asynccontextmanager
async def managed(server: EmptyServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[set[str]]:
    """Run the manager with its controllers' constructors, but not their work; give the names of those that begun."""
    begun: set[str] = set()

    def instead(name: str, make: Make) -> Make:
        def made(context: Context, config: manager.ControllerConfig) -> manager.Runnable | None:
            return Begun(name, begun) if make(context, config) is not None else None

        return made

    monkeypatch.setattr(
        manager, "CONTROLLERS", {name: instead(name, make) for name, make in manager.CONTROLLERS.items()}
    )
    monkeypatch.setattr(manager, "wait_for_work", AsyncMock())  # there is no object that controllers would start with
    task = asyncio.create_task(manager.run(Client(server), SETTINGS, clock))
    try:
        await settle(50)
        yield begun
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


KINDS = sorted({resources.of(kind).plural for kinds in needed_kinds().values() for kind in kinds})


async def test_with_everything_listed_all_controllers_work(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = needed_kinds()
    async with managed(EmptyServer(), FakeClock(), monkeypatch) as begun:
        assert begun == needed.keys()


@pytest.mark.parametrize("plural", KINDS)
async def test_a_kind_that_cannot_be_listed_holds_up_its_own_controllers_alone_and_only_until_it_can(
    plural: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed, server, clock = needed_kinds(), EmptyServer(), FakeClock()
    held = {name for name, kinds in needed.items() if plural in {resources.of(kind).plural for kind in kinds}}
    server.broken = {plural}
    async with managed(server, clock, monkeypatch) as begun:
        await clock.advance(3600)
        assert begun == needed.keys() - held
        server.broken = set()
        await clock.advance(10)
        assert begun == needed.keys()


async def test_a_waiting_controller_logs_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server, clock = EmptyServer(), FakeClock()
    server.broken = {"cronjobs"}
    with caplog.at_level(logging.WARNING):
        async with managed(server, clock, monkeypatch):
            await clock.advance(60)
    assert [r.getMessage() for r in caplog.records if "waits" in r.getMessage()] == [
        "the cronjob controller waits until CronJob can be listed"
    ]


async def test_an_informer_that_fails_unforeseen_leaves_the_others_following_and_starts_again() -> None:
    clock, server = FakeClock(), EmptyServer()
    shared = SharedInformers(Client(server), clock)
    pods, jobs = shared.of(core_v1.Pod), shared.of(batch_v1.Job)
    failures, listed = 1, pods._list

    async def fails_once() -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("a bug")
        await listed()

    pods._list = fails_once  # type: ignore[method-assign]
    task = asyncio.create_task(shared.run())
    await settle(50)
    assert jobs.synced and not pods.synced and not task.done()
    await clock.advance(10)
    assert pods.synced
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Failing(Begun):
    """Stands for a controller that fails a number of times."""

    failures = 1

    async def run(self) -> None:
        if Failing.failures:
            Failing.failures -= 1
            raise RuntimeError("a bug")
        await super().run()


async def test_a_controller_that_fails_is_made_anew_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, begun = FakeClock(), set[str]()
    made: list[str] = []
    subscribed: list[int] = []

    def make(name: str, kind: type[Begun]) -> Make:
        def made_anew(context: Context, config: manager.ControllerConfig) -> manager.Runnable:
            pods = context.informers.of(core_v1.Pod)
            pods.subscribe(lambda change: None)
            subscribed.append(len(pods._handlers))
            made.append(name)
            return kind(name, begun)

        return made_anew

    monkeypatch.setattr(manager, "CONTROLLERS", {"sound": make("sound", Begun), "broken": make("broken", Failing)})
    Failing.failures = 2
    task = asyncio.create_task(manager.run(Client(EmptyServer()), SETTINGS, clock))
    await settle(50)
    assert (made, begun) == (["sound", "broken"], {"sound"})
    await clock.advance(60)
    assert (made, begun) == (["sound", "broken", "broken", "broken"], {"sound", "broken"})
    assert subscribed == [1, 2, 2, 2]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
