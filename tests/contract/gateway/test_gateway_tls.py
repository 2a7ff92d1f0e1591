"""Certificates of listeners on a real API server: copies exist only while a listener may use them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from kube import pki
from kube.api import core_v1
from kube.gateway.names import NAMESPACE, copy_of
from tests.contract.gateway.conftest import GROUP, GatewayCluster
from tests.contract.gateway.test_gateway_controller import GATEWAY
from tests.support.hollow import eventually


def secret(name: str, namespace: str, *, valid: bool = True) -> dict[str, Any]:
    pair = pki.new_ca("test", now=datetime.now(UTC))
    chain, key = pair.cert_pem, pair.key_pem
    if not valid:
        key = pki.encode_key(pki.new_key())
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}


def https(**reference: str) -> dict[str, Any]:
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [reference]}}
    return {**GATEWAY, "spec": {"gatewayClassName": "wherry", "listeners": [listener]}}


async def listener_has(cluster: GatewayCluster, type_: str, status: str, reason: str) -> None:
    async def look() -> bool:
        (found,) = (await cluster.status("gateways", "web")).get("listeners") or [{"conditions": []}]
        known = {each["type"]: each for each in found["conditions"]}.get(type_, {})
        return (known.get("status"), known.get("reason")) == (status, reason)

    await eventually(look)


async def copy(cluster: GatewayCluster, namespace: str, name: str) -> None:
    async def exists() -> bool:
        return [each.metadata.name for each in await cluster.copies()] == [copy_of(namespace, name)]

    await eventually(exists)


async def no_copies(cluster: GatewayCluster) -> None:
    async def look() -> bool:
        return not await cluster.copies()

    await eventually(look)


async def test_a_certificate_is_copied_while_a_listener_uses_it(cluster: GatewayCluster) -> None:
    await cluster.apply(https(name="cert"))
    await listener_has(cluster, "ResolvedRefs", "False", "InvalidCertificateRef")
    await cluster.gateway_has("web", "Programmed", "False", "Invalid")
    await cluster.apply(secret("cert", "infra"))
    await cluster.gateway_has("web", "Programmed", "True")
    await copy(cluster, "infra", "cert")
    await cluster.client.delete(core_v1.Secret, copy_of("infra", "cert"), NAMESPACE)
    await copy(cluster, "infra", "cert")
    changed = {"data": {"tls.key": "ZXZpbA==", "tls.crt": "ZXZpbA=="}}
    before = (await cluster.copies())[0].data
    await cluster.client.patch(core_v1.Secret, copy_of("infra", "cert"), NAMESPACE, changed)

    async def restored() -> bool:
        return [each.data for each in await cluster.copies()] == [before]

    await eventually(restored)
    await cluster.server.request("DELETE", f"{GROUP}/namespaces/infra/gateways/web")
    await no_copies(cluster)


async def test_a_certificate_of_another_namespace_is_copied_only_with_a_grant(cluster: GatewayCluster) -> None:
    await cluster.apply(secret("cert", "apps"), https(name="cert", namespace="apps"))
    await listener_has(cluster, "ResolvedRefs", "False", "RefNotPermitted")
    assert not await cluster.copies()
    spec = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra"}],
        "to": [{"group": "", "kind": "Secret", "name": "cert"}],
    }
    metadata = {"name": "certificates", "namespace": "apps"}
    body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant", "metadata": metadata, "spec": spec}
    await cluster.apply(body)
    await copy(cluster, "apps", "cert")
    await cluster.gateway_has("web", "Programmed", "True")
    await cluster.server.request("DELETE", f"{GROUP}/namespaces/apps/referencegrants/certificates")
    await no_copies(cluster)
    await listener_has(cluster, "ResolvedRefs", "False", "RefNotPermitted")


async def test_a_certificate_without_its_key_is_not_copied(cluster: GatewayCluster) -> None:
    await cluster.apply(secret("cert", "infra", valid=False), https(name="cert"))
    await listener_has(cluster, "ResolvedRefs", "False", "InvalidCertificateRef")
    await listener_has(cluster, "Programmed", "False", "Invalid")
    assert not await cluster.copies()


async def test_nodes_read_copies_and_no_other_secrets(cluster: GatewayCluster) -> None:
    proxy = ("system:kube-proxy", ())
    for path, status in (
        (f"/api/v1/namespaces/{NAMESPACE}/secrets", 200),
        ("/api/v1/namespaces/infra/secrets", 403),
        ("/api/v1/secrets", 403),
        (f"{GROUP}/gateways", 200),
        (f"{GROUP}/httproutes", 200),
        (f"{GROUP}/referencegrants", 200),
        (f"{GROUP}/gatewayclasses", 200),
        ("/apis/networking.k8s.io/v1/ingresses", 200),
        ("/apis/networking.k8s.io/v1/ingressclasses", 200),
        ("/api/v1/namespaces", 200),
    ):
        assert (await cluster.server.request("GET", path, user=proxy)).status == status, path
    answer = await cluster.server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", {}, user=proxy)
    assert answer.status == 403
