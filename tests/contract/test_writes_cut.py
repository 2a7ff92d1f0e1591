"""Requests that are cancelled at any of their suspensions leave objects, quotas, budgets and allocations whole.

A client may shorten its request's time (`?timeout=`), a server that ends cancels what it serves. Each case sends one request
again and again, cancelled at the first suspension, the second, and so on until it ends by itself: once before what is waited
for is done, once after it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from control.admission import quota as quotas
from control.auth.user import UserInfo
from control.controllers.quota_totals import Totals
from kube.client import APPLY, JSON, MERGE
from kube.json_object import Object
from tests.support.api_objects import pod
from tests.support.cancelled_writes import check_allocations, check_whole, cut, settled
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.custom_resources import DEFINITIONS, GROUP, definition, install, obj

CORE, NS = "/api/v1", "/api/v1/namespaces/cut"
CUSTOM = f"/apis/{GROUP}/v1/namespaces/cut/crontabs"
BUDGETS = "/apis/policy/v1/namespaces/cut/poddisruptionbudgets"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Sent:
    """One request; `{}` in its path and body stands for the case's number."""

    method: str
    path: str
    body: Object | None = None
    type: str = JSON


@dataclass(frozen=True)
class Case:
    """`before` is sent as a whole, `cut` is cut off."""

    name: str
    cut: Sent
    before: tuple[Sent, ...] = ()


def created(path: str, body: Object) -> Sent:
    return Sent("POST", path, body)


def named(kind: str, api_version: str = "v1", **more: Any) -> Object:
    meta = {"name": "x-{}", **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **more}


HELD = {"finalizers": ["example.com/held"]}
POD = pod("x-{}", labels={"app": "x"})
OTHER_POD = pod("y-{}", labels={"app": "x"})
JOB = named(
    "Job",
    "batch/v1",
    metadata=HELD,
    spec={"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
)
CLASS = {"metadata": {"name": "growing"}, "provisioner": "example.com/p", "allowVolumeExpansion": True}
CLAIM = named(
    "PersistentVolumeClaim",
    spec={
        "storageClassName": "growing",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
)
SERVICE = named("Service", spec={"type": "NodePort", "ports": [{"port": 80}]})
OTHER_SERVICE = SERVICE | {"metadata": {"name": "y-{}"}}
SERVICES, PODS, CLAIMS = f"{NS}/services", f"{NS}/pods", f"{NS}/persistentvolumeclaims"
JOBS = "/apis/batch/v1/namespaces/cut/jobs"
RANGES, ADDRESSES = "/apis/networking.k8s.io/v1/servicecidrs", "/apis/networking.k8s.io/v1/ipaddresses"
RANGE = named("ServiceCIDR", "networking.k8s.io/v1", spec={"cidrs": ["10.97.0.0/24"]})
PARENT = {"resource": "services", "namespace": "cut", "name": "x-{}"}
ADDRESS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "IPAddress",
    "metadata": {"name": "10.96.7.{}", "labels": {"ipaddress.kubernetes.io/managed-by": "test"}},
    "spec": {"parentRef": PARENT},
}
CRON = obj("Crontab", "x-{}")
DEFINITION = definition("X{}", group="cut.example.com")
RELEASED: Object = {"metadata": {"finalizers": None}}
BINDING = named("Binding", target={"apiVersion": "v1", "kind": "Node", "name": "n1"})
EVICTION = named("Eviction", "policy/v1")
RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}

CASES = (
    Case("create a pod under quota", created(PODS, POD)),
    Case("delete a pod under quota", Sent("DELETE", f"{PODS}/x-{{}}?gracePeriodSeconds=0"), (created(PODS, POD),)),
    Case("bind a pod", created(f"{PODS}/x-{{}}/binding", BINDING), (created(PODS, POD),)),
    Case(
        "evict a pod under a budget",
        created(f"{PODS}/x-{{}}/eviction", EVICTION),
        (created(PODS, POD), Sent("PATCH", f"{PODS}/x-{{}}/status", RUNNING, MERGE)),
    ),
    Case(
        "delete a collection of pods",
        Sent("DELETE", f"{PODS}?labelSelector=app"),
        (created(PODS, POD), created(PODS, OTHER_POD)),
    ),
    Case("create a claim under quota", created(CLAIMS, CLAIM)),
    Case(
        "grow a claim under quota",
        Sent("PATCH", f"{CLAIMS}/x-{{}}", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, MERGE),
        (created(CLAIMS, CLAIM), Sent("PATCH", f"{CLAIMS}/x-{{}}/status", {"status": {"phase": "Bound"}}, MERGE)),
    ),
    Case("delete a claim", Sent("DELETE", f"{CLAIMS}/x-{{}}"), (created(CLAIMS, CLAIM),)),
    Case("create a Job", created(JOBS, JOB)),
    Case("mark a Job that a finalizer holds", Sent("DELETE", f"{JOBS}/x-{{}}"), (created(JOBS, JOB),)),
    Case(
        "take a Job's last finalizer",
        Sent("PATCH", f"{JOBS}/x-{{}}", RELEASED, MERGE),
        (created(JOBS, JOB), Sent("DELETE", f"{JOBS}/x-{{}}")),
    ),
    Case("create a namespace", created(f"{CORE}/namespaces", named("Namespace"))),
    Case(
        "delete a namespace",
        Sent("DELETE", f"{CORE}/namespaces/x-{{}}"),
        (created(f"{CORE}/namespaces", named("Namespace")),),
    ),
    Case(
        "finalize a namespace",
        Sent("PUT", f"{CORE}/namespaces/x-{{}}/finalize", named("Namespace", spec={"finalizers": []})),
        (created(f"{CORE}/namespaces", named("Namespace")), Sent("DELETE", f"{CORE}/namespaces/x-{{}}")),
    ),
    Case("create a Service under quota", created(SERVICES, SERVICE)),
    Case("apply a Service", Sent("PATCH", f"{SERVICES}/x-{{}}?fieldManager=test", SERVICE, APPLY)),
    Case(
        "make a NodePort Service headless",
        Sent(
            "PATCH",
            f"{SERVICES}/x-{{}}",
            {
                "spec": {
                    "type": "ExternalName",
                    "externalName": "a.b",
                    "clusterIP": None,
                    "clusterIPs": None,
                    "ports": None,
                }
            },
            MERGE,
        ),
        (created(SERVICES, SERVICE),),
    ),
    Case(
        "delete a collection of Services",
        Sent("DELETE", SERVICES),
        (created(SERVICES, SERVICE), created(SERVICES, OTHER_SERVICE)),
    ),
    Case("create a ServiceCIDR", created(RANGES, RANGE)),
    Case("delete a ServiceCIDR", Sent("DELETE", f"{RANGES}/x-{{}}"), (created(RANGES, RANGE),)),
    Case("create a custom resource", created(CUSTOM, CRON)),
    Case("apply a custom resource", Sent("PATCH", f"{CUSTOM}/x-{{}}?fieldManager=test", CRON, APPLY)),
    Case(
        "update a custom resource",
        Sent("PATCH", f"{CUSTOM}/x-{{}}", {"spec": {"replicas": 3}}, MERGE),
        (created(CUSTOM, CRON),),
    ),
    Case("delete a custom resource", Sent("DELETE", f"{CUSTOM}/x-{{}}"), (created(CUSTOM, CRON),)),
    Case("create a definition", created(DEFINITIONS, DEFINITION)),
    Case(
        "delete a definition",
        Sent("DELETE", f"{DEFINITIONS}/x{{}}s.cut.example.com"),
        (created(DEFINITIONS, DEFINITION),),
    ),
)


class Site:
    """A server without controllers, a quota and a budget over the namespace `cut`, and what sends requests to it."""

    def __init__(self, server: ApiUnderTest) -> None:
        self.server = server
        self._transport = server.api.client(UserInfo(ADMIN[0], groups=ADMIN[1])).transport

    async def send(self, sent: Sent, number: int) -> Any:
        body = b"" if sent.body is None else json.dumps(sent.body).replace("{}", str(number)).encode()
        path = sent.path.replace("{}", str(number))
        return await self._transport.request(sent.method, path, headers={"Content-Type": sent.type}, body=body)

    async def done(self, sent: Sent, number: int) -> Object:
        answer = await self.send(sent, number)
        assert answer.status in (200, 201), answer.body
        found: Object = json.loads(answer.body)
        return found

    async def objects(self, path: str) -> list[Object]:
        items: list[Object] = (await self.done(Sent("GET", path), 0))["items"]
        return items


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with api_server(tmp_path_factory.mktemp("cut"), disabled_admission=("ServiceAccount",)) as server:
        await install(server, definition("Crontab"))
        made = Site(server)
        await made.done(created(f"{CORE}/namespaces", {"metadata": {"name": "cut"}}), 0)
        await made.done(created("/apis/storage.k8s.io/v1/storageclasses", CLASS), 0)
        hard = {"pods": "1000", "services": "1000", "services.nodeports": "1000", "requests.storage": "1Ti"}
        quota = await made.done(created(f"{NS}/resourcequotas", named("ResourceQuota", spec={"hard": hard})), 0)
        quota["status"] = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        await made.done(Sent("PUT", f"{NS}/resourcequotas/x-0/status", quota), 0)
        selector = {"matchLabels": {"app": "x"}}
        budget = named("PodDisruptionBudget", "policy/v1", spec={"minAvailable": 0, "selector": selector})
        await made.done(created(BUDGETS, budget), 0)
        allowed = {
            "status": {
                "disruptionsAllowed": 1000,
                "observedGeneration": 1,
                "expectedPods": 0,
                "currentHealthy": 0,
                "desiredHealthy": 0,
            }
        }
        await made.done(Sent("PATCH", f"{BUDGETS}/x-0/status", allowed, MERGE), 0)
        yield made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_request_cut_off_anywhere_leaves_no_half_of_it(site: Site, case: Case) -> None:
    cuts = 0
    for late in (False, True):
        for suspension in itertools.count():
            number = next(NUMBERS)
            for sent in case.before:
                await site.done(sent, number)
            allowed, noted = await spent(site)
            was_cut = await cut(site.send(case.cut, number), suspension, late=late)
            cuts += was_cut
            await settled(site.server)
            await check_whole(site.server)
            check_allocations(site.server)
            await check_quota(site)
            now_allowed, now_noted = await spent(site)
            assert allowed - now_allowed == now_noted - noted, "a disruption was taken for nobody"
            answer = await site.send(case.cut, number)
            assert answer.status in AGAIN, (case.name, suspension, late, answer.body)
            if not was_cut:
                break
    assert cuts, "nothing was cut off"


NUMBERS = itertools.count(1)
AGAIN = (200, 201, 202, 404, 409)
"""The request sent once more is carried out, or finds that it was."""


async def check_quota(site: Site) -> None:
    """No object is there that its quota was not charged for."""
    (quota,) = await site.objects(f"{NS}/resourcequotas")
    used = quotas.parse(quota["status"]["used"], quota["status"]["used"])
    for target, path in (("pods", PODS), ("services", SERVICES), ("persistentvolumeclaims", CLAIMS)):
        totals = Totals([quota])
        for found in await site.objects(path):
            totals.add(target, found)
        for name, value in totals.of(quota).items():
            assert name not in used or used[name] >= value, name


async def spent(site: Site) -> tuple[int, int]:
    """Return (disruptions that the budget still allows, pods that it notes as evicted)."""
    (budget,) = await site.objects(BUDGETS)
    return budget["status"]["disruptionsAllowed"], len(budget["status"].get("disruptedPods") or {})
