"""Certificate requests of nodes: only those are offered for approval that name nothing but the node itself."""

from __future__ import annotations

import base64
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control.auth.certificates import KUBELET_CLIENT, KUBELET_SERVING
from kube import errors
from kube.api import certificates_v1, core_v1, meta_v1
from tests.support.broken_clusters import Object
from wherry.testing import AsyncCluster
from wherry.why.causes import certificate_requests, nodes
from wherry.why.causes.finders import FINDERS
from wherry.why.causes.other_kinds import causes as of_others
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause
from wherry.why.reading import Reader

Request = certificates_v1.CertificateSigningRequest


def request(signer: str, *names: x509.GeneralName, node: str = "node-1", name: str = "csr-1") -> Request:
    user = f"system:node:{node}"
    parts = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, user),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )
    return Request(
        metadata=meta_v1.ObjectMeta(name=name),
        spec=certificates_v1.CertificateSigningRequestSpec(
            request=base64.b64encode(pem).decode(),
            signer_name=signer,
            username=user,
            usages=["digital signature", "server auth" if signer == KUBELET_SERVING else "client auth"],
        ),
    )


async def causes(cluster: AsyncCluster, ready: str, *requests: Request) -> tuple[list[Cause], Reader]:
    """Return the causes of node-1, whose requests these are."""
    node = await cluster.client.get(core_v1.Node, "node-1")
    for each in node.status.conditions:
        if each.type == "Ready":
            each.status = ready
    asked = Diagnosis(Reader(cluster.client, cluster.now), FINDERS, of_others)
    asked.reader._lists[Request, "", "", ""] = list(requests)
    return list(await nodes.causes(asked, node)), asked.reader


def dns(name: str) -> x509.GeneralName:
    return x509.DNSName(name)


def ip(address: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(address))


async def addresses(cluster: AsyncCluster, name: str) -> list[str]:
    node: Object = await cluster.get(f"node/{name}")
    return [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"]


async def test_a_serving_request_is_never_why_a_node_is_not_ready() -> None:
    async with AsyncCluster(1) as cluster:
        own = request(KUBELET_SERVING, dns("node-1"), ip((await addresses(cluster, "node-1"))[0]))
        for waiting in (own, request(KUBELET_SERVING, dns("kubernetes.default.svc"), ip("10.96.0.1"))):
            (found,), _ = await causes(cluster, "False", waiting)
            assert "certificate" not in found.text and "certificate" not in found.fix
        (found,), _ = await causes(cluster, "Unknown", own, request(KUBELET_CLIENT, name="csr-2"))
        assert found.text == "the certificate request csr-2 of node node-1 waits for approval"
        assert found.fix == "kubectl certificate approve csr-2"


async def test_a_serving_request_with_the_nodes_own_names_is_why_its_logs_may_not_work() -> None:
    async with AsyncCluster(2) as cluster:
        own = request(KUBELET_SERVING, dns("node-1"), ip((await addresses(cluster, "node-1"))[0]))
        (found,), _ = await causes(cluster, "True", own)
        assert (
            found.text.startswith("logs, exec and port-forward of pods on node node-1 may not work: ") and found.partial
        )
        assert found.fix == "kubectl certificate approve csr-1"
        for other in (request(KUBELET_SERVING, dns("node-2"), node="node-2"), request(KUBELET_CLIENT)):
            assert (await causes(cluster, "True", other))[0] == []


@pytest.mark.parametrize(
    "name",
    [
        *("kubernetes.default.svc", "kubernetes", "web.shop.svc.corp.example", "node-2", "*.example.org", "localhost"),
        *("10.96.0.1", "127.0.0.1", "192.0.2.77", "OTHER", "RECORDED", "::ffff:a60:1"),
    ],
)
async def test_a_serving_request_with_any_other_name_is_shown_and_not_offered(name: str) -> None:
    async with AsyncCluster(2) as cluster:
        own, other = (await addresses(cluster, "node-1"))[0], (await addresses(cluster, "node-2"))[0]
        if name == "RECORDED":
            recorded = {"metadata": {"name": "wherry-api-servers", "namespace": "kube-system"}, "data": {"names": own}}
            await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **recorded})
        wanted = {"OTHER": other, "RECORDED": own}.get(name, name)
        given = ip(wanted) if wanted[-1].isdigit() and wanted != "node-2" else dns(wanted)
        (found,), _ = await causes(cluster, "True", request(KUBELET_SERVING, dns("node-1"), ip(own), given))
        assert wanted in found.text and "a person must look at its names" in found.text
        assert found.fix == "kubectl describe certificatesigningrequest/csr-1"


@pytest.mark.parametrize("plural", ["services", "nodes", "endpointslices", "configmaps"])
async def test_a_serving_request_is_not_offered_if_not_all_that_it_may_name_can_be_read(
    plural: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncCluster(1) as cluster:
        own = request(KUBELET_SERVING, dns("node-1"), ip((await addresses(cluster, "node-1"))[0]))
        client = cluster.client
        call = client.call

        async def refused(method: str, path: str, *more: Any, **options: Any) -> Any:
            if f"/{plural}" in path and not path.endswith("/nodes/node-1"):
                raise errors.forbidden("", plural, "", "not for you")
            return await call(method, path, *more, **options)

        monkeypatch.setattr(client, "call", refused)
        (found,), _ = await causes(cluster, "True", own)
        assert "could be read" in found.text or "could not be read" in found.text
        assert found.fix == "kubectl describe certificatesigningrequest/csr-1"


def test_the_subject_of_another_node_is_not_the_nodes() -> None:
    spec = request(KUBELET_SERVING, dns("node-1"), node="node-2").spec
    assert spec is not None and not certificate_requests.is_of_node(spec, KUBELET_SERVING, "node-1")
