"""Changes of a namespace after which its contents are deleted once more."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from control.controllers.context import Context
from control.controllers.namespace import NamespaceController
from kube.api import core_v1
from kube.client import Client
from kube.informer import Change
from tests.support.clock import FakeClock


def namespace(*, deleted: bool, finalizers: tuple[str, ...] = ("kubernetes",), reason: str = "") -> core_v1.Namespace:
    metadata = {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z" if deleted else None}
    condition = {"type": "NamespaceDeletionContentFailure", "status": "True", "reason": reason}
    shape = {"metadata": metadata, "spec": {"finalizers": finalizers}, "status": {"conditions": [condition]}}
    return msgspec.convert(shape, core_v1.Namespace)


@pytest.mark.parametrize(
    ("old", "new", "queued"),
    [
        (None, namespace(deleted=True), 1),
        (None, namespace(deleted=False), 0),
        (namespace(deleted=False), namespace(deleted=True), 1),
        (namespace(deleted=True, finalizers=("kubernetes", "mine/x")), namespace(deleted=True), 1),
        (namespace(deleted=True, reason="A"), namespace(deleted=True, reason="B"), 0),
    ],
    ids=["deleted before the start", "not deleted", "deleted", "another finalizer", "its own conditions"],
)
async def test_the_controller_does_not_follow_its_own_conditions(
    old: core_v1.Namespace | None, new: core_v1.Namespace, queued: int
) -> None:
    found = NamespaceController(Context(Client(cast(Any, None)), FakeClock()))
    found._namespace_changed(Change("ADDED" if old is None else "MODIFIED", old, new))
    assert len(found.controller.queue) == queued
