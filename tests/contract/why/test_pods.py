"""Pods that do not become Ready, each for a reason that people meet: the cause is named, and the fix, run, mends it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.broken_clusters import PROBE, Broken, check, container, pod, workload
from wherry.testing import AsyncCluster, Exit, PullError, Run, Start

NOT_FOUND = 'rpc error: code = NotFound desc = failed to pull and unpack image "registry.test/app:2": not found'
UNAUTHORIZED = "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized"


def _pulls(message: str, good: str) -> Any:
    """Return a step: only one image can be pulled, others fail with a message."""

    def step(start: Start) -> Run | PullError:
        return Run() if start.image == good else PullError(message)

    return step


def _scripted(pattern: str, step: Any) -> Any:
    async def prepare(cluster: AsyncCluster) -> None:
        cluster.pods.script(pattern, step)

    return prepare


async def _cordon(cluster: AsyncCluster) -> None:
    for name in cluster.nodes:
        await cluster.patch(f"node/{name}", {"spec": {"unschedulable": True}})


async def _taint(cluster: AsyncCluster) -> None:
    for name in cluster.nodes:
        await cluster.patch(
            f"node/{name}", {"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
        )


CASES = {
    "image name": Broken(
        "pod/web",
        'image "registry.test/app:2" of container app does not exist in its registry',
        "kubectl set image pod/web -n default app=IMAGE",
        [pod(image="registry.test/app:2")],
        filled={"IMAGE": "registry.test/app:1"},
        prepare=_scripted("web", _pulls(NOT_FOUND, "registry.test/app:1")),
    ),
    "missing pull secret": Broken(
        "pod/web",
        "its pull secret registry does not exist",
        "kubectl create secret docker-registry registry --docker-server=registry.test",
        [pod(spec={"imagePullSecrets": [{"name": "registry"}]})],
        filled={"USER": "eve", "PASSWORD": "secret"},
        prepare=_scripted("web", [PullError(UNAUTHORIZED), Run()]),
    ),
    "no pull secret": Broken(
        "deployment/web",
        "registry registry.test refuses the credentials of node node-1, or has no such image",
        "kubectl create secret docker-registry registry --docker-server=registry.test",
        [workload("Deployment")],
        filled={"USER": "eve", "PASSWORD": "secret"},
        healthy="Available",
        prepare=_scripted("web-*", [PullError(UNAUTHORIZED), Run()]),
    ),
    "too much memory": Broken(
        "deployment/web",
        "it requests 640Gi of memory, and no node has more than 32Gi",
        "kubectl set resources deployment/web -n default -c app --requests=memory=32768Mi",
        [workload("Deployment", resources={"requests": {"memory": "640Gi"}})],
        healthy="Available",
    ),
    "node selector": Broken(
        "pod/web",
        "no label disk=ssd, which its nodeSelector asks for",
        "kubectl get pod/web -n default -o yaml > web.yaml && ",
        [pod(spec={"nodeSelector": {"disk": "ssd"}})],
        edited=("disk: ssd", "kubernetes.io/hostname: node-1"),
    ),
    "cordoned nodes": Broken("pod/web", "node-1 is cordoned", "kubectl uncordon node-1", [pod()], prepare=_cordon),
    "taint": Broken(
        "deployment/web",
        "does not tolerate the taint gpu=yes:NoSchedule of node node-1",
        "kubectl patch deployment/web -n default -p",
        [workload("Deployment", pod_spec={"tolerations": [{"key": "other", "operator": "Exists"}]})],
        healthy="Available",
        prepare=_taint,
    ),
    "taint and a pod": Broken(
        "pod/web",
        "does not tolerate the taint gpu=yes:NoSchedule of node node-1",
        "kubectl get pod/web -n default -o yaml > web.yaml && ",
        [pod()],
        edited=("  tolerations:", "  tolerations:\\n  - {key: gpu, operator: Exists}"),
        prepare=_taint,
    ),
    "scheduling gate": Broken(
        "pod/web",
        r"scheduling gates \(example.org/wait\)",
        "kubectl patch pod/web",
        [pod(spec={"schedulingGates": [{"name": "example.org/wait"}]})],
    ),
    "missing ConfigMap": Broken(
        "pod/web",
        "uses the configmap settings, which does not exist",
        "kubectl create configmap settings -n default",
        [pod(envFrom=[{"configMapRef": {"name": "settings"}}])],
        filled={"KEY": "key", "VALUE": "value"},
    ),
    "missing Secret of a volume": Broken(
        "pod/web",
        "one of its volumes uses the secret keys, which does not exist",
        "kubectl create secret generic keys -n default",
        [
            pod(
                spec={"volumes": [{"name": "v", "secret": {"secretName": "keys"}}]},
                volumeMounts=[{"name": "v", "mountPath": "/v"}],
            )
        ],
        filled={"KEY": "key", "VALUE": "value"},
    ),
    "missing key": Broken(
        "pod/web",
        "container app uses the key level of the configmap settings",
        "kubectl edit configmap/settings -n default",
        [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"levle": "1"}},
            pod(env=[{"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}}]),
        ],
        edited=("levle", "level"),
    ),
    "crash": Broken(
        "pod/web",
        r"container app exited with code 3: no database \(1 restart",
        "kubectl logs pod/web -n default -c app --previous",
        [pod()],
        healthy="",
        prepare=_scripted("web", Exit(3, logs="no database", message="no database")),
    ),
    "memory limit": Broken(
        "deployment/web",
        "container app was killed because it used more memory than its limit of 64Mi",
        "kubectl set resources deployment/web -n default -c app --limits=memory=128Mi",
        [workload("Deployment", resources={"limits": {"memory": "64Mi"}})],
        healthy="Available",
        prepare=_scripted("web-*", [Exit(137, reason="OOMKilled"), Exit(137, reason="OOMKilled"), Run()]),
    ),
    "readiness port": Broken(
        "deployment/web",
        r"the readiness probe of container app fails: .* \(it asks port 8081; the container declares 8080\)",
        "kubectl patch deployment/web -n default -p",
        [workload("Deployment", readinessProbe=PROBE | {"httpGet": {"port": 8081}}, ports=[{"containerPort": 8080}])],
        healthy="",
        prepare=_scripted("web-*", Run(ready=False)),
    ),
    "port of the node": Broken(
        "pod/web",
        "port 80/TCP of node node-1 is taken by pod/other in default",
        "kubectl delete pod/other -n default",
        [
            pod("other", spec={"nodeName": "node-1"}, ports=[{"containerPort": 80, "hostPort": 80}]),
            pod(
                ports=[{"containerPort": 80, "hostPort": 80}],
                spec={"nodeSelector": {"kubernetes.io/hostname": "node-1"}},
            ),
        ],
    ),
    "init container": Broken(
        "pod/web",
        "container prepare exited with code 1",
        "kubectl logs pod/web -n default -c prepare",
        [pod(spec={"initContainers": [container("prepare")]})],
        healthy="",
        prepare=_scripted("web", Exit(1)),
    ),
    "finalizer": Broken(
        "pod/web",
        "its finalizer example.org/hold has not been removed",
        "kubectl patch pod/web -n default --type=merge",
        [pod()],
        healthy="deleted",
    ),
}


async def _held(cluster: AsyncCluster) -> None:
    await cluster.wait("pod/web", "Ready")
    await cluster.patch("pod/web", {"metadata": {"finalizers": ["example.org/hold"]}})
    await cluster.delete("pod/web")


@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_named_and_the_fix_mends_it(name: str) -> None:
    case = CASES[name]
    async with AsyncCluster(1) as cluster:
        if name == "finalizer":
            await cluster.apply(list(case.objects))
            await _held(cluster)
        await check(cluster, case)
