"""Storage in use keeps its finalizer, also while the controllers' caches lag behind the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from control.controllers import storage_protection
from control.controllers.context import Context
from control.controllers.ephemeral_volumes import EphemeralVolumeController
from control.controllers.manager import Runnable
from control.controllers.storage_protection import (
    RETRY_SECONDS,
    AttributesClassProtectionController,
    ClaimProtectionController,
    VolumeProtectionController,
)
from kube import serialize
from kube.api import core_v1, meta_v1, storage_v1
from tests.support.clock import FakeClock, settle
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


async def test_no_pod_is_decoded_as_a_whole_or_looked_through_for_a_claim_that_nobody_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = LaggingAPI()
    claim(api, "data")
    for number in range(50):
        pod(api, f"p{number}", "other")
    async with working(api, FakeClock(), ClaimProtectionController):
        decoded: list[Any] = []
        looked_at: list[Any] = []
        for module, name, reported in ((serialize, "decode", decoded), (storage_protection, "claim_names", looked_at)):
            original = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *args, to=reported, of=original: (to.append(args[-1]), of(*args))[1]
            )
        await delete(api, Claim, "data", namespace="ns")
        await settle(200)
        assert api.read(Claim, "data", "ns") is None
        assert core_v1.Pod not in decoded and decoded.count(storage_protection._Pod) == 50
        assert not any(isinstance(each, core_v1.Pod) for each in looked_at) and len(looked_at) == 50


async def test_the_claim_of_an_ephemeral_volume_stays_while_its_pod_runs() -> None:
    api = LaggingAPI()
    claim(api, "p-scratch")
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    make(api, core_v1.Pod, "p", namespace="ns", spec={"nodeName": "a", "containers": [], "volumes": volumes})
    async with working(api, FakeClock(), ClaimProtectionController):
        await delete(api, Claim, "p-scratch", namespace="ns")
        assert api.read(Claim, "p-scratch", "ns") is not None and lists_of_pods(api) == 0
        await delete(api, core_v1.Pod, "p", namespace="ns")
        assert api.read(Claim, "p-scratch", "ns") is None


def terminating_pod(api: LaggingAPI, grace_period: int) -> None:
    """Store a pod that a finalizer keeps, with the claim `data` and an ephemeral volume."""
    volumes = [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    metadata = {
        "name": "p",
        "namespace": "ns",
        "finalizers": ["foregroundDeletion"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": grace_period,
    }
    spec = {"nodeName": "a", "containers": [], "volumes": volumes}
    api.put(msgspec.convert({"metadata": metadata, "spec": spec}, core_v1.Pod))


async def test_a_pod_that_is_shut_down_uses_named_claims_but_not_those_of_its_ephemeral_volumes() -> None:
    api, clock = LaggingAPI(), FakeClock()
    names = ("p-scratch", "data")
    for name in names:
        claim(api, name)
    terminating_pod(api, 30)
    async with working(api, clock, ClaimProtectionController):
        await delete(api, Claim, *names, namespace="ns")
        assert {each.metadata.name for each in api.everything(Claim)} == set(names)
        terminating_pod(api, 0)
        await settle(200)
        assert [each.metadata.name for each in api.everything(Claim)] == ["data"]


async def test_a_pod_that_is_shut_down_and_not_in_the_cache_uses_named_claims_only() -> None:
    api, clock = LaggingAPI(), FakeClock()
    for name in ("p-scratch", "data"):
        claim(api, name)
    async with working(api, clock, ClaimProtectionController):
        api.hold(core_v1.Pod)
        terminating_pod(api, 0)
        await delete(api, Claim, "p-scratch", "data", namespace="ns")
        await settle(200)
        assert [each.metadata.name for each in api.everything(Claim)] == ["data"]


async def test_a_claim_that_went_is_made_anew_for_its_pod_and_no_other_pod_is_looked_through() -> None:
    api = LaggingAPI()
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    for name in ("p", "q"):
        make(api, core_v1.Pod, name, namespace="ns", spec={"containers": [], "volumes": volumes})
    context = Context(api.client(), FakeClock())
    controller = EphemeralVolumeController(context)
    for each in api.everything(core_v1.Pod):
        context.informers.of(core_v1.Pod)._set(f"ns/{each.metadata.name}", each)
    reported: list[str] = []
    controller.controller.enqueue = reported.append  # type: ignore[method-assign]
    claims = context.informers.of(Claim)
    gone = core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name="q-scratch", namespace="ns"))
    claims._set("ns/q-scratch", gone)
    context.informers.of(core_v1.Pod).list = None  # type: ignore[method-assign,assignment]
    claims._remove("ns/q-scratch", gone)
    assert reported == ["ns/q"]


async def test_a_volume_stays_that_was_bound_while_the_cache_lagged() -> None:
    await kept_in_use(VolumeProtectionController, core_v1.PersistentVolume, "kubernetes.io/pv-protection", bind)


@pytest.mark.parametrize("lagging", [True, False])
@pytest.mark.parametrize(
    "named",
    [
        {"spec": {"volumeAttributesClassName": "gold"}},
        {"status": {"currentVolumeAttributesClassName": "gold"}},
        {"status": {"modifyVolumeStatus": {"status": "InProgress", "targetVolumeAttributesClassName": "gold"}}},
    ],
)
async def test_an_attributes_class_stays_that_a_claim_names(named: dict[str, Any], lagging: bool) -> None:
    def use(api: LaggingAPI) -> None:
        if lagging:
            api.hold(Claim)
        make(api, Claim, "data", namespace="ns", **named)

    kind, finalizer = storage_v1.VolumeAttributesClass, "kubernetes.io/vac-protection"
    await kept_in_use(AttributesClassProtectionController, kind, finalizer, use)


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
