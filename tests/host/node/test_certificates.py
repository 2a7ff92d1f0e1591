"""A node that joins with a bootstrap kubeconfig, and renews what it was given."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kube import certificates, kubeconfig, pki
from kube.api.certificates_v1 import CertificateSigningRequest, CertificateSigningRequestCondition
from kube.certificates import CLIENT, SERVING, CertificateError, Rotation
from kube.client import Client
from kube.clock import SYSTEM
from kube.transport import HttpsTransport
from tests.support.control import ApiUnderTest


async def _sign(server: ApiUnderTest, *, deny: bool = False) -> None:
    """Answer the first request as the approver and the signer do."""
    admin = server.client()
    while not (found := (await admin.list(CertificateSigningRequest)).items):
        await asyncio.sleep(0.02)
    csr = found[0]
    kind = "Denied" if deny else "Approved"
    condition = CertificateSigningRequestCondition(type=kind, status="True", reason="Test", message="by the test")
    csr.status.conditions = [condition]
    csr = await admin.update(csr, subresource="approval")
    if deny:
        return
    request = x509.load_pem_x509_csr(base64.b64decode(csr.spec.request))
    now, key = SYSTEM.now(), request.public_key()
    signed = pki.sign(server.keys.ca, request.subject, key, (), (pki.CLIENT,), now, now + timedelta(days=1))
    csr.status.certificate = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    await admin.update(csr, subresource="status")


async def test_a_bootstrap_kubeconfig_becomes_the_nodes_own(server: ApiUnderTest, tmp_path: Path) -> None:
    target, folder = tmp_path / "kubelet.kubeconfig", tmp_path / "pki"
    bootstrap = server.kubeconfig("system:bootstrap:abc", ("system:bootstrappers", "system:masters"))
    async with asyncio.TaskGroup() as group:
        group.create_task(_sign(server))
        group.create_task(certificates.bootstrap(bootstrap, target, folder, "node-9", clock=SYSTEM))
    access = kubeconfig.load(target)
    assert (folder / CLIENT.file).is_symlink() and access.certificate_file == str(folder / CLIENT.file)
    certificate = pki.decode_certificate((folder / CLIENT.file).read_bytes())
    assert certificate.subject.rfc4514_string() in (
        "O=system:nodes,CN=system:node:node-9",
        "CN=system:node:node-9,O=system:nodes",
    )
    client = Client(HttpsTransport(access))
    try:
        await client.call("GET", "/version")
    finally:
        await client.close()


async def test_a_denied_request_is_an_error_with_the_reason(server: ApiUnderTest) -> None:
    key = pki.new_key()
    pem = pki.kubelet_client_request(key, "node-9")

    async def ask() -> None:
        with pytest.raises(CertificateError, match="was denied: by the test"):
            await certificates.request(server.client(), CLIENT, key, pem, clock=SYSTEM)

    await asyncio.gather(ask(), _sign(server, deny=True))


async def test_a_certificate_is_due_late_in_its_life_and_swapped_whole(server: ApiUnderTest, tmp_path: Path) -> None:
    now = SYSTEM.now()
    ca = server.keys.ca

    def issue(begun: timedelta, life: timedelta) -> tuple[bytes, pki.PrivateKey]:
        pair = pki.issue(ca, "system:node:n", ("system:nodes",), usages=(pki.SERVER,), now=now - begun, lifetime=life)
        return pair.cert_pem, pair.key

    async def renewed() -> None:
        return

    rotation = Rotation(SERVING, tmp_path, server.client(), lambda key: b"", renewed, clock=SYSTEM)
    assert rotation._seconds_until_renewal() == 0.0
    day = timedelta(days=1)
    first = certificates.store(tmp_path, SERVING, *issue(timedelta(), 100 * day), now)
    assert 69 * 86400 < rotation._seconds_until_renewal() < 91 * 86400
    old = first.resolve()
    certificates.store(tmp_path, SERVING, *issue(95 * day, 100 * day), now + day)
    assert rotation._seconds_until_renewal() < 0 and not old.exists() and first.resolve() != old
    assert first.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("names", "due"), [(("n1", "192.0.2.1"), False), (("n1", "192.0.2.2"), True)])
def test_a_certificate_without_the_nodes_address_is_due_at_once(
    names: tuple[str, ...], due: bool, tmp_path: Path
) -> None:
    now = SYSTEM.now()
    pair = pki.issue(pki.new_ca("ca", now), "n1", usages=(pki.SERVER,), sans=("n1", "192.0.2.1"), now=now)
    certificates.store(tmp_path, SERVING, pair.cert_pem, pair.key, now)

    async def renewed() -> None:
        return

    client = Client(HttpsTransport(kubeconfig.Access(server="https://192.0.2.9:6443")))
    rotation = Rotation(SERVING, tmp_path, client, lambda key: b"", renewed, names=names, clock=SYSTEM)
    assert (rotation._seconds_until_renewal() == 0.0) is due
