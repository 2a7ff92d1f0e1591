"""Validation of Services, storage, quotas, limits, nodes and secrets: a change to a valid object, and the exact error."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import (
    container,
    created,
    pod,
    problems,
    service,
    strategy_of,
    update_problems,
)

BETA = "field is immutable, except for updating from beta label to GA"


def obj(kind: str, **parts: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "default"}, **parts}


def annotated(found: Object, **annotations: str) -> Object:
    found["metadata"]["annotations"] = {k.replace("__", "/").replace("_", "-"): v for k, v in annotations.items()}
    return found


def service_of(**spec: Any) -> Object:
    return service(**{"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilyPolicy": "SingleStack", **spec})


def volume(**spec: Any) -> Object:
    base = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    source = {} if {"csi", "local", "hostPath"} & spec.keys() else {"nfs": {"server": "s", "path": "/p"}}
    return obj("PersistentVolume", spec={**base, **source, **spec})


def claim(**spec: Any) -> Object:
    base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return obj("PersistentVolumeClaim", spec={**base, **spec})


def quota(hard: Object, *scopes: str, **selector: Any) -> Object:
    spec: Object = {"hard": hard, **({"scopes": list(scopes)} if scopes else {})}
    if selector:
        spec["scopeSelector"] = {"matchExpressions": [selector]}
    return obj("ResourceQuota", spec=spec)


def limits(kind: str, **parts: Any) -> Object:
    return obj("LimitRange", spec={"limits": [{"type": kind, **parts}]})


RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
SELECTOR = "spec.scopeSelector.matchExpressions"
AFFINITY = {
    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}
}
REFUSED = [
    (
        annotated(
            service_of(),
            service_kubernetes_io__topology_aware_hints="Auto",
        )
        | {
            "metadata": {
                "name": "x",
                "annotations": {
                    "service.kubernetes.io/topology-aware-hints": "Auto",
                    "service.kubernetes.io/topology-mode": "Disabled",
                },
            }
        },
        'metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "Disabled": must match '
        "annotations[service.kubernetes.io/topology-aware-hints] when both are specified",
    ),
    (
        service_of(type="LoadBalancer", loadBalancerSourceRanges=["somewhere"]),
        f'spec.LoadBalancerSourceRanges[0]: Invalid value: "somewhere": {CIDR}',
    ),
    (
        service_of() | {"metadata": {"name": "x", "annotations": {RANGES: "10.0.0.0/8"}}},
        f"metadata.annotations[{RANGES}]: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
    (
        service_of(type="LoadBalancer") | {"metadata": {"name": "x", "annotations": {RANGES: "10.0.0.0/8, all"}}},
        f'metadata.annotations[{RANGES}]: Invalid value: "all": {CIDR}',
    ),
    (
        volume(csi={"driver": "d"}),
        "spec.csi.volumeHandle: Required value",
    ),
    (
        volume(csi={"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "s"}}),
        "spec.csi.nodePublishSecretRef.namespace: Required value",
    ),
    (volume(local={}, nodeAffinity=AFFINITY), "spec.local.path: Required value"),
    (
        volume(local={"path": "/a/../b"}, nodeAffinity=AFFINITY),
        "spec.local.path: Invalid value: \"/a/../b\": must not contain '..'",
    ),
    (
        volume(volumeAttributesClassName="gold"),
        "spec.csi: Required value: has to be specified when using volumeAttributesClassName",
    ),
    (
        claim(
            dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
            dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"},
        ),
        'spec: Invalid value: "spec.dataSource": must match dataSourceRef',
    ),
    (
        quota({"services": "1"}, "Terminating"),
        'spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource',
    ),
    (quota({"pods": "1"}, "Odd"), 'spec.scopes: Invalid value: ["Odd"]: unsupported scope'),
    (
        quota({"pods": "1"}, "BestEffort", "NotBestEffort"),
        'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes',
    ),
    (
        quota({"pods": "1"}, scopeName="Odd", operator="Exists"),
        f'{SELECTOR}.scopeName: Invalid value: "Odd": unsupported scope',
    ),
    (
        quota({"pods": "1"}, scopeName="PriorityClass", operator="In"),
        f"{SELECTOR}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope "
        "selector",
    ),
    (
        quota({"pods": "1"}, scopeName="PriorityClass", operator="Exists", values=["a"]),
        f"{SELECTOR}.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope "
        "selector",
    ),
    (
        quota({"pods": "1"}, scopeName="Terminating", operator="In", values=["a"]),
        f"{SELECTOR}.operator: Invalid value: \"In\": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
        "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
        "ResourceQuotaScopeCrossNamespacePodAffinity",
    ),
    (
        limits("Container", max={"storage": "1Gi"}),
        'spec.limits[0].max[storage]: Invalid value: "storage": must be a standard resource for containers',
    ),
    (
        limits("Container", default={"example.com/gpu": "2"}, defaultRequest={"example.com/gpu": "1"}),
        'spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to defaultRequest '
        "value 1 in example.com/gpu",
    ),
    (
        obj("Node", spec={"podCIDRs": ["10.244.0.0/24", "10.244.1.0/24"]}),
        'spec.podCIDRs: Invalid value: ["10.244.0.0/24","10.244.1.0/24"]: may specify no more than one CIDR for each IP '
        "family",
    ),
    (
        obj("Secret", type="kubernetes.io/ssh-auth", data={"ssh-privatekey": ""}),
        "data[ssh-privatekey]: Required value",
    ),
]


@pytest.mark.parametrize(("found", "message"), REFUSED, ids=[f"{o['kind']} {m[:70]}" for o, m in REFUSED])
def test_a_bad_object_is_refused_in_upstreams_words(found: Object, message: str) -> None:
    assert message in problems(found)


def test_good_objects_are_accepted() -> None:
    for found in (
        volume(csi={"driver": "d.example.com", "volumeHandle": "h"}),
        volume(local={"path": "/mnt"}, nodeAffinity=AFFINITY),
        claim(dataSource={"kind": "PersistentVolumeClaim", "name": "a"}),
        quota({"pods": "1", "example.com/gpu": "1", "count/jobs.batch": "3"}, "Terminating"),
        quota({"pods": "1"}, scopeName="PriorityClass", operator="In", values=["high"]),
        quota({"requests.storage": "1Gi"}, "VolumeAttributesClass"),
        limits("PersistentVolumeClaim", min={"storage": "1Gi"}),
        obj("Node", spec={"podCIDRs": ["10.244.0.0/24", "fd00::/64"]}),
    ):
        assert problems(found) == []


CSI = {"driver": "d", "volumeHandle": "h"}
SECRET = {"name": "s", "namespace": "n"}
UPDATES = [
    (volume(csi=CSI), volume(csi={**CSI, "controllerExpandSecretRef": SECRET}), []),
    (
        volume(csi=CSI),
        volume(csi={**CSI, "volumeHandle": "other"}),
        [
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n"
            '-  csi.volumeHandle: "h"\n+  csi.volumeHandle: "other"'
        ],
    ),
    (volume(), volume(nodeAffinity=AFFINITY), []),
    (
        volume(nodeAffinity=AFFINITY),
        volume(),
        [f"nodeAffinity: Invalid value: null: {BETA}"],
    ),
    (
        volume(csi=CSI, volumeAttributesClassName="gold"),
        volume(csi=CSI),
        ["spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"],
    ),
    (
        service_of(type="LoadBalancer", healthCheckNodePort=0),
        service_of(type="LoadBalancer", loadBalancerClass="example.com/lb"),
        ['spec.loadBalancerClass: Invalid value: "example.com/lb": may not change once set'],
    ),
]


@pytest.mark.parametrize(("old", "new", "output"), UPDATES, ids=[f"{o['kind']} {s}"[:90] for o, _, s in UPDATES])
def test_what_may_change_of_a_volume_or_service(old: Object, new: Object, output: list[str]) -> None:
    assert update_problems(created(old), created(new)) == output


def test_old_ways_of_storage_and_accounts_are_warned_of() -> None:
    old_label = {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]
        }
    }
    found = volume(nodeAffinity=old_label, persistentVolumeReclaimPolicy="Recycle")
    assert strategy_of(found).warnings(created(found), None) == [
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since "
        'v1.14; use "kubernetes.io/os" instead',
        "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach "
        "is to use dynamic provisioning.",
    ]
    account = obj("ServiceAccount")
    account["metadata"]["annotations"] = {"kubernetes.io/enforce-mountable-secrets": "true"}
    output = (
        "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to "
        "isolate access to mounted secrets"
    )
    assert strategy_of(account).warnings(account, None) == [output]
    assert strategy_of(account).warnings(account, account) == []
    half = claim(resources={"requests": {"storage": "1500m"}})
    assert strategy_of(half).warnings(created(half), None) == [
        'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'
    ]


def test_fields_of_features_that_are_off_are_dropped() -> None:
    other = claim(dataSourceRef={"kind": "PersistentVolumeClaim", "name": "a", "namespace": "n"})
    assert "dataSourceRef" not in created(other)["spec"]
    pod = obj("Pod", spec={"containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": "g"}})
    assert "schedulingGroup" not in created(pod)["spec"]
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x", "namespace": "d"}}
    held = created(
        lease | {"spec": {"holderIdentity": "a", "preferredHolder": "b", "strategy": "OldestEmulationVersion"}}
    )
    assert held["spec"] == {"holderIdentity": "a"}
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "x"}}
    kept = created(driver | {"spec": {"preventPodSchedulingIfMissing": True, "attachRequired": False}})
    assert "preventPodSchedulingIfMissing" not in kept["spec"] and kept["spec"]["attachRequired"] is False


def test_hints_name_each_zone_and_node_once() -> None:
    def hinted(**hints: Any) -> Object:
        found = obj("EndpointSlice", addressType="IPv4", endpoints=[{"addresses": ["10.0.0.1"], "hints": hints}])
        return found | {"apiVersion": "discovery.k8s.io/v1"}

    path = "endpoints[0].hints"
    assert problems(hinted(forZones=[{"name": "a"}, {"name": "b"}], forNodes=[{"name": "n"}])) == []
    assert problems(hinted(forZones=[{"name": "a"}, {"name": "a"}])) == [
        f'{path}.forZones[1].name: Duplicate value: "a"'
    ]
    assert problems(hinted(forZones=[{"name": str(n)} for n in range(9)])) == [
        f"{path}.forZones: Too many: 9: must have at most 8 items"
    ]


def test_a_budgets_status_counts_no_less_than_nothing() -> None:
    budget = obj("PodDisruptionBudget", spec={"minAvailable": 1}) | {"apiVersion": "policy/v1"}
    old, new = created(budget), created(budget)
    new["status"]["disruptionsAllowed"] = -1
    assert update_problems(old, new, "status") == [
        "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_a_load_balancers_addresses_have_an_ip_mode() -> None:
    def answered(kind: str, **point: str) -> tuple[Object, Object]:
        old = created(service_of(type=kind))
        return old, {**old, "status": {"loadBalancer": {"ingress": [point]}}}

    path = "status.loadBalancer.ingress"
    old, new = answered("LoadBalancer", ip="192.0.2.1")
    assert update_problems(old, new, "status") == []
    strategy_of(new).default(new)
    assert new["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}]
    assert update_problems(*answered("LoadBalancer", hostname="a.b", ipMode="VIP"), "status") == [
        f"{path}[0].ipMode: Forbidden: may not be specified when `ip` is not set"
    ]
    assert update_problems(*answered("LoadBalancer", ip="192.0.2.1", ipMode="Odd"), "status") == [
        f'{path}[0].ipMode: Unsupported value: "Odd": supported values: "Proxy", "VIP"'
    ]
    assert update_problems(*answered("ClusterIP", ip="192.0.2.1"), "status") == [
        f"{path}: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
    ]


@pytest.mark.parametrize("amount", ["9" * 29, "9" * 900, "1e900", "9" * 900 + "Ei"])
@pytest.mark.parametrize("name", ["memory", "example.com/a", "hugepages-2Mi"])
def test_an_amount_of_any_length_is_judged(name: str, amount: str) -> None:
    requested = pod(containers=[container(resources={"limits": {name: amount}, "requests": {name: amount}})])
    assert not [text for text in problems(requested) if "must be an integer" in text]
    assert strategy_of(requested).warnings(created(requested), None) == []
