"""Our own writes over a cache that lags behind."""

from __future__ import annotations

from typing import Any

from control.controllers.overlay import KEPT_SECONDS, Overlay
from kube.api import core_v1, meta_v1
from kube.informer import Change
from tests.support.clock import FakeClock


class Lagging:
    """As much of an informer as an overlay uses, moved by hand."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.handler: Any = None

    def subscribe(self, handler: Any) -> None:
        self.handler = handler

    def get(self, key: str) -> Any:
        return self.objects.get(key)

    def see(self, type_: str, obj: Any) -> None:
        key = f"default/{obj.metadata.name}"
        old = self.objects.pop(key, None)
        if type_ != "DELETED":
            self.objects[key] = obj
        self.handler(Change(type_, old, obj))


def thing(name: str, revision: int, uid: str = "u") -> core_v1.ConfigMap:
    return core_v1.ConfigMap(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default", uid=uid, resource_version=str(revision))
    )


def over() -> tuple[Overlay[core_v1.ConfigMap], Lagging, FakeClock]:
    informer, clock = Lagging(), FakeClock()
    return Overlay(informer, clock), informer, clock  # type: ignore[arg-type]


def revisions(overlay: Overlay[core_v1.ConfigMap], informer: Lagging) -> list[str | None]:
    return [found.metadata.resource_version for found in overlay.current(informer.objects.values(), "default/x")]


def test_a_created_object_is_cached_before_the_watch_event() -> None:
    overlay, informer, _ = over()
    overlay.wrote(thing("x-1", 5))
    assert revisions(overlay, informer) == ["5"] and overlay.get("default/x-1").metadata.resource_version == "5"


def test_the_newer_of_write_and_watch_counts() -> None:
    overlay, informer, _ = over()
    informer.see("ADDED", thing("x-1", 3))
    overlay.wrote(thing("x-1", 5))
    informer.see("MODIFIED", thing("x-1", 4))
    assert revisions(overlay, informer) == ["5"]
    informer.see("MODIFIED", thing("x-1", 7))
    assert revisions(overlay, informer) == ["7"]
    overlay.wrote(thing("x-1", 6))
    assert revisions(overlay, informer) == ["7"]


def test_what_was_deleted_is_gone_at_once_and_may_come_back_anew() -> None:
    overlay, informer, _ = over()
    informer.see("ADDED", thing("x-1", 3))
    overlay.deleted(thing("x-1", 3))
    assert revisions(overlay, informer) == [] and overlay.get("default/x-1") is None
    informer.see("DELETED", thing("x-1", 4))
    informer.see("ADDED", thing("x-1", 6, uid="other"))
    assert revisions(overlay, informer) == ["6"]


async def test_what_is_never_seen_is_given_up_after_a_while() -> None:
    overlay, informer, clock = over()
    overlay.wrote(thing("x-1", 5))
    await clock.advance(KEPT_SECONDS + 1)
    assert revisions(overlay, informer) == [] and overlay.get("default/x-1") is None


def test_nothing_is_kept_of_what_the_watch_has_shown() -> None:
    overlay, informer, _ = over()
    for number in range(3):
        overlay.wrote(thing(f"x-{number}", 5))
        informer.see("ADDED", thing(f"x-{number}", 5))
        overlay.wrote(thing(f"x-{number}", 7))
        overlay.deleted(thing(f"x-{number}", 7))
        informer.see("DELETED", thing(f"x-{number}", 8))
    assert not overlay._times and not overlay._written and not overlay._deleted
