"""The quota controller: its requests, and one pass for all quotas of a namespace."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from control.admission import quota as quotas
from control.admission import quota_claims
from control.controllers import quota_totals, resource_quota
from control.controllers.context import Context
from control.controllers.quota_counts import count_objects
from control.controllers.resource_quota import ResourceQuotaController
from control.controllers.step_counter import STEPS_PER_ITERATION
from kube.api import core_v1, meta_v1, resource_v1
from kube.client import Response
from kube.errors import StatusError
from kube.shared_informers import wait_until_listed
from kube.volume_binding import CLASS_ANNOTATION
from tests.support.clock import FakeClock, settle
from tests.support.hollow import running
from tests.support.product_world import World
from tests.support.working import working

from .makers import pod


def quota(name: str, scopes: tuple[str, ...] = (), **hard: str) -> core_v1.ResourceQuota:
    hard = {resource.replace("_", "/"): amount for resource, amount in hard.items()}
    spec = core_v1.ResourceQuotaSpec(hard=dict(hard), scopes=list(scopes))
    return core_v1.ResourceQuota(metadata=meta_v1.ObjectMeta(name=name, namespace="default"), spec=spec)


def used(api: World, name: str) -> dict[str, Any]:
    status = msgspec.json.decode(api.objects["/api/v1/resourcequotas"][f"default/{name}"])["status"]
    return status.get("used") or {}


class Asked(World):
    """Keeps what was asked for, and answers pages as a server does."""

    refused = ""
    tells_rest = True

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, dict[str, str]]] = []

    async def request(self, method: str, path: str, **options: Any) -> Any:
        query = dict(options.get("query") or {})
        if method == "GET" and "/namespaces/" in path:
            self.received.append((path, query))
        if self.refused and path.endswith(self.refused):
            raise StatusError(500, "InternalError", "conversion webhook failed")
        answer = await super().request(method, path, **options)
        return self._page(answer, query) if "limit" in query else answer

    def _page(self, answer: Any, query: dict[str, str]) -> Any:
        body = msgspec.json.decode(answer.body)
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        rest = len(body["items"]) - start - limit
        if rest > 0:
            body["metadata"]["continue"] = str(start + limit)
            if self.tells_rest:
                body["metadata"]["remainingItemCount"] = rest
        body["items"] = body["items"][start : start + limit]
        return Response(answer.status, answer.headers, msgspec.json.encode(body))


def fill(api: World, kind: Any, number: int) -> None:
    for n in range(number):
        api.put(kind(metadata=meta_v1.ObjectMeta(name=f"o{n}", namespace="default")))


async def test_counted_resources_are_listed_with_limit_1_once_for_all_quotas() -> None:
    api = Asked()
    fill(api, core_v1.ConfigMap, 7)
    api.put(quota("a", configmaps="9", count_secrets="3"))
    api.put(quota("b", configmaps="5", count_configmaps="5"))
    async with working(api, FakeClock(), ResourceQuotaController):
        await settle(200)
    assert used(api, "a") == {"configmaps": "7", "count/secrets": "0"}
    assert used(api, "b") == {"configmaps": "7", "count/configmaps": "7"}
    maps = [query for path, query in api.received if path.endswith("/configmaps")]
    assert maps and all(query == {"limit": "1"} for query in maps)


@pytest.mark.parametrize(("number", "requests"), [(0, 1), (1, 1), (350, 5)])
async def test_objects_are_counted_in_pages_if_the_server_omits_the_remaining_count(number: int, requests: int) -> None:
    api = Asked()
    api.tells_rest = False
    fill(api, core_v1.ConfigMap, number)
    failures: dict[str, StatusError] = {}
    assert await count_objects(api.client(), "default", ["configmaps"], failures) == {"configmaps": number}
    assert (len(api.received), failures) == (requests, {})


async def test_claims_for_devices_are_listed_in_pages() -> None:
    api = Asked()
    exactly = resource_v1.ExactDeviceRequest(device_class_name="c")
    devices = resource_v1.DeviceClaim(requests=[resource_v1.DeviceRequest(name="r", exactly=exactly)])
    for n in range(250):
        metadata = meta_v1.ObjectMeta(name=f"c{n}", namespace="default")
        api.put(resource_v1.ResourceClaim(metadata=metadata, spec=resource_v1.ResourceClaimSpec(devices=devices)))
    name = "c.deviceclass.resource.k8s.io/devices"
    api.put(quota("a", **{name: "1k"}))
    async with working(api, FakeClock(), ResourceQuotaController):
        await settle(400)
    assert used(api, "a") == {name: "250"}
    pages = [query for path, query in api.received if path.endswith("/resourceclaims")]
    assert [page.get("continue", "") for page in pages[:4]] == ["", "8", "24", "56"]


async def test_a_kind_that_cannot_be_listed_leaves_only_its_own_number_out() -> None:
    api = Asked()
    api.refused = "/secrets"
    fill(api, core_v1.ConfigMap, 2)
    api.put(quota("a", configmaps="9", secrets="3"))
    api.put(quota("b", configmaps="5"))
    async with working(api, FakeClock(), ResourceQuotaController):
        await settle(200)
    assert (used(api, "a"), used(api, "b")) == ({"configmaps": "2"}, {"configmaps": "2"})


async def test_a_number_that_cannot_be_counted_stays_and_the_others_of_its_quota_are_written() -> None:
    api, clock = Asked(), FakeClock()
    for number in range(3):
        api.put(pod(f"p{number}"))
    api.put(quota("a", pods="3", secrets="3"))
    fill(api, core_v1.Secret, 2)
    async with working(api, clock, ResourceQuotaController):
        await settle(200)
        await clock.advance(10)
        assert used(api, "a") == {"pods": "3", "secrets": "2"}
        api.refused = "/secrets"
        api.remove(pod("p0"))
        await settle(200)
        await clock.advance(60)
        assert used(api, "a") == {"pods": "2", "secrets": "2"}
        api.put(quota("a", pods="9", secrets="3", configmaps="1"))
        await settle(200)
        await clock.advance(60)
        status = msgspec.json.decode(api.objects["/api/v1/resourcequotas"]["default/a"])["status"]
        assert status["hard"] == {"pods": "9", "secrets": "3", "configmaps": "1"}
        api.refused = ""
        await clock.advance(600)
        assert used(api, "a") == {"pods": "2", "secrets": "2", "configmaps": "0"}


async def test_device_claims_that_cannot_be_listed_hold_up_the_quotas_that_count_them_and_no_others() -> None:
    api = Asked()
    api.refused = "/resourceclaims"
    api.put(pod("p"))
    api.put(quota("a", **{"c.deviceclass.resource.k8s.io/devices": "3"}))
    api.put(quota("b", pods="5"))
    async with working(api, FakeClock(), ResourceQuotaController):
        await settle(200)
    assert (used(api, "a"), used(api, "b")) == ({}, {"pods": "1"})


async def test_volume_claims_that_cannot_be_listed_hold_up_the_quotas_that_count_them_and_no_others() -> None:
    api, clock = Asked(), FakeClock()
    api.refused = "/persistentvolumeclaims"
    api.put(pod("p"))
    api.put(quota("a", persistentvolumeclaims="9"))
    api.put(quota("b", pods="5"))
    context = Context(api.client(), clock)
    with context.informers.requested() as needed:
        controller = ResourceQuotaController(context)
    async with running(context.informers.run()):
        await wait_until_listed("resourcequota", needed, clock)
        async with running(controller.run()):
            await clock.advance(1)
            assert (used(api, "a"), used(api, "b")) == ({}, {"pods": "1"})
            api.refused = ""
            await clock.advance(60)
            assert used(api, "a") == {"persistentvolumeclaims": "0"}


async def test_each_object_is_judged_once_however_many_quotas_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []

    def usage(target: str, obj: Any) -> quotas.Usage:
        judged.append(obj["metadata"]["name"])
        return real(target, obj)

    real = quotas.usage
    monkeypatch.setattr(quota_totals.quotas, "usage", usage)
    api = World()
    for n in range(20):
        api.put(pod(f"p{n}"))
    for n in range(30):
        api.put(quota(f"q{n}", pods="100"))
    api.put(quota("best", ("BestEffort",), pods="100"))
    api.put(quota("other", ("NotBestEffort",), pods="100"))
    controllers: list[ResourceQuotaController] = []

    def make(context: Any) -> ResourceQuotaController:
        controllers.append(ResourceQuotaController(context))
        return controllers[-1]

    async with working(api, FakeClock(), make):
        await settle(300)
        judged.clear()
        await controllers[0].reconcile("default")
    assert sorted(judged) == sorted(f"p{n}" for n in range(20))
    assert {name: used(api, name)["pods"] for name in ("q7", "best", "other")} == {
        "q7": "20",
        "best": "20",
        "other": "0",
    }


async def test_objects_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    api = World()
    for n in range(600):
        api.put(pod(f"p{n}"))
    api.put(quota("a", pods="1k"))
    seen: list[int] = []
    async with working(api, FakeClock(), ResourceQuotaController):
        added = 0

        def add(self: Any, target: str, obj: Any) -> None:
            nonlocal added
            added += 1

        await settle(100)
        monkeypatch.setattr(resource_quota.Totals, "add", add)
        api.put(quota("a", pods="2k"))
        for _ in range(100):
            await settle(1)
            seen.append(added)
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert seen[-1] >= 600 and max(steps) <= STEPS_PER_ITERATION


async def test_objects_that_take_longer_than_a_slice_are_counted_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control.event_loop.pacing.SLICE_SECONDS", 0)
    api, steps, done = World(), list[int](), 0

    def add(self: Any, target: str, obj: Any) -> None:
        nonlocal done
        done += 1

    monkeypatch.setattr(resource_quota.Totals, "add", add)
    for n in range(20):
        api.put(pod(f"p{n}"))
    async with working(api, FakeClock(), ResourceQuotaController):
        await settle(100)
        api.put(quota("a", pods="2k"))
        for _ in range(300):
            before = done
            await settle(1)
            steps.append(done - before)
    assert done >= 20 and max(steps) <= 1


def test_the_usage_of_a_claim_is_read_without_its_labels_and_selector() -> None:
    labels = {f"k{n}": "" for n in range(1000)}
    claim = core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="c", namespace="default", labels=labels, annotations=labels),
        spec=core_v1.PersistentVolumeClaimSpec(
            selector=meta_v1.LabelSelector(match_labels=labels), volume_attributes_class_name="gold"
        ),
    )
    shape = resource_quota._shape(claim)
    assert len(msgspec.json.encode(shape)) < 1000 and resource_quota._standing(claim)[1] == {"gold"}
    assert claim.spec.selector is not None and claim.metadata.labels == labels


def test_a_claim_is_counted_by_the_storage_class_that_its_annotation_names() -> None:
    claim = core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="c", namespace="default", annotations={CLASS_ANNOTATION: "gold"})
    )
    usage = quota_claims.volume_usage(resource_quota._shape(claim))
    assert usage["gold.storageclass.storage.k8s.io/persistentvolumeclaims"] == 1


async def test_a_pod_that_gets_a_deadline_moves_between_the_quotas_of_its_scopes() -> None:
    api = Asked()
    api.put(quota("with", ("Terminating",), pods="3"))
    api.put(quota("without", ("NotTerminating",), pods="3"))
    api.put(pod("p"))
    async with working(api, FakeClock(), ResourceQuotaController):
        await settle(200)
        assert used(api, "without") == {"pods": "1"} and used(api, "with") == {"pods": "0"}
        changed = pod("p")
        changed.spec.active_deadline_seconds = 3600
        api.put(changed)
        await settle(200)
        assert used(api, "without") == {"pods": "0"} and used(api, "with") == {"pods": "1"}


def test_a_resized_pod_is_counted_again() -> None:
    before, after = pod("p"), pod("p")
    after.spec.containers = [core_v1.Container(name="c", resources=core_v1.ResourceRequirements(requests={"cpu": "2"}))]
    assert resource_quota._charge_changed(before, after) and not resource_quota._charge_changed(before, pod("p"))
    infeasible = pod("p")
    infeasible.status.conditions = [core_v1.PodCondition(type="PodResizePending", status="True", reason="Infeasible")]
    assert resource_quota._charge_changed(before, infeasible)
    whole = pod("p")
    whole.status.allocated_resources = {"cpu": "1"}
    assert resource_quota._charge_changed(before, whole)
