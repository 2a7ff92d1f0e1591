"""Table rows of kinds without a module of their own."""

from __future__ import annotations

from typing import Any

from kube.json_object import Object
from tests.unit.control.registry.strategies import cells, created, strategy_of


def obj(api_version: str, kind: str, name: str = "x", **parts: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-02T11:00:00Z"},
        **parts,
    }


def binding(role: Object, *subjects: Object, kind: str = "RoleBinding") -> Object:
    return obj("rbac.authorization.k8s.io/v1", kind, roleRef=role, subjects=list(subjects))


def claim(**spec: Any) -> Object:
    base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return obj("v1", "PersistentVolumeClaim", spec={**base, **spec})


def endpoints(ip: str) -> Object:
    return obj("v1", "Endpoints", subsets=[{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}])


EVENT = obj(
    "v1",
    "Event",
    involvedObject={"kind": "Pod", "name": "web", "namespace": "default", "fieldPath": "spec.containers{c}"},
    type="Warning",
    reason="BackOff",
    message="Back-off restarting\n",
    source={"component": "kubelet", "host": "n1"},
    count=4,
    firstTimestamp="2026-01-02T11:00:00Z",
    lastTimestamp="2026-01-02T11:58:00Z",
)


def test_an_event_prints_when_what_and_about_what() -> None:
    assert cells(EVENT) == {
        "Last Seen": "2m",
        "Type": "Warning",
        "Reason": "BackOff",
        "Object": "pod/web",
        "Subobject": "spec.containers{c}",
        "Source": "kubelet, n1",
        "Message": "Back-off restarting",
        "First Seen": "60m",
        "Count": 4,
        "Name": "x",
    }
    series = {**EVENT, "series": {"count": 9, "lastObservedTime": "2026-01-02T11:59:50.000000Z"}}
    assert (cells(series)["Last Seen"], cells(series)["Count"]) == ("10s", 9)
    fields = strategy_of(EVENT).fields(EVENT)
    assert (fields["involvedObject.name"], fields["source"], fields["type"]) == ("web", "kubelet", "Warning")


def test_a_node_prints_readiness_roles_and_addresses() -> None:
    node = obj(
        "v1",
        "Node",
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "192.168.0.9"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian", "kernelVersion": "6.1"},
        },
    )
    node["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "edge"}
    row = cells(node)
    assert list(row.values())[1:7] == [
        "Ready,SchedulingDisabled",
        "control-plane,edge",
        "60m",
        "v1.36.0",
        "192.168.0.9",
        "<none>",
    ]
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert cells(node)["Status"] == "NotReady,SchedulingDisabled"


def test_endpoints_print_three_and_count_the_rest() -> None:
    five = [{"ip": f"10.0.0.{i}"} for i in range(5)]
    found = obj("v1", "Endpoints", subsets=[{"addresses": five, "ports": [{"port": 80}]}])
    assert cells(found)["Endpoints"] == "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."
    sliced = obj(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        addressType="IPv4",
        ports=[{"port": 80}, {"name": "x"}],
        endpoints=[{"addresses": [f"10.0.0.{i}"]} for i in range(4)],
    )
    row = cells(sliced)
    assert (row["Ports"], row["Endpoints"]) == ("80,x", "10.0.0.0,10.0.0.1,10.0.0.2 + 1 more...")
    assert cells(obj("v1", "Endpoints"))["Endpoints"] == "<none>"


def test_an_autoscaler_prints_what_it_measures_and_wants() -> None:
    found = created(
        obj(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            spec={"maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        )
    )
    assert cells(found)["Targets"] == "cpu: <unknown>/80%"
    found["status"]["currentMetrics"] = [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}
    ]
    assert cells(found)["Targets"] == "cpu: 7%/80%"
    found["spec"]["metrics"].append(
        {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "10"}}}
    )
    assert cells(found)["Targets"] == "cpu: 7%/80%, <unknown>/10"


def test_a_quota_prints_requests_apart_from_limits() -> None:
    status = {"hard": {"limits.cpu": "2", "pods": "10"}, "used": {"limits.cpu": "500m", "pods": "3"}}
    row = cells(obj("v1", "ResourceQuota", status=status))
    assert (row["Request"], row["Limit"]) == ("pods: 3/10", "limits.cpu: 500m/2")


def test_a_claim_prints_its_size_once_it_has_a_volume() -> None:
    found = created(claim(volumeName="pv1", storageClassName="fast"))
    found["status"] = {"phase": "Bound", "capacity": {"storage": "2048Mi"}, "accessModes": ["ReadWriteOnce"]}
    assert list(cells(found).values())[1:6] == ["Bound", "pv1", "2Gi", "RWO", "fast"]


def test_a_role_binding_prints_whom_it_gives_what() -> None:
    found = binding(
        {"kind": "Role", "name": "r"},
        {"kind": "User", "name": "jane"},
        {"kind": "User", "name": "joe"},
        {"kind": "ServiceAccount", "name": "sa", "namespace": "default"},
    )
    assert list(cells(found).values()) == ["x", "Role/r", "60m", "jane, joe", "", "default/sa"]
