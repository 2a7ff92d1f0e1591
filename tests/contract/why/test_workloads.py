"""Workloads without pods, pods that cannot be edited, containers of several kinds, and requests for kinds of extensions."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from typing import Any

import httpx2
import pytest

from kube import resources
from kube.api import certificates_v1, core_v1, meta_v1, rbac_v1
from kube.client import Client, Response
from kube.clock import SYSTEM
from tests.support.broken_clusters import (
    NO_CAUSES,
    PROBE,
    Broken,
    Object,
    container,
    mended,
    pod,
    run,
    story_of,
    workload,
)
from wherry.testing import AsyncCluster, Exit, PullError, Run, Start
from wherry.why import commands, following, report, story, subject
from wherry.why.causes import nodes
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Reference, Story
from wherry.why.reading import Reader


def service(**spec: Any) -> Object:
    inner = {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": inner}


def _scripted(pattern: str, *steps: Any, container: str = "*") -> Any:
    async def prepare(cluster: AsyncCluster) -> None:
        cluster.pods.script(pattern, list(steps), container=container, optional=True)

    return prepare


def _good_image(start: Start) -> Run | PullError:
    return Run() if start.image == "registry.test/app:1" else PullError("not found")


CASES = {
    "scaled to 0": Broken(
        "deployment/web",
        r"it is scaled to 0 \(spec.replicas\)",
        "kubectl scale deployment/web -n default --replicas=1",
        [workload("Deployment", spec={"replicas": 0})],
        healthy="Available",
    ),
    "Service of a Deployment that is scaled to 0": Broken(
        "service/web",
        "deployment/web, whose pods it selects, has none: it is scaled to 0",
        "kubectl scale deployment/web -n default --replicas=1",
        [workload("Deployment", spec={"replicas": 0}), service()],
        healthy=NO_CAUSES,
    ),
    "DaemonSet without nodes": Broken(
        "daemonset/web",
        r"no node has the labels of its nodeSelector \(disk=ssd\)",
        "kubectl label nodes NODE disk=ssd",
        [workload("DaemonSet", pod_spec={"nodeSelector": {"disk": "ssd"}})],
        filled={"NODE": "node-1"},
        healthy="status.numberReady=1",
    ),
    "DaemonSet for labels that isolate nodes": Broken(
        "daemonset/web",
        "no node has the labels of its nodeSelector",
        "kubectl edit daemonset/web -n default",
        [workload("DaemonSet", pod_spec={"nodeSelector": {"node-restriction.kubernetes.io/team": "a"}})],
        edited=("node-restriction.kubernetes.io/team: a", "kubernetes.io/hostname: node-1"),
        healthy="status.numberReady=1",
    ),
    "image of a StatefulSet": Broken(
        "statefulset/web",
        'pod/web-0: image "registry.test/app:9" of container app does not exist',
        "kubectl set image statefulset/web -n default app=IMAGE && kubectl delete pod/web-0 -n default",
        [workload("StatefulSet", spec={"serviceName": "web"}, image="registry.test/app:9")],
        filled={"IMAGE": "registry.test/app:1"},
        healthy="status.readyReplicas=1",
        prepare=_scripted("web-*", _good_image),
    ),
    "memory of a pod of its own": Broken(
        "pod/web",
        "it requests 640Gi of memory, and no node has more than 32Gi",
        "kubectl get pod/web -n default -o yaml > web.yaml && ",
        [pod(resources={"requests": {"memory": "640Gi"}})],
        edited=("640Gi", "64Mi"),
    ),
    "sidecar": Broken(
        "pod/web",
        "the readiness probe of container proxy fails: a connection to port 15000",
        "kubectl get pod/web -n default -o yaml > web.yaml && ",
        [
            pod(
                spec={
                    "initContainers": [
                        container(
                            "proxy", restartPolicy="Always", readinessProbe=PROBE | {"tcpSocket": {"port": 15000}}
                        )
                    ]
                }
            )
        ],
        edited=("15000", "15001"),
        healthy="",
        prepare=_scripted("web", Run(ready=False), container="proxy"),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_named_and_the_fix_mends_it(name: str) -> None:
    await mended(CASES[name])


async def test_a_container_that_has_completed_keeps_its_pod_from_being_ready_until_the_others_end() -> None:
    async with AsyncCluster(1) as cluster:
        cluster.pods.script("web", [Exit(0)], container="one")
        cluster.pods.script("web", [Run()], container="two")
        await cluster.apply(
            [pod(spec={"restartPolicy": "OnFailure", "containers": [container("one"), container("two")]})]
        )
        await cluster.wait("pod/web", lambda found: "two" in str(found) and "Completed" in str(found))
        (cause,) = (await story_of(cluster, "pod/web")).causes
        assert cause.waits and cause.text.startswith("container one has ended without an error")


async def test_a_user_with_view_in_one_namespace_is_told_the_cause_and_what_is_not_known() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.wait("clusterrole/view", lambda role: bool(role.get("rules")))
        binding = rbac_v1.RoleBinding(
            metadata=meta_v1.ObjectMeta(name="eve", namespace="default"),
            role_ref=rbac_v1.RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="view"),
            subjects=[rbac_v1.Subject(kind="User", name="eve", api_group="rbac.authorization.k8s.io")],
        )
        await cluster.client.create(binding)
        await cluster.apply([pod(resources={"requests": {"memory": "640Gi"}}), _definition(), _boat()])
        await cluster.wait("pod/web", "PodScheduled=False")
        async with _as(cluster, "eve") as eve:
            found = await story.compose(eve, "pod", "web", "default", SYSTEM.now())
            assert "Insufficient memory" in found.causes[-1].text
            assert any("nodes of the cluster could not be read" in text for text in found.unknown)
            kind = await subject.kind_named(eve, "boats")
            assert kind.__name__ == "Service"


def _definition() -> Object:
    names = {"kind": "Service", "plural": "boats", "singular": "boat"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": versions},
    }


def _boat() -> Object:
    metadata = {"name": "one", "finalizers": ["example.org/hold"]}
    return {"apiVersion": "example.org/v1", "kind": "Service", "metadata": metadata}


def _as(cluster: AsyncCluster, user: str) -> Any:
    class Transport:
        def __init__(self, client: httpx2.AsyncClient) -> None:
            self._client = client

        async def request(
            self, method: str, path: str, *, query: Any = None, headers: Any = None, body: bytes = b"", **_: Any
        ) -> Response:
            answer = await self._client.request(method, path, params=query, headers=headers, content=body)
            return Response(answer.status_code, answer.headers, answer.content)

    @contextlib.asynccontextmanager
    async def lent() -> Any:
        async with httpx2.AsyncClient(base_url="http://cluster", transport=cluster.transport(user, [])) as client:
            yield Client(Transport(client))  # type: ignore[arg-type]

    return lent()


async def test_commands_name_the_group_of_a_kind_that_has_the_name_of_a_built_in_one() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(_definition())
        await cluster.apply([_boat(), service() | {"metadata": {"name": "one"}}])
        await cluster.delete("boats.example.org/one")
        found = await story_of(cluster, "boats.example.org/one")
        assert found.causes[-1].fix.startswith("kubectl patch service.example.org/one -n default --type=merge")
        healthy = Broken("", "", "")
        await run(cluster, found.causes[-1].fix, healthy)
        await cluster.wait("boats.example.org/one", "deleted")
        assert await cluster.get("service/one")


async def test_a_kind_of_a_version_that_the_server_has_not_is_not_said_to_be_missing() -> None:
    async with AsyncCluster(0) as cluster:
        reader = Reader(cluster.client, SYSTEM.now())
        struct = await subject.kind_named(cluster.client, "pods")

        class Old(subject.CustomObject):
            """A claim as an older server has it."""

        resources.register_custom(Old, resources.Resource("resource.k8s.io", "v1alpha9", "resourceclaims", "Old", ""))
        assert not await reader.absent(Old, "gpu", "default") and Old in reader.unserved
        assert await reader.absent(struct, "gpu", "default")


async def test_names_that_a_shell_would_run_are_quoted() -> None:
    node = core_v1.Node(metadata=meta_v1.ObjectMeta(name="node-1"))
    for address in ("$(touch x);-oProxyCommand=y", "-oProxyCommand=y"):  # no IP addresses
        node.status.addresses = [core_v1.NodeAddress(type="InternalIP", address=address)]
        assert shlex.split(nodes._look(node))[:2] == ["ssh", "ADDRESS"]
    async with AsyncCluster(0) as cluster:
        reader = Reader(cluster.client, SYSTEM.now())
        request = certificates_v1.CertificateSigningRequest(metadata=meta_v1.ObjectMeta(name="x;touch y $(z)"))
        request.spec = certificates_v1.CertificateSigningRequestSpec(username="system:node:node-1", request="")
        reader._lists[certificates_v1.CertificateSigningRequest, "", "", ""] = [request]
        (cause,) = await nodes.not_ready(Diagnosis(reader, {}, _none), node)
        assert shlex.split(cause.fix)[0] == "ssh"  # the request is not for a certificate of the node's kubelet
        assert shlex.split(commands.approve(request.metadata.name or ""))[-1] == "x;touch y $(z)"


async def _none(_: Diagnosis, __: Any) -> tuple[()]:
    return ()


def test_a_reference_of_a_built_in_kind_has_no_group() -> None:
    assert Reference("Pod", "web", "default").target == "pod/web"
    assert Reference("Service", "web", "default", "example.org").target == "service.example.org/web"


async def test_a_pod_is_followed_until_it_is_ready() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply(pod(envFrom=[{"configMapRef": {"name": "settings"}}]))
        shown: list[str] = []

        async def read() -> Story:
            return await story_of(cluster, "pod/web")

        def show(found: Story, _: bool) -> None:
            shown.extend(report.lines(found))

        limits = following.Limits(first_pause=0.05, longest_pause=0.05)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(following.follow(read, show, shown.append, limits))
            await cluster.wait("pod/web", lambda _: any("configmap settings, which" in line for line in shown))
            settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
            await cluster.apply(settings)
        assert shown[-1] == report.NOTHING_WRONG
        assert len([line for line in shown if "kubelet: container app started" in line]) == 1


async def test_a_readiness_probe_that_cannot_have_failed_yet_is_waited_for() -> None:
    async with AsyncCluster(1, time="virtual") as cluster:
        cluster.pods.script("web", [Run(ready=False)])
        probe = {"httpGet": {"port": 80}, "initialDelaySeconds": 5, "periodSeconds": 4, "failureThreshold": 2}
        await cluster.apply(pod(readinessProbe=probe))
        await cluster.wait("pod/web", lambda found: "startedAt" in str(found))
        (cause,) = (await story_of(cluster, "pod/web")).causes
        assert cause.waits and cause.text == "the readiness probe of container app has not succeeded yet"
        await cluster.advance(seconds=15)
        (cause,) = (await story_of(cluster, "pod/web")).causes
        assert not cause.waits and cause.text.startswith("the readiness probe of container app fails")


async def test_a_pod_that_has_just_been_due_to_end_is_not_to_be_deleted_by_force() -> None:
    async with AsyncCluster(1, time="virtual") as cluster:
        await cluster.apply(pod(spec={"terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}]}))
        await cluster.wait("pod/web", "Ready")
        cluster.node("node-1").partition()
        await cluster.delete("pod/web")
        await cluster.advance(seconds=20)
        (cause,) = (await story_of(cluster, "pod/web")).causes
        assert cause.waits and not cause.fix and "it was to have ended" in cause.text


async def test_a_claim_that_waits_for_its_pod_names_why_that_one_has_no_node() -> None:
    async with AsyncCluster(1) as cluster:
        claim: Object = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "late",
        }
        late: Object = {"provisioner": "example.org/x", "volumeBindingMode": "WaitForFirstConsumer"}
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        objects: list[Object] = [
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"}, **late},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim},
            pod(spec={"volumes": volumes, "nodeSelector": {"disk": "ssd"}}),
        ]
        await cluster.apply(objects)
        await cluster.wait("pod/web", "PodScheduled=False")
        (cause,) = (await story_of(cluster, "pvc/data")).causes
        assert cause.text.startswith(
            "claim data gets its volume when pod/web, which uses it, is scheduled: node node-1 has no label disk=ssd"
        )
        assert cause.fix.startswith("kubectl get pod/web -n default -o yaml > web.yaml && ")
        (own,) = (await story_of(cluster, "pod/web")).causes
        assert own.text.startswith("node node-1 has no label disk=ssd")


async def test_the_node_whose_obstacle_is_removed_most_easily_is_named() -> None:
    async with AsyncCluster(2) as cluster:
        half, whole = {"requests": {"memory": "16Gi"}}, {"requests": {"memory": "32Gi"}}
        await cluster.patch("node/node-2", {"spec": {"unschedulable": True}})
        await cluster.apply([pod("other", resources=half, spec={"nodeName": "node-1"}), pod(resources=whole)])
        await cluster.wait("pod/web", "PodScheduled=False")
        (cause,) = (await story_of(cluster, "pod/web")).causes
        assert cause.text == "node node-2 is cordoned (spec.unschedulable) (of 2 nodes the nearest one)"
        assert cause.fix == "kubectl uncordon node-2"
