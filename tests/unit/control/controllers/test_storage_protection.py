"""Storage in use keeps its finalizer, also while the controllers' caches lag behind the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from control.controllers.context import Context
from control.controllers.manager import Runnable
from control.controllers.storage_protection import (
    RETRY_SECONDS,
    AttributesClassProtectionController,
    ClaimProtectionController,
    VolumeProtectionController,
)
from kube.api import core_v1, storage_v1
from kube.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working

Claim = core_v1.PersistentVolumeClaim


def make(api: LaggingAPI, kind: type[Any], name: str, *, finalizer: str = "", namespace: str = "", **body: Any) -> None:
    metadata: dict[str, Any] = {"name": name, "finalizers": [finalizer] if finalizer else []}
    if namespace:
        metadata["namespace"] = namespace
    api.put(msgspec.convert({"metadata": metadata, **body}, kind))


def claim(api: LaggingAPI, name: str, **spec: Any) -> None:
    make(api, Claim, name, finalizer="kubernetes.io/pvc-protection", namespace="ns", spec=spec)


def pod(api: LaggingAPI, name: str, claim: str, node: str = "a") -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    make(api, core_v1.Pod, name, namespace="ns", spec={"nodeName": node, "containers": [], "volumes": volumes})


async def delete(api: LaggingAPI, kind: type[Any], *names: str, namespace: str = "") -> None:
    for name in names:
        await api.client().delete(kind, name, namespace)
    await settle(50)


def lists_of_pods(api: LaggingAPI) -> int:
    return api.requests.count(("GET", "/api/v1/namespaces/ns/pods"))


async def test_a_claim_stays_while_a_pod_uses_it_that_the_cache_does_not_show() -> None:
    api, clock = LaggingAPI(), FakeClock()
    claim(api, "data")
    async with working(api, clock, ClaimProtectionController):
        api.hold(core_v1.Pod)
        pod(api, "p", "data")
        await delete(api, Claim, "data", namespace="ns")
        assert api.read(Claim, "data", "ns") is not None
        await delete(api, core_v1.Pod, "p", namespace="ns")
        assert api.read(Claim, "data", "ns") is not None, "nothing was heard of the pod's end"
        await clock.advance(RETRY_SECONDS)
        assert api.read(Claim, "data", "ns") is None


async def test_claims_that_are_deleted_together_are_looked_for_in_one_list_of_pods() -> None:
    api = LaggingAPI()
    names = [f"data-{number}" for number in range(20)]
    for name in names:
        claim(api, name)
    pod(api, "p", "data-7")
    pod(api, "pending", "data-8", node="")
    async with working(api, FakeClock(), ClaimProtectionController):
        api.hold(Claim)
        await delete(api, Claim, *names, namespace="ns")
        api.let_go(Claim)
        await settle(500)
        assert [c.metadata.name for c in api.everything(Claim)] == ["data-7"]
        assert lists_of_pods(api) <= 2
        await delete(api, core_v1.Pod, "p", namespace="ns")
        assert api.everything(Claim) == []


async def test_a_claim_that_the_cache_shows_in_use_is_kept_without_a_list() -> None:
    api = LaggingAPI()
    claim(api, "data")
    pod(api, "p", "data")
    async with working(api, FakeClock(), ClaimProtectionController):
        await delete(api, Claim, "data", namespace="ns")
        assert api.read(Claim, "data", "ns") is not None and lists_of_pods(api) == 0


async def test_a_volume_stays_that_was_bound_while_the_cache_lagged() -> None:
    await kept_in_use(VolumeProtectionController, core_v1.PersistentVolume, "kubernetes.io/pv-protection", bind)


async def test_an_attributes_class_stays_that_a_claim_came_to_name_while_the_cache_lagged() -> None:
    kind, finalizer = storage_v1.VolumeAttributesClass, "kubernetes.io/vac-protection"
    await kept_in_use(AttributesClassProtectionController, kind, finalizer, name_class)


async def kept_in_use(
    controller: Callable[[Context], Runnable], kind: type[Any], finalizer: str, use: Callable[[LaggingAPI], None]
) -> None:
    api = LaggingAPI()
    make(api, kind, "gold", finalizer=finalizer)
    async with working(api, FakeClock(), controller):
        use(api)
        await delete(api, kind, "gold")
        assert api.read(kind, "gold") is not None


def bind(api: LaggingAPI) -> None:
    body = msgspec.to_builtins(api.read(core_v1.PersistentVolume, "gold"))
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api.put(msgspec.convert(body, core_v1.PersistentVolume))
    api.hold(core_v1.PersistentVolume)
    body["status"] = {"phase": "Bound"}
    api.put(msgspec.convert(body, core_v1.PersistentVolume))


def name_class(api: LaggingAPI) -> None:
    api.hold(Claim)
    claim(api, "data", volumeAttributesClassName="gold")
