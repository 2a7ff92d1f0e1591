"""Claims of a StatefulSet's pods that go while their pods come: the real controller on an API in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from control.controllers.statefulset import StatefulSetController, identity
from kube import serialize
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Response
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.memory_api import MemoryAPI
from tests.support.working import working

from .makers import template

KINDS: dict[str, type[Any]] = {
    "pods": core_v1.Pod,
    "persistentvolumeclaims": core_v1.PersistentVolumeClaim,
    "controllerrevisions": apps_v1.ControllerRevision,
    "statefulsets": apps_v1.StatefulSet,
}


class World(MemoryAPI):
    """Accepts the writes of a StatefulSet's controller; each pod has a UID of its own."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.made = 0

    def found(self, kind: str) -> list[Any]:
        group = "/api/v1/" if kind in ("pods", "persistentvolumeclaims") else "/apis/apps/v1/"
        return [serialize.decode(body, KINDS[kind]) for body in self.objects.get(group + kind, {}).values()]

    @property
    def pod(self) -> Any:
        return next(iter(self.found("pods")), None)

    @property
    def claim(self) -> Any:
        return next(iter(self.found("persistentvolumeclaims")), None)

    async def scale(self, replicas: int) -> None:
        sts = self.found("statefulsets")[0]
        self.put(msgspec.structs.replace(sts, spec=msgspec.structs.replace(sts.spec, replicas=replicas)))
        await self.clock.advance(60)

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        parts = path.removesuffix("/status").split("/")
        kind = next((part for part in parts if part in KINDS), "")
        if not kind or method == "GET":
            return await super().request(method, path, body=body, **options)
        if method == "DELETE":
            gone = next(obj for obj in self.found(kind) if obj.metadata.name == parts[-1])
            self.remove(gone)
            return Response(200, {}, b"{}")
        written = serialize.convert(json.loads(body), KINDS[kind])
        if method == "POST":
            if any(obj.metadata.name == written.metadata.name for obj in self.found(kind)):
                raise StatusError(409, "AlreadyExists", f"{written.metadata.name} already exists")
            self.made += 1
            written.metadata.uid = f"uid-{self.made}"
        self.put(written)
        return Response(201, {}, serialize.encode(written))


def desired(**policy: str) -> apps_v1.StatefulSet:
    return apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="db", namespace="default", uid="uid-db", generation=1),
        spec=apps_v1.StatefulSetSpec(
            replicas=1,
            service_name="db",
            template=template(),
            selector=meta_v1.LabelSelector(match_labels={"app": "web"}),
            volume_claim_templates=[core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name="data"))],
            persistent_volume_claim_retention_policy=(
                apps_v1.StatefulSetPersistentVolumeClaimRetentionPolicy(**policy) if policy else None
            ),
        ),
    )


@contextlib.asynccontextmanager
async def world(**policy: str) -> AsyncIterator[World]:
    made = World(FakeClock())
    made.put(desired(**policy))
    async with working(made, made.clock, StatefulSetController):
        await made.clock.advance(1)
        assert made.pod is not None and made.claim is not None
        yield made


async def test_a_pod_waits_until_the_claim_of_the_pod_before_it_is_collected() -> None:
    async with world(when_scaled="Delete", when_deleted="Retain") as made:
        await made.scale(0)
        claim = made.claim
        assert made.pod is None and claim is not None
        assert [owner.name for owner in claim.metadata.owner_references] == ["db-0"]
        await made.scale(1)
        assert made.pod is None, "it would be made for a claim that the garbage collector is about to delete"
        made.remove(claim)  # as the garbage collector does
        await made.clock.advance(1)
        assert made.pod is not None and made.claim is not None
        assert made.claim.metadata.uid != claim.metadata.uid and not made.claim.metadata.owner_references


@pytest.mark.parametrize("management", ["OrderedReady", "Parallel"])
async def test_a_pod_waits_until_a_claim_that_is_being_deleted_has_gone(management: str) -> None:
    async with world() as made:
        sts, claim, pod = made.found("statefulsets")[0], made.claim, made.pod
        sts.spec.pod_management_policy = management
        made.put(sts)
        claim.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        made.put(claim)
        made.remove(pod)
        await made.clock.advance(60)
        assert made.pod is None
        made.remove(claim)
        await made.clock.advance(1)
        assert made.pod is not None and made.claim is not None


async def test_a_claim_that_has_gone_is_made_again_for_a_pod_that_has_not_begun() -> None:
    async with world() as made:
        made.remove(made.claim)
        await made.clock.advance(1)
        assert made.claim is not None


async def test_a_claim_that_has_gone_is_not_made_again_for_a_pod_that_runs() -> None:
    async with world() as made:
        pod = made.pod
        assert pod is not None
        pod.status = core_v1.PodStatus(phase="Running")
        made.put(pod)
        made.remove(made.claim)
        await made.clock.advance(60)
        assert made.claim is None


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("data-web-0", ["web"]),
        ("data-web-12", ["web"]),
        ("data-web-x-1", ["web-x"]),
        ("data-web-", []),
        ("data-web-1x", []),
    ],
)
def test_a_claim_belongs_to_the_set_in_its_name(name: str, sets: list[str]) -> None:
    known = [apps_v1.StatefulSet(metadata=meta_v1.ObjectMeta(name=n, namespace="ns")) for n in ("web", "web-x", "db")]
    for each in known:
        each.spec.volume_claim_templates = [
            core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name=template)) for template in ("data", "log")
        ]
    prefix = identity.claim_prefix(f"ns/{name}")
    assert [each.metadata.name for each in known if prefix in identity.claim_prefixes(each)] == sets
