"""Custom resources with a scale subresource: autoscaled, and counted by disruption budgets, as built-in workloads are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.api import autoscaling_v2, core_v1, meta_v1, policy_v1
from kube.client import Client
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually, running

FLEETS = "/apis/example.com/v1/namespaces/default/fleets"
Both = tuple[ApiUnderTest, Client]


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": "fleets", "kind": "Fleet"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "fleets.example.com"}, "spec": spec}


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    """A server with controllers, and a fleet of four."""
    async with api_server(tmp_path) as server:
        client = server.client()
        async with running(server.controllers()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            assert (await server.request("POST", path, definition())).status == 201

            async def served() -> bool:
                return (await server.request("GET", FLEETS)).status == 200

            await eventually(served)
            fleet = {
                "apiVersion": "example.com/v1",
                "kind": "Fleet",
                "metadata": {"name": "f"},
                "spec": {"replicas": 4},
            }
            assert (await server.request("POST", FLEETS, fleet)).status == 201
            status = {"status": {"replicas": 4, "selector": "app=f"}}
            merge = {"Content-Type": "application/merge-patch+json"}
            assert (await server.request("PATCH", f"{FLEETS}/f/status", status, headers=merge)).status == 200
            yield server, client


async def test_an_autoscaler_keeps_a_custom_resource_within_its_bounds(both: Both) -> None:
    server, client = both
    reference = autoscaling_v2.CrossVersionObjectReference(api_version="example.com/v1", kind="Fleet", name="f")
    spec = autoscaling_v2.HorizontalPodAutoscalerSpec(max_replicas=3, scale_target_ref=reference)
    metadata = meta_v1.ObjectMeta(name="f", namespace="default")
    await client.create(autoscaling_v2.HorizontalPodAutoscaler(metadata=metadata, spec=spec))

    async def shrunk() -> bool:
        found: int = (await server.request("GET", f"{FLEETS}/f")).json["spec"]["replicas"]
        return found == 3

    await eventually(shrunk)

    async def reported() -> list[str]:
        events = (await client.list(core_v1.Event, "default")).items
        return [event.message or "" for event in events if event.reason == "SuccessfulRescale"]

    why = "New size: 3; reason: Current number of replicas above Spec.MaxReplicas"
    assert await eventually(reported) == [why]


async def test_an_autoscaler_reaches_nothing_outside_namespaces(both: Both) -> None:
    server, client = both
    definition_ = definition()
    definition_["metadata"]["name"] = "navies.example.com"
    definition_["spec"] |= {"scope": "Cluster", "names": {"plural": "navies", "kind": "Navy"}}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await server.request("POST", path, definition_)).status == 201
    navies = "/apis/example.com/v1/navies"
    navy = {"apiVersion": "example.com/v1", "kind": "Navy", "metadata": {"name": "n"}, "spec": {"replicas": 50}}

    async def made() -> bool:
        return (await server.request("POST", navies, navy)).status == 201

    await eventually(made)
    reference = autoscaling_v2.CrossVersionObjectReference(api_version="example.com/v1", kind="Navy", name="n")
    spec = autoscaling_v2.HorizontalPodAutoscalerSpec(max_replicas=1, scale_target_ref=reference)
    metadata = meta_v1.ObjectMeta(name="n", namespace="default")
    await client.create(autoscaling_v2.HorizontalPodAutoscaler(metadata=metadata, spec=spec))

    async def conditions() -> list[autoscaling_v2.HorizontalPodAutoscalerCondition]:
        return (await client.get(autoscaling_v2.HorizontalPodAutoscaler, "n", "default")).status.conditions

    (condition,) = await eventually(conditions)
    missing = "the server could not find the requested resource"
    assert (condition.type, condition.status, condition.reason) == ("AbleToScale", "False", "FailedGetScale")
    assert condition.message == f"the HPA controller was unable to get the target's current scale: {missing}"
    assert (await server.request("GET", f"{navies}/n")).json["spec"]["replicas"] == 50

    async def event() -> bool:
        found = (await client.list(core_v1.Event, "default")).items
        return ("FailedGetScale", missing) in {(e.reason, e.message) for e in found}

    await eventually(event)


async def test_a_budget_counts_by_the_scale_of_what_owns_the_pods(both: Both) -> None:
    server, client = both
    uid = (await server.request("GET", f"{FLEETS}/f")).json["metadata"]["uid"]
    owner = meta_v1.OwnerReference(api_version="example.com/v1", kind="Fleet", name="f", uid=uid, controller=True)
    ready = core_v1.PodCondition(type="Ready", status="True")
    for number in range(4):
        metadata = meta_v1.ObjectMeta(
            name=f"f-{number}", namespace="default", labels={"app": "f"}, owner_references=[owner]
        )
        made = await client.create(
            core_v1.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image="x")]))
        )
        made.status = core_v1.PodStatus(phase="Running", conditions=[ready])
        await client.update_status(made)
    selector = meta_v1.LabelSelector(match_labels={"app": "f"})
    spec = policy_v1.PodDisruptionBudgetSpec(max_unavailable="25%", selector=selector)
    metadata = meta_v1.ObjectMeta(name="f", namespace="default")
    await client.create(policy_v1.PodDisruptionBudget(metadata=metadata, spec=spec))

    async def counted() -> bool:
        status = (await client.get(policy_v1.PodDisruptionBudget, "f", "default")).status
        return (status.expected_pods, status.desired_healthy, status.disruptions_allowed) == (4, 3, 1)

    await eventually(counted)


async def test_a_custom_scale_is_applied_to_the_place_of_its_replicas(both: Both) -> None:
    server, _ = both
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "f"}, "spec": {"replicas": 6}}
    path, kind = f"{FLEETS}/f", {"Content-Type": "application/apply-patch+yaml"}
    answer = await server.request("PATCH", f"{path}/scale?fieldManager=s&force=true", scale, headers=kind)
    assert (answer.status, answer.json["spec"]) == (200, {"replicas": 6})
    fleet = (await server.request("GET", path)).json
    assert fleet["spec"]["replicas"] == 6
    mine = next(entry for entry in fleet["metadata"]["managedFields"] if entry["manager"] == "s")
    assert (mine["operation"], mine["apiVersion"], mine["subresource"]) == ("Apply", "example.com/v1", "scale")
    assert mine["fieldsV1"] == {"f:spec": {"f:replicas": {}}}


@pytest.mark.parametrize(
    ("fleet", "status", "message"),
    [
        (
            {"spec": {"replicas": "three"}},
            400,
            ".spec.replicas accessor error: three is of the type string, expected int64",
        ),
        ({"spec": {"replicas": ["9"] * 100}}, 400, "is of the type []interface {}, expected int64"),
        ({"spec": {"replicas": "9" * 5000}}, 400, "is of the type string, expected int64"),
        ({"spec": "three"}, 500, 'the spec replicas field ".spec.replicas" does not exist'),
    ],
)
async def test_replicas_that_are_no_integer_are_reported(
    both: Both, fleet: dict[str, Any], status: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = both
    body = {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "odd"}, **fleet}
    assert (await server.request("POST", FLEETS, body)).status == 201
    merge = {"Content-Type": "application/merge-patch+json"}
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "odd"}, "spec": {"replicas": 1}}
    got = await server.request("GET", f"{FLEETS}/odd/scale")
    patched = await server.request("PATCH", f"{FLEETS}/odd/scale", {"spec": {"replicas": 1}}, headers=merge)
    for answer in (got, patched):
        assert answer.status == status and message in answer.json["message"], answer.body[:300]
        assert len(answer.body) < 1000
    assert (await server.request("PUT", f"{FLEETS}/odd/scale", scale)).status in (200, 400, 500)
    assert "Traceback" not in caplog.text
