"""Ingresses, Gateways and HTTPRoutes that do not answer; expired certificates; webhooks that cannot be called; clocks."""

from __future__ import annotations

import base64
import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from control.controllers.gateway import definitions
from kube import pki
from kube.api import certificates_v1, coordination_v1, core_v1, meta_v1
from kube.clock import SYSTEM
from tests.support.broken_clusters import NO_CAUSES, Broken, Object, mended, pod, story_of, workload
from wherry.testing import AsyncCluster
from wherry.why.causes import certificates, nodes, webhook_failures
from wherry.why.causes.finders import FINDERS
from wherry.why.causes.other_kinds import causes as of_others
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause
from wherry.why.reading import Reader

GATEWAY = "gateway.networking.k8s.io/v1"
NOW = SYSTEM.now()
CA = pki.new_ca("test", NOW - timedelta(days=400))


def object_of(api: str, kind: str, name: str, spec: Any = None, **fields: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **({"spec": spec} if spec else {}), **fields}


def service(**spec: Any) -> Object:
    return object_of("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec})


def ingress(backend: str = "web", port: int = 80, **spec: Any) -> Object:
    to = {"service": {"name": backend, "port": {"number": port}}}
    rule = {"host": "web.test", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": to}]}}
    return object_of("networking.k8s.io/v1", "Ingress", "web", {"ingressClassName": "wherry", "rules": [rule], **spec})


def secret(*sans: str, begins: timedelta = timedelta(), life: timedelta = timedelta(days=90)) -> Object:
    pair = pki.issue(CA, "web", sans=sans, now=NOW + begins, lifetime=life)
    data = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tls"},
        "type": "kubernetes.io/tls",
        "data": encoded,
    }


TLS = [{"hosts": ["web.test"], "secretName": "tls"}]
DAYS = timedelta(days=1)


def gateway(name: str = "wherry", **listener: Any) -> Object:
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP", **listener}]
    return object_of(GATEWAY, "Gateway", "edge", {"gatewayClassName": name, "listeners": listeners})


def route(backend: str = "web", **parent: Any) -> Object:
    refs, rules = [{"name": "edge", **parent}], [{"backendRefs": [{"name": backend, "port": 80}]}]
    return object_of(GATEWAY, "HTTPRoute", "web", {"parentRefs": refs, "rules": rules})


TLS_LISTENER: dict[str, Any] = {
    "protocol": "HTTPS",
    "port": 443,
    "tls": {"certificateRefs": [{"name": "tls"}]},
    "hostname": "web.test",
}
CASES = {
    "class that does not exist": Broken(
        "ingress/web",
        "it names the IngressClass nginx, which does not exist",
        'kubectl patch ingress/web -n default -p \'{"spec":{"ingressClassName":"wherry"}}\'',
        [ingress(ingressClassName="nginx"), service(), pod()],
        healthy="spec.ingressClassName=wherry",
    ),
    "backend that does not exist": Broken(
        "ingress/web",
        "its backend is the Service wbe in default, which does not exist",
        "kubectl get services -n default",
        [ingress("wbe"), service(), pod()],
        healthy="",
    ),
    "port of a backend": Broken(
        "ingress/web",
        "its backend is port 8080 of the Service web, which has 80",
        "kubectl edit service/web -n default",
        [ingress(port=8080), service(ports=[{"port": 80, "targetPort": 8080}]), pod()],
        edited=("port: 80$", "port: 8080"),
        healthy="",
    ),
    "backend without pods": Broken(
        "ingress/web",
        "its backend, the Service web: deployment/web, whose pods it selects, has none: it is scaled to 0",
        "kubectl scale deployment/web -n default --replicas=1",
        [ingress(), service(), workload("Deployment", spec={"replicas": 0})],
        healthy="",
    ),
    "certificate that does not exist": Broken(
        "ingress/web",
        "the certificate of hosts web.test is in the Secret tls of default, which does not exist",
        "kubectl create secret tls tls --cert=FILE.crt --key=FILE.key -n default",
        [ingress(tls=TLS), service(), pod()],
        healthy=None,
    ),
    "certificate that has expired": Broken(
        "ingress/web",
        r"the certificate of hosts web.test \(Secret tls\) expired .* ago, at ",
        "kubectl create secret tls tls --cert=FILE.crt --key=FILE.key --dry-run=client -o yaml | kubectl apply -n default -f -",
        [ingress(tls=TLS), service(), pod(), secret("web.test", begins=-90 * DAYS, life=89 * DAYS)],
        healthy=None,
    ),
    "certificate for another host": Broken(
        "ingress/web",
        "is for other.test, not for web.test",
        "kubectl create secret tls tls",
        [ingress(tls=TLS), service(), pod(), secret("other.test")],
        healthy=None,
    ),
    "class of a Gateway": Broken(
        "gateway/edge",
        "it names the GatewayClass cilium, which does not exist",
        "kubectl patch gateway.gateway.networking.k8s.io/edge -n default --type=merge",
        [gateway("cilium")],
        healthy="spec.gatewayClassName=wherry",
    ),
    "certificate of a listener": Broken(
        "gateway/edge",
        "the certificate of listener http is in the Secret tls of default, which does not exist",
        "kubectl create secret tls tls --cert=FILE.crt --key=FILE.key -n default",
        [gateway(**TLS_LISTENER)],
        healthy=None,
    ),
    "Gateway of a route": Broken(
        "httproute/web",
        "it is for the Gateway edge in default, which does not exist",
        "kubectl get gateways.gateway.networking.k8s.io -n default",
        [route(), service(), pod()],
        healthy="",
    ),
    "listener of a route": Broken(
        "httproute/web",
        "it is for the listener https of the Gateway edge, which has http",
        "kubectl edit httproute.gateway.networking.k8s.io/web -n default",
        [gateway(), route(sectionName="https"), service(), pod()],
        edited=("https", "http"),
        healthy=NO_CAUSES,
    ),
    "backend of a route": Broken(
        "httproute/web",
        "its backend is the Service wbe in default, which does not exist",
        "kubectl get services -n default",
        [gateway(), route("wbe")],
        healthy="",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_named_and_the_fix_mends_it(name: str) -> None:
    await mended(dataclasses.replace(CASES[name], prepare=_served))


async def _served(cluster: AsyncCluster) -> None:
    """Create what the control plane with its gateway has: definitions and a class."""
    for definition in definitions.load():
        await cluster.apply(definition.as_object())
    await cluster.apply(
        object_of("networking.k8s.io/v1", "IngressClass", "wherry", {"controller": "gateway.wherry.dev/controller"})
    )
    await cluster.wait("customresourcedefinition/httproutes.gateway.networking.k8s.io", "Established")
    inner = {"controllerName": "gateway.wherry.dev/controller"}
    await cluster.apply(object_of(GATEWAY, "GatewayClass", "wherry", inner))


def webhook(name: str, **fields: Any) -> Object:
    return object_of(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "guard",
        webhooks=[
            {
                "name": name,
                "clientConfig": {"service": {"name": "web", "namespace": "default"}, "caBundle": "eA=="},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"]}],
                **fields,
            }
        ],
    )


def diagnosis(cluster: AsyncCluster) -> Diagnosis:
    return Diagnosis(Reader(cluster.client, cluster.now), FINDERS, of_others)


async def test_a_workload_whose_pods_a_webhook_refuses_names_its_configuration_and_its_services_cause() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply([service(), webhook("guard.example.org")])
        await cluster.apply(workload("Deployment"))
        await cluster.wait("deployment/web", "ReplicaFailure")
        cause = (await story_of(cluster, "deployment/web")).causes[-1]
        assert cause.text.startswith(
            "the API server refuses its pods: webhook guard.example.org of validatingwebhookconfiguration/guard cannot be "
            "called: its Service web in default: "
        )


MESSAGES = {
    'failed calling webhook "guard.example.org": context deadline exceeded': (
        "Service web in default does not answer within 3 s (timeoutSeconds)",
        "kubectl logs service/web -n default --all-pods --tail=20",
    ),
    'failed calling webhook "guard.example.org": tls: x509: unknown authority': (
        "the API server does not trust its certificate",
        "kubectl edit validatingwebhookconfiguration/guard",
    ),
    'failed calling webhook "gone.example.org": EOF': (
        "webhook gone.example.org cannot be called: EOF",
        "kubectl get ",
    ),
}


async def test_a_webhook_whose_service_is_right_is_judged_by_the_message() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply([service(), pod()])
        await cluster.wait("pod/web", "Ready")
        await cluster.apply(webhook("guard.example.org", timeoutSeconds=3))
        for message, (text, fix) in MESSAGES.items():
            cause = await webhook_failures.webhook_failure(diagnosis(cluster), f"Internal error occurred: {message}")
            assert cause is not None and text in cause.text and cause.fix.startswith(fix)
        assert await webhook_failures.webhook_failure(diagnosis(cluster), "exceeded quota: small") is None


def request(node: str, begins: timedelta, life: timedelta) -> certificates_v1.CertificateSigningRequest:
    pair = pki.issue(CA, f"system:node:{node}", now=NOW + begins, lifetime=life)
    encoded = base64.b64encode(pair.cert_pem).decode()
    return certificates_v1.CertificateSigningRequest(
        metadata=meta_v1.ObjectMeta(name=f"csr-{node}"),
        spec=certificates_v1.CertificateSigningRequestSpec(signer_name=certificates.CLIENT_SIGNER),
        status=certificates_v1.CertificateSigningRequestStatus(certificate=encoded),
    )


async def of_kubelet(cluster: AsyncCluster, *requests: certificates_v1.CertificateSigningRequest) -> list[Cause]:
    asked = diagnosis(cluster)
    asked.reader._lists[certificates_v1.CertificateSigningRequest, "", "", ""] = list(requests)
    node = core_v1.Node(metadata=meta_v1.ObjectMeta(name="node-1"))
    return list(await certificates.of_kubelet(asked, node, "ssh node-1"))


async def test_the_newest_client_certificate_of_a_nodes_kubelet_counts_and_that_of_no_other_node() -> None:
    async with AsyncCluster(0) as cluster:
        old, new = request("node-1", -20 * DAYS, 10 * DAYS), request("node-1", -DAYS, 10 * DAYS)
        (cause,) = await of_kubelet(cluster, old, request("node-10", -DAYS, 10 * DAYS))
        assert cause.text.startswith("the client certificate of node node-1's kubelet expired 10d")
        assert not await of_kubelet(cluster, new, old) and not await of_kubelet(cluster)


@pytest.mark.parametrize(
    ("begins", "life", "text"),
    [
        (-10 * DAYS, 9 * DAYS, "expired 1d"),
        (-10 * DAYS, 16 * DAYS, "expires in 5d23h"),
        (-10 * DAYS, 18 * DAYS, ""),
        (2 * DAYS, 90 * DAYS, "is not valid for another 1d23h: is a clock wrong?"),
    ],
)
async def test_a_certificate_that_ends_within_a_week_is_named(begins: timedelta, life: timedelta, text: str) -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(secret("*.web.test", begins=begins, life=life))
        found = await certificates.of_secret(diagnosis(cluster), "default", "tls", "it", ["a.web.test"])
        assert (text in found[0].text) if text else not found
        assert not found or found[0].partial is text.startswith("expires")
        (other,) = await certificates.of_secret(diagnosis(cluster), "default", "tls", "it", ["a.b.web.test"])
        assert text or "not for a.b.web.test" in other.text


def lease(name: str, space: str, ahead: float) -> coordination_v1.Lease:
    renewed = (SYSTEM.now() + timedelta(seconds=ahead)).isoformat()
    return coordination_v1.Lease(
        metadata=meta_v1.ObjectMeta(name=name, namespace=space), spec=coordination_v1.LeaseSpec(renew_time=renewed)
    )


@pytest.mark.parametrize(
    ("node", "control", "text"),
    [
        (300.5, 0, "the clock of node node-1 is 5m ahead of"),
        (-300.5, 0, "the clock of node node-1 is 5m behind"),
        (30, 0, ""),
        (300.5, 300.5, "the clock of this machine, where you run this command, is 5m behind the control plane's"),
        (-300.5, -300.5, "the clock of this machine, where you run this command, is 5m ahead of the control plane's"),
    ],
)
async def test_a_clock_that_is_wrong_is_the_nodes_or_this_machines(node: float, control: float, text: str) -> None:
    async with AsyncCluster(0) as cluster:
        asked = diagnosis(cluster)
        for each in (lease("node-1", nodes.LEASES, node), lease(nodes.CONTROLLERS_LEASE, "kube-system", control)):
            key = coordination_v1.Lease, each.metadata.namespace or "", each.metadata.name or ""
            asked.reader._objects[key] = each
        found = await nodes._clock(asked, core_v1.Node(metadata=meta_v1.ObjectMeta(name="node-1")))
        assert (text in found[0].text) if text else not found
