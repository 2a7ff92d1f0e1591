"""Fixes that change no more than the cause needs, and nothing of another namespace."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers.gateway import definitions
from tests.support.broken_clusters import Object, pod, story_of, workload
from wherry.testing import AsyncCluster

GATEWAY = "gateway.networking.k8s.io"


def object_of(api: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def grant(kind: str, source: str, **target: str) -> Object:
    spec = {
        "from": [{"group": GATEWAY, "kind": source, "namespace": "default"}],
        "to": [{"group": "", "kind": kind, **target}],
    }
    return object_of(f"{GATEWAY}/v1beta1", "ReferenceGrant", "g", spec)


async def served(cluster: AsyncCluster) -> None:
    for definition in definitions.load():
        await cluster.apply(definition.as_object())
    for plural in ("httproutes", "referencegrants"):
        await cluster.wait(f"customresourcedefinition/{plural}.{GATEWAY}", "Established")
    inner = {"controllerName": "gateway.wherry.dev/controller"}
    await cluster.apply(object_of(f"{GATEWAY}/v1", "GatewayClass", "wherry", inner))
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})


async def test_a_default_deny_policy_is_opened_for_the_pods_of_its_namespace_only() -> None:
    policy = object_of(
        "networking.k8s.io/v1", "NetworkPolicy", "deny", {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}
    )
    service = object_of("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
    async with AsyncCluster(1) as cluster:
        await cluster.apply([service, pod(), policy])
        await cluster.wait("pod/web", "Ready")
        cause = (await story_of(cluster, "service/web")).causes[-1]
        assert '"from":[{"podSelector":{}}]' in cause.fix
        assert cause.text.endswith(
            "the command lets the pods of namespace default reach it on all pods that deny selects"
        )


@pytest.mark.parametrize(
    ("granted", "text"),
    [
        (None, ""),
        (grant("Secret", "HTTPRoute"), ""),
        (grant("Secret", "Gateway", name="another"), ""),
        (grant("Secret", "Gateway", name="tls"), "the certificate of listener https is in the Secret tls of other"),
        (grant("Secret", "Gateway"), "the certificate of listener https is in the Secret tls of other"),
    ],
)
async def test_the_certificate_of_another_namespace_is_not_changed_and_is_read_only_with_a_grant(
    granted: Object | None, text: str
) -> None:
    tls = {"certificateRefs": [{"name": "tls", "namespace": "other"}]}
    listener: Object = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls}
    async with AsyncCluster(0) as cluster:
        await served(cluster)
        if granted is not None:
            await cluster.apply(granted, namespace="other")
        spec = {"gatewayClassName": "wherry", "listeners": [listener]}
        await cluster.apply(object_of(f"{GATEWAY}/v1", "Gateway", "edge", spec))
        causes = [each for each in (await story_of(cluster, "gateway/edge")).causes if "Secret tls" in each.text]
        assert [each.text.startswith(text) for each in causes] == ([True] if text else [])
        assert all(each.fix == "kubectl describe secret/tls -n other" for each in causes)


@pytest.mark.parametrize("granted", [False, True])
async def test_the_backend_of_another_namespace_is_not_changed(*, granted: bool) -> None:
    async with AsyncCluster(0) as cluster:
        await served(cluster)
        service = object_of("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]})
        await cluster.apply([service, workload("Deployment", spec={"replicas": 0})], namespace="other")
        if granted:
            await cluster.apply(grant("Service", "HTTPRoute"), namespace="other")
        backend = {"name": "web", "namespace": "other", "port": 80}
        await cluster.apply(object_of(f"{GATEWAY}/v1", "HTTPRoute", "web", {"rules": [{"backendRefs": [backend]}]}))
        causes = [each for each in (await story_of(cluster, "httproute/web")).causes if "scaled to 0" in each.text]
        assert [each.fix for each in causes] == (["kubectl describe deployment/web -n other"] if granted else [])


async def test_a_pod_of_another_namespace_is_not_deleted_for_its_port() -> None:
    ports: Any = [{"containerPort": 80, "hostPort": 80}]
    async with AsyncCluster(1) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await cluster.wait("serviceaccount/default", lambda _: True, namespace="other")
        await cluster.apply(pod("other", ports=ports), namespace="other")
        await cluster.wait("pod/other", "Ready", namespace="other")
        await cluster.apply(pod(ports=ports))
        await cluster.wait("pod/web", "PodScheduled=False")
        cause = (await story_of(cluster, "pod/web")).causes[-1]
        assert "is taken by pod/other in other" in cause.text and "delete" not in cause.fix
        assert cause.fix.startswith("kubectl get pod/web -n default -o yaml > web.yaml")
