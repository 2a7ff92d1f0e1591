"""Joining against a real API server with its controllers: tokens, certificates, and what they open."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from control.auth import certificates as signers
from kube import bootstrap_tokens, certificates, kubeconfig, pki, servers
from kube.api import core_v1, meta_v1
from kube.api.certificates_v1 import CertificateSigningRequest
from kube.bootstrap_tokens import CONTROL_PLANE_GROUP, NODE_GROUP
from kube.certificates import PROXY, PROXY_USER, Rotation
from kube.client import Client
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from netproxy import own_certificate
from tests.support.joinable_cluster import INFO, JoinableCluster, joinable_cluster, until
from wherry import certificate_bundle, published, tokens
from wherry import cluster as wherry_cluster
from wherry.errors import WherryError
from wherry.settings import Settings

Make = Callable[[pki.PrivateKey], bytes]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[JoinableCluster]:
    async with joinable_cluster(tmp_path) as made:
        yield made


async def test_everybody_may_read_the_discovery_document_and_nothing_else(cluster: JoinableCluster) -> None:
    nobody: tuple[str, tuple[str, ...]] = ("", ())
    found = await cluster.api.request("GET", INFO, user=nobody)
    assert found.status == 200
    assert set(found.json["data"]) == {"kubeconfig", f"jws-kubeconfig-{cluster.token.id}"}
    folder = INFO.rpartition("/")[0]
    for method, path in [
        ("GET", folder),
        ("GET", f"{folder}?watch=true&fieldSelector=metadata.name=cluster-info"),
        ("GET", f"{folder}/kube-root-ca.crt"),
        ("GET", INFO + "/"),
        ("PUT", INFO),
        ("PATCH", INFO),
        ("DELETE", INFO),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubelet-config"),
        ("GET", "/api/v1/namespaces/kube-system/secrets"),
        ("GET", "/api"),
    ]:
        refused = await cluster.api.request(method, path, user=nobody)
        assert refused.status in (401, 404), (method, path, refused.body)
        assert b'"data"' not in refused.body


async def test_without_the_role_nobody_reads_even_that(cluster: JoinableCluster) -> None:
    await cluster.api.kubectl("delete", "rolebinding", "-n", "kube-public", "wherry:bootstrap-signer-clusterinfo")

    async def forbidden() -> bool:
        return (await cluster.api.request("GET", INFO, user=("", ()))).status == 403

    await until(forbidden)


async def test_the_document_is_signed_for_each_token_while_it_lives(cluster: JoinableCluster) -> None:
    second = await tokens.create(cluster.admin)
    assert await cluster.signatures() == {cluster.token.id, second.id}
    await tokens.delete(cluster.admin, str(second))

    async def one_left() -> bool:
        return await cluster.signatures() == {cluster.token.id}

    await until(one_left)
    short = bootstrap_tokens.new()
    await cluster.admin.create(tokens.secret(short, SYSTEM.now() + timedelta(seconds=2), "", (NODE_GROUP,)))

    async def expired() -> bool:
        return short.id not in [entry.token.id for entry in await tokens.known(cluster.admin)]

    await until(expired)
    await until(one_left)
    with pytest.raises(StatusError) as refused:
        await cluster.as_joining(short).get(core_v1.Node, "n1")
    assert refused.value.code == 401


async def test_the_document_is_signed_anew_when_it_changes(cluster: JoinableCluster) -> None:
    patch = {"data": {"kubeconfig": "another"}}
    await cluster.admin.patch(core_v1.ConfigMap, "cluster-info", "kube-public", patch)

    async def right() -> bool:
        data = (await cluster.admin.get(core_v1.ConfigMap, "cluster-info", "kube-public")).data
        return bootstrap_tokens.verify("another", data.get(f"jws-kubeconfig-{cluster.token.id}", ""), cluster.token)

    await until(right)


async def test_tokens_are_listed_with_what_is_known_of_them(cluster: JoinableCluster) -> None:
    made = await tokens.create(cluster.admin, timedelta(0), "for ever")
    first, last = await tokens.known(cluster.admin)
    assert (first.token, last.token) == (cluster.token, made)
    assert first.expires is not None and first.expires - SYSTEM.now() > timedelta(hours=23, minutes=59)
    assert last.expires is None and last.description == "for ever"
    assert last.usages == ("authentication", "signing")
    with pytest.raises(WherryError, match=f"there is a token {made.id} already"):
        await tokens.create(cluster.admin, token=made)
    with pytest.raises(WherryError, match="there is no token zzzzzz"):
        await tokens.delete(cluster.admin, "zzzzzz")


# -- what the token opens ---------------------------------------------------------------------------------------------
async def test_the_token_reads_how_nodes_are_configured(cluster: JoinableCluster) -> None:
    documents = await published.read(cluster.as_joining())
    assert documents.kubelet["clusterDNS"] == ["10.96.0.10"]
    assert documents.kubelet["serverTLSBootstrap"] is True
    assert documents.proxy["clusterCIDR"] == "10.244.0.0/16"
    assert documents.cluster["service_cidr"] == "10.96.0.0/12"
    with pytest.raises(StatusError) as refused:
        await cluster.as_joining().list(core_v1.Secret, "kube-system")
    assert refused.value.code == 403


async def test_what_was_added_to_a_document_stays_when_it_is_published_again(cluster: JoinableCluster) -> None:
    text = (await cluster.admin.get(core_v1.ConfigMap, "kubelet-config", "kube-system")).data["kubelet"]
    patch = {"data": {"kubelet": text.replace("clusterDomain: cluster.local", "clusterDomain: no\nmaxOpenFiles: 5")}}
    await cluster.admin.patch(core_v1.ConfigMap, "kubelet-config", "kube-system", patch)
    await published.publish(cluster.admin, cluster.settings)
    documents = await published.read(cluster.as_joining())
    assert (documents.kubelet["maxOpenFiles"], documents.kubelet["clusterDomain"]) == (5, "cluster.local")


async def test_the_token_gets_certificates_for_a_node_and_its_proxy(cluster: JoinableCluster) -> None:
    client = cluster.as_joining()
    for kind, make, user in (
        (certificates.CLIENT, lambda key: pki.kubelet_client_request(key, "n2"), "system:node:n2"),
        (PROXY, lambda key: pki.new_request(key, PROXY_USER), PROXY_USER),
    ):
        key = pki.new_key()
        pem = await certificates.request(client, kind, key, make(key), clock=SYSTEM)
        certificate = pki.decode_certificate(pem)
        certificate.verify_directly_issued_by(cluster.api.keys.ca.certificate)
        assert f"CN={user}" in certificate.subject.rfc4514_string()


async def test_a_node_is_given_a_serving_certificate_once_its_node_has_the_address(cluster: JoinableCluster) -> None:
    key = pki.new_key()
    pem = pki.kubelet_serving_request(key, "n2", ("n2", "192.0.2.12"))
    itself = cluster.api.client("system:node:n2", ("system:nodes",))
    requesting = asyncio.create_task(certificates.request(itself, certificates.SERVING, key, pem, clock=SYSTEM))
    addresses = [{"type": "InternalIP", "address": "192.0.2.12"}, {"type": "Hostname", "address": "n2"}]
    status = {"status": {"addresses": addresses}}
    await cluster.admin.create(core_v1.Node(metadata=meta_v1.ObjectMeta(name="n2")))
    await cluster.admin.patch(core_v1.Node, "n2", "", status, subresource="status")
    certificate = pki.decode_certificate(await requesting)
    certificate.verify_directly_issued_by(cluster.api.keys.ca.certificate)


async def test_a_node_that_claims_an_address_of_the_api_servers_certificate_waits_for_a_person(
    cluster: JoinableCluster,
) -> None:
    """An address in front of the servers is nobody's Node's and in no endpoints: the certificate alone tells."""
    itself = cluster.api.client("system:node:n2", ("system:nodes",))
    addresses = [{"type": "InternalIP", "address": a} for a in ("192.0.2.12", "192.0.2.100")]
    status = {"status": {"addresses": [*addresses, {"type": "Hostname", "address": "n2"}]}}
    await cluster.admin.create(core_v1.Node(metadata=meta_v1.ObjectMeta(name="n2")))
    await cluster.admin.patch(core_v1.Node, "n2", "", status, subresource="status")

    async def ask(*names: str) -> bytes:
        key = pki.new_key()
        pem = pki.kubelet_serving_request(key, "n2", names)
        return await certificates.request(itself, certificates.SERVING, key, pem, clock=SYSTEM)

    floating = asyncio.create_task(ask("n2", "192.0.2.100"))
    try:
        await until(lambda: _pending(cluster.admin))
        # A request that is answered shows that the approver has looked at the one before, too.
        assert await ask("n2", "192.0.2.12")
        assert await _pending(cluster.admin)
        assert not floating.done()
    finally:
        floating.cancel()
        await asyncio.gather(floating, return_exceptions=True)


async def test_nobody_joins_by_a_name_that_the_api_server_calls_a_webhook_by(cluster: JoinableCluster) -> None:
    client, key = cluster.as_joining(), pki.new_key()

    async def ask(name: str) -> bytes:
        pem = pki.kubelet_client_request(key, name)
        return await certificates.request(client, certificates.CLIENT, key, pem, clock=SYSTEM)

    refused = asyncio.create_task(ask("webhook.shop.svc"))
    try:
        await until(lambda: _pending(cluster.admin))
        assert await ask("n2")
        assert await _pending(cluster.admin) and not refused.done()
    finally:
        refused.cancel()
        await asyncio.gather(refused, return_exceptions=True)


async def _pending(admin: Client) -> bool:
    found = (await admin.list(CertificateSigningRequest)).items
    return any(not csr.status.conditions for csr in found)


class Identity:
    """One of a joined machine's client certificates in use, and what renews it."""

    def __init__(self, cluster: JoinableCluster, folder: Path, kind: certificates.Kind, make: Make) -> None:
        self.cluster, self.folder, self.kind, self.make = cluster, folder, kind, make
        self.file = str(folder / kind.file)

    async def begin(self) -> Rotation:
        """Have the first certificate signed with the token; return what renews it from then on."""
        key = pki.new_key()
        pem = await certificates.request(self.cluster.as_joining(), self.kind, key, self.make(key), clock=SYSTEM)
        certificates.store(self.folder, self.kind, pem, key, SYSTEM.now())
        self.access = Access(
            server=self.cluster.api.url, ca=self.cluster.ca, certificate_file=self.file, key_file=self.file
        )
        self.transport = HttpsTransport(self.access)
        self.client = Client(self.transport)
        self.cluster.api._clients.append(self.client)
        if self.kind is PROXY:
            rotation = own_certificate.rotation(self.access, self.transport, SYSTEM)
            assert rotation is not None
            return rotation
        return Rotation(self.kind, self.folder, self.client, self.make, self.transport.reconnect, clock=SYSTEM)


async def test_a_joined_machines_certificates_are_renewed_before_they_end(
    cluster: JoinableCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a life of some seconds, all three are used until long after the first ones have ended."""
    monkeypatch.setattr(signers, "LIFETIME", timedelta(seconds=12))
    # Of 36 seconds renewal is due after 25.2 to 32.4, and 3.6 to 10.8 before the end.
    monkeypatch.setattr(pki, "BACKDATE", timedelta(seconds=24))
    addresses = [{"type": "InternalIP", "address": "192.0.2.12"}, {"type": "Hostname", "address": "n2"}]
    status = {"status": {"addresses": addresses}}
    await cluster.admin.create(core_v1.Node(metadata=meta_v1.ObjectMeta(name="n2")))
    await cluster.admin.patch(core_v1.Node, "n2", "", status, subresource="status")

    async def nothing_to_tell() -> None:
        return

    proxy = Identity(cluster, tmp_path, PROXY, lambda key: pki.new_request(key, PROXY_USER))
    agent = Identity(cluster, tmp_path, certificates.CLIENT, lambda key: pki.kubelet_client_request(key, "n2"))
    rotations = [await proxy.begin(), await agent.begin()]
    names = ("n2", "192.0.2.12")
    rotations.append(
        Rotation(
            certificates.SERVING,
            tmp_path,
            agent.client,
            lambda key: pki.kubelet_serving_request(key, "n2", names),
            nothing_to_tell,
            names=names,
            clock=SYSTEM,
        )
    )
    tasks = [asyncio.create_task(rotation.run()) for rotation in rotations]
    try:
        await until(lambda: asyncio.to_thread(rotations[-1].file.exists))
        first = [pki.decode_certificate(await asyncio.to_thread(r.file.read_bytes)) for r in rotations]
        while SYSTEM.now() < max(c.not_valid_after_utc for c in first) + timedelta(seconds=1):
            await proxy.client.list(core_v1.Service)
            await agent.client.get(core_v1.Node, "n2")
            await asyncio.sleep(0.1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    last = [pki.decode_certificate(await asyncio.to_thread(r.file.read_bytes)) for r in rotations]
    for old, new in zip(first, last, strict=True):
        assert new.not_valid_after_utc > old.not_valid_after_utc
        assert new.subject == old.subject
        assert new.public_key() != old.public_key(), "a new certificate is for a new key"


async def test_a_kubeconfig_with_its_certificate_inside_is_left_to_whoever_wrote_it(cluster: JoinableCluster) -> None:
    transport = HttpsTransport(Access(server=cluster.api.url))
    assert own_certificate.rotation(Access(server=cluster.api.url, certificate=b"x"), transport, SYSTEM) is None


async def test_a_workers_command_goes_on_to_a_server_that_its_agent_has_learned_of(
    cluster: JoinableCluster, tmp_path: Path
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        gone = f"https://127.0.0.1:{nobody.getsockname()[1]}"
        worker = Settings(prefix=str(tmp_path / "worker"), node_name="n2", role="worker", joined=gone)
        pair = cluster.api.keys.client("system:node:n2", ("system:nodes",), SYSTEM.now())
        access = Access(server=gone, ca=cluster.ca, certificate=pair.cert_pem, key=pair.key_pem)
        kubeconfig.write(worker.layout.agent_kubeconfig, kubeconfig.render(access))
        kubeconfig.write(servers.beside(worker.layout.agent_kubeconfig), f"{cluster.api.url}\n")
        async with wherry_cluster.connect(worker) as client:
            assert await client.call("GET", "/readyz") == b"ok"
            assert getattr(client.transport, "server", "") == cluster.api.url


# -- members of the control plane -------------------------------------------------------------------------------------
async def test_another_members_certificates_open_with_a_token_and_a_key_for_that(cluster: JoinableCluster) -> None:
    key = certificate_bundle.new_key()
    bundle = certificate_bundle.Bundle({"ca.key": b"the key"}, {"etcd_servers": "https://10.0.0.1:2379"})
    with pytest.raises(WherryError, match="`wherry token create --control-plane`"):
        await certificate_bundle.download(cluster.as_joining(), key)
    groups = (NODE_GROUP, CONTROL_PLANE_GROUP)
    token = await tokens.create(cluster.admin, certificate_bundle.LIFETIME, groups=groups)
    await certificate_bundle.upload(cluster.admin, bundle, key, token)

    found = await certificate_bundle.download(cluster.as_joining(token), key)
    assert found == bundle
    stored = await cluster.admin.get(core_v1.Secret, "wherry-certs", "kube-system")
    assert b"the key" not in json.dumps(stored.data).encode()
    with pytest.raises(WherryError, match="--certificate-key does not open"):
        await certificate_bundle.download(cluster.as_joining(token), certificate_bundle.new_key())
    with pytest.raises(WherryError, match="offers no certificates"):
        await certificate_bundle.download(cluster.as_joining(), key)

    await tokens.delete(cluster.admin, token.id)

    async def gone() -> bool:
        found = await cluster.admin.list(core_v1.Secret, "kube-system", field_selector="metadata.name=wherry-certs")
        return not found.items

    await until(gone)
