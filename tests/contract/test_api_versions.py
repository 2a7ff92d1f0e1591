"""Resources that two group versions show: one object, seen in either form, written through either."""

from pathlib import Path
from typing import Any

from tests.support.control import api_server

V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
CORE = "/api/v1/namespaces/default/events"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def autoscaler(**spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5, **spec}}


async def test_an_autoscaler_of_v1_is_one_of_v2(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        made = await server.request("POST", V1, autoscaler(targetCPUUtilizationPercentage=60))
        assert made.status == 201, made.json
        assert made.json["apiVersion"] == "autoscaling/v1" and made.json["spec"]["targetCPUUtilizationPercentage"] == 60
        newer = (await server.request("GET", f"{V2}/web")).json
        assert newer["apiVersion"] == "autoscaling/v2" and newer["metadata"]["uid"] == made.json["metadata"]["uid"]
        target = {"type": "Utilization", "averageUtilization": 60}
        assert newer["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        patch = {"spec": {"targetCPUUtilizationPercentage": 70}}
        headers = {"Content-Type": "application/merge-patch+json"}
        patched = await server.request("PATCH", f"{V1}/web", patch, headers=headers)
        assert patched.status == 200 and patched.json["spec"]["targetCPUUtilizationPercentage"] == 70
        newer = (await server.request("GET", f"{V2}/web")).json
        assert newer["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
        memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
        newer["spec"]["metrics"].append({"type": "Resource", "resource": memory})
        assert (await server.request("PUT", f"{V2}/web", newer)).status == 200
        older = (await server.request("GET", f"{V1}/web")).json
        assert (await server.request("PUT", f"{V1}/web", older)).status == 200
        assert (await server.request("GET", f"{V2}/web")).json["spec"]["metrics"] == newer["spec"]["metrics"]
        listing = (await server.request("GET", V1)).json
        assert listing["apiVersion"] == "autoscaling/v1" and "apiVersion" not in listing["items"][0]


async def test_an_event_has_two_faces(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        regarding = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"}
        body = {
            "metadata": {"name": "e"},
            "regarding": regarding,
            "reason": "Testing",
            "note": "a note",
            "type": "Normal",
            "action": "Test",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/test",
            "reportingInstance": "one",
        }
        made = await server.request("POST", EVENTS, body)
        assert made.status == 201 and made.json["note"] == "a note", made.json
        core = (await server.request("GET", f"{CORE}/e")).json
        assert core["apiVersion"] == "v1" and core["message"] == "a note"
        assert core["involvedObject"]["name"] == "p" and core["reportingComponent"] == "example.com/test"


async def test_events_of_events_k8s_io_have_reporter_and_time_and_no_deprecated_fields(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        bare = {"metadata": {"name": "e"}, "regarding": {"namespace": "default"}, "deprecatedCount": 3}
        refused = await server.request("POST", EVENTS, bare)
        assert refused.status == 422
        assert {c["field"]: c["message"] for c in refused.json["details"]["causes"]} == {
            "eventTime": "Required value",
            "type": 'Invalid value: "": has invalid value: ',
            "count": 'Invalid value: "": needs to be unset',
        }
        old = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
        assert (await server.request("POST", CORE, old)).status == 201
        timed = old | {"metadata": {"name": "f"}, "eventTime": "2026-01-01T00:00:00.000000Z", "message": "m" * 1025}
        refused = await server.request("POST", CORE, timed)
        assert [c["field"] for c in refused.json["details"]["causes"]] == [
            "reportingComponent",
            "reportingComponent",
            "reportingComponent",
            "reportingInstance",
            "action",
            "reason",
            "message",
        ]
        patched = await server.request(
            "PATCH", f"{EVENTS}/e", {"note": "other"}, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert patched.status == 422 and "message: Invalid value" in patched.json["message"]
