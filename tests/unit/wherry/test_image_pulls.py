"""After `wherry join`, a sentence says how a machine without internet gets images."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from kube.api import core_v1
from kube.client import Client
from kube.errors import StatusError
from kube.serialize import convert
from tests.support.clock import FakeClock
from wherry import cluster, image_pulls, join
from wherry.image_pulls import HINT, SECONDS, fail_on
from wherry.settings import Settings
from wherry.terminal import PlainConsole


def pod(waiting: str = "", phase: str = "Pending") -> core_v1.Pod:
    states = [{"name": "c", "state": {"waiting": {"reason": waiting}}}] if waiting else []
    status = {"phase": phase, "containerStatuses": states, "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return convert({"metadata": {"name": "p"}, "status": status}, core_v1.Pod)


class Pods:
    """A client that lists other pods each time, the last ones again and again."""

    def __init__(self, *lists: list[core_v1.Pod]) -> None:
        self.lists, self.selectors = list(lists), set[str]()

    async def list(self, kind: type[Any], *, field_selector: str) -> SimpleNamespace:
        self.selectors.add(field_selector)
        return SimpleNamespace(items=self.lists.pop(0) if len(self.lists) > 1 else self.lists[0])


async def found(pods: Pods) -> bool:
    clock = FakeClock()
    task = asyncio.create_task(fail_on(_client(pods), "n1", clock))
    await clock.advance(2 * SECONDS)
    assert task.done() and pods.selectors == {"spec.nodeName=n1"}
    return task.result()


def _client(pods: Any) -> Client:
    client: Client = pods
    return client


async def test_a_pull_that_fails_later_is_found() -> None:
    starting = [pod("ContainerCreating"), pod("", "Running")]
    assert await found(Pods(starting, starting, [pod("ErrImagePull")]))
    assert await found(Pods([pod("ImagePullBackOff")]))


async def test_pods_that_run_or_take_long_are_no_problem() -> None:
    assert not await found(Pods([pod("ContainerCreating")], [pod("", "Running")]))
    assert not await found(Pods([pod("ContainerCreating")]))
    assert not await found(Pods([]))


async def test_a_server_that_does_not_respond_is_no_problem_of_images() -> None:
    class Away:
        async def list(self, kind: type[Any], *, field_selector: str) -> None:
            raise StatusError(503, "ServiceUnavailable", "away")

    assert not await fail_on(_client(Away()), "n1", FakeClock())


@pytest.mark.parametrize("fails", [True, False])
async def test_join_prints_the_hint(fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    @contextlib.asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[None]:
        yield

    async def fail(client: Client, node_name: str, clock: Any) -> bool:
        return fails

    monkeypatch.setattr(cluster, "connect", connect)
    monkeypatch.setattr(image_pulls, "fail_on", fail)
    await join._report_image_problems(Settings(node_name="n1"))
    assert capsys.readouterr().out == (f"{HINT}\n" if fails else "")
    screen = io.StringIO()
    monkeypatch.setattr(join, "console", PlainConsole(file=screen, width=80, force_terminal=True, no_color=True))
    await join._report_image_problems(Settings(node_name="n1"))
    assert "`wherry bundle load FILE`" in screen.getvalue() or not fails
    assert all(len(line) <= 80 for line in screen.getvalue().splitlines())
