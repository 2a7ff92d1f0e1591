"""Nodes, Jobs, extensions and pods that fail in other ways, each for a reason that people meet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.broken_clusters import NO_CAUSES, Broken, Object, container, mended, pod, workload
from wherry.testing import AsyncCluster, Exit, PullError, Run


def object_of(api: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}


def job(name: str = "once", **spec: Any) -> Object:
    inner = {"restartPolicy": "Never", "containers": [container()]}
    return object_of("batch/v1", "Job", name, spec={"template": {"spec": inner}, **spec})


def cron_job(**spec: Any) -> Object:
    return object_of(
        "batch/v1", "CronJob", "nightly", spec={"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job()["spec"]}, **spec}
    )


def scripted(pattern: str, *steps: Any) -> Any:
    async def prepare(cluster: AsyncCluster) -> None:
        cluster.pods.script(pattern, list(steps), optional=True)

    return prepare


async def fail(cluster: AsyncCluster) -> None:
    cluster.node("node-1").fail()


async def fail_with_pod(cluster: AsyncCluster) -> None:
    await cluster.wait("pod/web", "Ready")
    cluster.node("node-1").fail()


async def full_disk(cluster: AsyncCluster) -> None:
    await cluster.node("node-1").pressure("disk")


async def cordoned(cluster: AsyncCluster) -> None:
    await cluster.patch("node/node-1", {"spec": {"unschedulable": True}})


async def waits(cluster: AsyncCluster) -> None:
    await cluster.wait("statefulset/web", "status.replicas=1")


CASES = {
    "node that does not answer": Broken(
        "node/node-1",
        "node node-1 does not answer: its kubelet reported last .* ago",
        "ssh ",
        after=fail,
        seconds=20,
        healthy=None,
    ),
    "pod on a node that does not answer": Broken(
        "pod/web",
        "node node-1 does not answer",
        "ssh ",
        [pod(spec={"tolerations": [{"operator": "Exists"}]})],
        after=fail_with_pod,
        seconds=20,
        healthy=None,
    ),
    "full disk": Broken(
        "node/node-1", "node node-1 has DiskPressure: its disk is nearly full", "ssh ", prepare=full_disk, healthy=None
    ),
    "cordoned node": Broken(
        "node/node-1", "node node-1 is cordoned", "kubectl uncordon node-1", prepare=cordoned, healthy=NO_CAUSES
    ),
    "missing node": Broken(
        "pod/web",
        "its node gone does not exist",
        "kubectl delete pod/web -n default",
        [pod(spec={"nodeName": "gone"})],
        healthy="deleted",
    ),
    "liveness probe": Broken(
        "deployment/web",
        "container app is restarted because its liveness probe fails",
        "kubectl edit deployment/web -n default",
        [
            workload(
                "Deployment",
                livenessProbe={"httpGet": {"port": 8080, "path": "/wrong"}, "periodSeconds": 1, "failureThreshold": 1},
            )
        ],
        edited=("/wrong", "/right"),
        healthy="",
        prepare=scripted("web-*", Run(unhealthy_after=1)),
    ),
    "first pod of a StatefulSet": Broken(
        "statefulset/web",
        "pod/web-0: container app exited with code 2",
        "kubectl logs pod/web-0 -n default -c app --previous",
        [workload("StatefulSet", spec={"serviceName": "web", "replicas": 3})],
        healthy="",
        prepare=scripted("web-0", Exit(2)),
    ),
    "DaemonSet": Broken(
        "daemonset/web",
        'pod/web-.*: image "registry.test/app:9" of container app does not exist',
        "kubectl set image daemonset/web -n default app=IMAGE",
        [workload("DaemonSet", image="registry.test/app:9")],
        filled={"IMAGE": "registry.test/app:1"},
        healthy="status.numberReady=1",
        prepare=scripted("web-*", PullError("not found"), Run()),
    ),
    "image that is to be there": Broken(
        "pod/web",
        "the container waits|is not on node|cannot be pulled",
        "kubectl",
        [pod(imagePullPolicy="Never")],
        healthy="",
        filled={"IMAGE": "registry.test/app:1"},
        prepare=scripted("web", PullError("ErrImageNeverPull")),
    ),
    "failed job": Broken(
        "job/once",
        "it has failed: Job has reached the specified backoff limit; .*container app exited with code 7",
        "kubectl logs pod/once-",
        [job(backoffLimit=0)],
        healthy="",
        prepare=scripted("once-*", Exit(7)),
    ),
    "late job": Broken(
        "job/once",
        "it has failed: Job was active longer than specified deadline",
        "kubectl delete job/once -n default",
        [job(activeDeadlineSeconds=1)],
        healthy="deleted",
        prepare=scripted("once-*", Run()),
    ),
    "suspended CronJob": Broken(
        "cronjob/nightly",
        "it is suspended",
        "kubectl patch cronjob/nightly -n default -p",
        [cron_job(suspend=True)],
        healthy="spec.suspend=false",
    ),
    "CronJob that never ran": Broken(
        "cronjob/nightly", "no time of its schedule .* has come", "", [cron_job()], healthy=None
    ),
    "Service without selector": Broken(
        "service/web",
        "it has no selector, and nobody has created an EndpointSlice",
        "kubectl edit service/web -n default",
        [object_of("v1", "Service", "web", spec={"ports": [{"port": 80}]})],
        edited=("  ports:", "  selector: {app: web}\\n  ports:"),
        healthy="",
    ),
    "Service without pods": Broken(
        "service/web",
        "its selector app=web selects no pod, and there are no pods in namespace default",
        "kubectl get pods -n default",
        [object_of("v1", "Service", "web", spec={"ports": [{"port": 80}], "selector": {"app": "web"}})],
        healthy="",
    ),
    "extension server": Broken(
        "apiservice/v1.example.org",
        "API v1.example.org is not available: its Service server in default does not exist",
        "kubectl get services -n default",
        [
            object_of(
                "apiregistration.k8s.io/v1",
                "APIService",
                "v1.example.org",
                spec={
                    "group": "example.org",
                    "version": "v1",
                    "service": {"name": "server", "namespace": "default"},
                    "insecureSkipTLSVerify": True,
                    "groupPriorityMinimum": 1000,
                    "versionPriority": 10,
                },
            )
        ],
        healthy="",
    ),
    "released volume": Broken(
        "pv/disk",
        "its claim was deleted, .* the command gives it to a new claim gone in default alone",
        "kubectl patch persistentvolume/disk --type=merge",
        [
            object_of(
                "v1",
                "PersistentVolume",
                "disk",
                spec={
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/d"},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"name": "gone", "namespace": "default", "uid": "11111111-1111-1111-1111-111111111111"},
                },
            )
        ],
        healthy="status.phase=Available",
    ),
    "missing claim template": Broken(
        "pod/web",
        "its resource claim gpu uses the ResourceClaimTemplate none, which does not exist",
        "kubectl get resourceclaimtemplates -n default",
        [pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "none"}]})],
        healthy="",
    ),
    "another scheduler": Broken(
        "pod/web",
        "no scheduler named other has looked at it",
        "kubectl get pods -A",
        [pod(spec={"schedulerName": "other"})],
        healthy="",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_named_and_the_fix_mends_it(name: str) -> None:
    await mended(CASES[name])
