"""Pods that wait until their claims are bound: the end of the wait, and changes that wake them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control.scheduler.framework import BindingFailed
from control.scheduler.plugins.volume_binding import VolumeBinding, _Reservation
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, meta_v1
from kube.informer import Change
from kube.volume_binding import BIND_COMPLETED, SELECTED_NODE
from tests.support.clock import settle

from .clusters import ZONE, node, pod

ELSEWHERE = core_v1.VolumeNodeAffinity(
    required=core_v1.NodeSelector(
        node_selector_terms=[
            core_v1.NodeSelectorTerm(
                match_expressions=[core_v1.NodeSelectorRequirement(key=ZONE, operator="In", values=["elsewhere"])]
            )
        ]
    )
)


class Informer:
    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.handlers: list[Any] = []

    def get(self, key: str) -> Any:
        return self.objects.get(key)

    def subscribe(self, handler: Any) -> None:
        self.handlers.append(handler)

    def add(self, obj: Any) -> None:
        change = Change("MODIFIED", None, obj)
        self.objects[change.key] = obj
        for handler in self.handlers:
            handler(change)


def claim(name: str = "c", *, volume: str = "") -> core_v1.PersistentVolumeClaim:
    annotations = {SELECTED_NODE: "n", **({BIND_COMPLETED: "yes"} if volume else {})}
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(
            name=name, namespace="default", uid=name, resource_version="2" if volume else "1", annotations=annotations
        ),
        spec=core_v1.PersistentVolumeClaimSpec(volume_name=volume or None),
    )


def volume(
    name: str = "v", of: str = "c", affinity: core_v1.VolumeNodeAffinity | None = None
) -> core_v1.PersistentVolume:
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, uid=name, resource_version="1"),
        spec=core_v1.PersistentVolumeSpec(
            claim_ref=core_v1.ObjectReference(namespace="default", name=of, uid=of),
            node_affinity=affinity,
        ),
    )


class Site:
    """The plugin, and a task for each pod that waits; `checks` counts evaluations by the claims' names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claims, self.volumes, none = Informer(), Informer(), Informer()
        given: Any = (None, self.claims, self.volumes, none, None)
        self.plugin = VolumeBinding(*given)
        self.tasks: list[asyncio.Task[None]] = []
        self.checks: list[str] = []
        all_bound = self.plugin._all_bound

        def counted(written: Any, where: Any) -> bool:
            self.checks.extend(written)
            return all_bound(written, where)

        monkeypatch.setattr(self.plugin, "_all_bound", counted)

    async def wait(self, name: str = "c", chosen: str = "") -> asyncio.Task[None]:
        self.claims.add(claim(name))
        incoming = PodInfo(pod(f"pod-{name}"))
        incoming.uid = f"pod-{name}"
        self.plugin._reserved[incoming.uid] = _Reservation(node("n", zone="x"), {f"default/{name}": chosen})
        task = asyncio.create_task(self.plugin.pre_bind(incoming, "n"))
        self.tasks.append(task)
        await settle()
        assert not task.done()
        self.checks.clear()
        return task


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    made = Site(monkeypatch)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_a_bound_claim_whose_volume_is_not_cached_yet_is_waited_for(site: Site) -> None:
    task = await site.wait()
    site.claims.add(claim(volume="v"))
    await settle()
    assert not task.done(), "the watch of claims is ahead of that of volumes"
    site.volumes.add(volume())
    await settle()
    assert task.done() and task.exception() is None


async def test_a_volume_that_was_provisioned_elsewhere_fails_the_binding(site: Site) -> None:
    task = await site.wait()
    site.claims.add(claim(volume="v"))
    site.volumes.add(volume(affinity=ELSEWHERE))
    with pytest.raises(BindingFailed, match='pv "v" node affinity doesn\'t match node "n"'):
        await task


async def test_a_change_wakes_only_the_pods_that_wait_for_the_object(site: Site) -> None:
    site.volumes.add(volume("chosen", of="b"))
    for name, chosen in (("a", ""), ("b", "chosen"), ("c", "")):
        await site.wait(name, chosen)
    for change, woken in (
        (claim("a"), ["default/a"]),
        (volume("chosen", of="b"), ["default/b"]),
        (volume("other", of="c"), ["default/c"]),
        (volume("other", of="nobody"), []),
        (claim("another"), []),
    ):
        site.checks.clear()
        (site.claims if isinstance(change, core_v1.PersistentVolumeClaim) else site.volumes).add(change)
        await settle()
        assert site.checks == woken
    site.plugin.abandon(PodInfo(pod("unknown")))
    assert site.plugin._waiters._events.keys() == {"pod-a", "pod-b", "pod-c"}


async def test_a_pod_that_was_deleted_is_woken(site: Site) -> None:
    task = await site.wait()
    deleted = PodInfo(pod("pod-c"))
    deleted.uid = "pod-c"
    site.plugin.abandon(deleted)
    with pytest.raises(BindingFailed, match="the pod was deleted in the meantime"):
        await task
    assert not site.plugin._waiters._events and not site.plugin._waiters._by_key
