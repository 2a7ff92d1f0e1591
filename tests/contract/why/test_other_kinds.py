"""Services, workloads, claims, nodes, namespaces and extensions that do not work, each for a reason that people meet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.broken_clusters import NO_CAUSES, PROBE, Broken, Object, mended, pod, workload
from wherry.testing import AsyncCluster, Run


def service(
    name: str = "web", *, selector: dict[str, str] | None = None, target: int | str = 8080, **spec: Any
) -> Object:
    inner = {"selector": selector or {"app": "web"}, "ports": [{"port": 80, "targetPort": target}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": inner}


def web(**fields: Any) -> Object:
    return workload("Deployment", ports=[{"containerPort": 8080, "name": "http"}], **fields)


def object_of(api: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}


def claim(name: str = "data", **spec: Any) -> Object:
    inner = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return object_of("v1", "PersistentVolumeClaim", name, spec=inner)


def storage_class(name: str, mode: str = "Immediate") -> Object:
    return object_of("storage.k8s.io/v1", "StorageClass", name, provisioner="example.org/none", volumeBindingMode=mode)


async def _no_classes(cluster: AsyncCluster) -> None:
    for each in await cluster.list("storageclasses"):
        await cluster.delete(f"storageclass/{each['metadata']['name']}")


async def _quota(cluster: AsyncCluster) -> None:
    await cluster.apply(object_of("v1", "ResourceQuota", "small", spec={"hard": {"pods": "0"}}))
    await cluster.wait("resourcequota/small", lambda found: bool(found.get("status", {}).get("hard")))


async def _available(cluster: AsyncCluster) -> None:
    await cluster.wait("deployment/web", "Available")


async def _unready(cluster: AsyncCluster) -> None:
    cluster.pods.script("web-*", Run(ready=False), optional=True)


async def _failed_node(cluster: AsyncCluster) -> None:
    cluster.node("node-1").fail()


async def _budget(cluster: AsyncCluster) -> None:
    await _available(cluster)
    await cluster.wait("poddisruptionbudget/web", "status.currentHealthy=1")
    await cluster.patch("node/node-1", {"spec": {"unschedulable": True}})


async def _ending(cluster: AsyncCluster) -> None:
    await cluster.delete("namespace/shop")


def held_map() -> Object:
    metadata = {"name": "held", "namespace": "shop", "finalizers": ["example.org/hold"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def denying(name: str = "deny-all") -> Object:
    return object_of(
        "networking.k8s.io/v1", "NetworkPolicy", name, spec={"podSelector": {}, "policyTypes": ["Ingress"]}
    )


CASES = {
    "selector": Broken(
        "service/web",
        "its selector app=wbe selects no pod; the pods of deployment/web have app=web",
        "kubectl set selector service/web app=web -n default",
        [web(), service(selector={"app": "wbe"})],
        healthy=NO_CAUSES,
    ),
    "target port": Broken(
        "service/web",
        r"its port 80 leads to port 80 of its pods, which declare 8080 \(http\)",
        "kubectl patch service/web -n default -p",
        [web(), service(target=80)],
        healthy=NO_CAUSES,
    ),
    "policy": Broken(
        "service/web",
        "network policy deny-all lets no connection reach port 8080 of pod/web-",
        "kubectl patch networkpolicy/deny-all -n default --type=merge",
        [web(), service(), denying()],
        healthy=NO_CAUSES,
    ),
    "unready pods": Broken(
        "service/web",
        "pod/web-.*: the readiness probe of container app fails",
        "kubectl edit deployment/web -n default",
        [web(readinessProbe=PROBE | {"httpGet": {"port": "http"}}), service()],
        healthy="",
        edited=("x", "x"),
        prepare=_unready,
    ),
    "quota": Broken(
        "deployment/web",
        "the API server refuses its pods: .*exceeded quota: small",
        "kubectl edit resourcequota/small -n default",
        [web()],
        prepare=_quota,
        edited=('pods: "0"', 'pods: "5"'),
        healthy="",
    ),
    "limit range": Broken(
        "deployment/web",
        "the API server refuses its pods: .*maximum memory usage per Container is 1Gi",
        "kubectl edit deployment/web -n default",
        [
            object_of("v1", "LimitRange", "small", spec={"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}),
            web(resources={"limits": {"memory": "2Gi"}}),
        ],
        edited=("memory: 2Gi", "memory: 512Mi"),
        healthy="Available",
    ),
    "service account": Broken(
        "deployment/web",
        'the API server refuses its pods: .*serviceaccount "robot" not found',
        "kubectl create serviceaccount robot -n default",
        [web(pod_spec={"serviceAccountName": "robot"})],
        healthy="",
    ),
    "paused rollout": Broken(
        "deployment/web",
        "its rollout is paused",
        "kubectl rollout resume deployment/web -n default",
        [web(spec={"paused": True})],
        healthy="Available",
    ),
    "no default class": Broken(
        "pvc/data",
        "claim data names no StorageClass, and none of the cluster's 1 is the default",
        "kubectl patch storageclass/slow -p",
        [storage_class("slow", "WaitForFirstConsumer"), claim()],
        healthy="spec.storageClassName=slow",
        prepare=_no_classes,
    ),
    "unknown class": Broken(
        "pvc/data",
        "names the StorageClass fast, which does not exist",
        "kubectl get storageclasses",
        [claim(storageClassName="fast")],
        healthy="",
    ),
    "no program that provisions": Broken(
        "pvc/data",
        "waits for the program example.org/none of StorageClass slow",
        "kubectl get pods -A",
        [storage_class("slow"), claim(storageClassName="slow")],
        healthy="",
    ),
    "too small volume": Broken(
        "pvc/data",
        "no volume fits claim data: disk has 512Mi, less than 1Gi",
        "kubectl get persistentvolumes",
        [
            object_of(
                "v1",
                "PersistentVolume",
                "disk",
                spec={"capacity": {"storage": "512Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}},
            ),
            claim(storageClassName=""),
        ],
        healthy="",
    ),
    "claim of a pod": Broken(
        "pod/web",
        "its volume v uses the PersistentVolumeClaim data, which does not exist",
        "kubectl get persistentvolumeclaims -n default",
        [pod(spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]})],
        healthy="",
    ),
    "budget": Broken(
        "node/node-1",
        r"node node-1 cannot be drained of pod/web-\S+ in default: the disruption budget web allows no eviction: 1 of 1",
        "kubectl scale deployment/web -n default --replicas=2",
        [
            web(),
            object_of(
                "policy/v1",
                "PodDisruptionBudget",
                "web",
                spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            ),
        ],
        after=_budget,
        healthy="",
    ),
    "finalizer in a namespace": Broken(
        "namespace/shop",
        "its configmap/held has the finalizer example.org/hold",
        "kubectl patch configmap/held -n shop --type=merge",
        [object_of("v1", "Namespace", "shop"), held_map()],
        after=_ending,
        healthy="deleted",
    ),
    "webhook": Broken(
        "validatingwebhookconfiguration/guard",
        "webhook guard.example.org does not answer, .* are refused: its Service guard in default does not exist",
        "kubectl get services -n default",
        [
            object_of(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                "guard",
                webhooks=[
                    {
                        "name": "guard.example.org",
                        "clientConfig": {"service": {"name": "guard", "namespace": "default"}},
                        "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                        "rules": [
                            {
                                "apiGroups": ["example.org"],
                                "apiVersions": ["*"],
                                "operations": ["*"],
                                "resources": ["*"],
                            }
                        ],
                    }
                ],
            )
        ],
        healthy="",
    ),
    "suspended job": Broken(
        "job/once",
        "it is suspended",
        "kubectl patch job/once -n default -p",
        [
            object_of(
                "batch/v1",
                "Job",
                "once",
                spec={
                    "suspend": True,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "x"}]}},
                },
            )
        ],
        healthy="Complete",
    ),
    "autoscaler": Broken(
        "hpa/web",
        "its target deployment/nope cannot be scaled",
        "kubectl edit horizontalpodautoscaler/web -n default",
        [
            object_of(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                "web",
                spec={
                    "maxReplicas": 3,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nope"},
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                        }
                    ],
                },
            )
        ],
        edited=("nope", "nope"),
        healthy="",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_named_and_the_fix_mends_it(name: str) -> None:
    await mended(CASES[name])
