"""A node's own certificates: requested with a bootstrap token, renewed before they expire (KEP-266, KEP-267).

The daemon makes the key and a CertificateSigningRequest; a controller or an administrator approves; the signed certificate
and its key go into one file, and the name `...-current.pem` is a link to it that is swapped by rename, so that a reader
always finds a pair that fits. Renewal is due at 70 to 90 % of the certificate's life, at random, so that the nodes of a
cluster do not ask together.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from kube import kubeconfig, pki
from kube.api import meta_v1
from kube.api.certificates_v1 import CertificateSigningRequest, CertificateSigningRequestSpec
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.files import write_file
from kube.kubeconfig import Access

log = logging.getLogger(__name__)

CLIENT_SIGNER, SERVING_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
FIRST_POLL_SECONDS, POLL_SECONDS, APPROVAL_SECONDS, RETRY_SECONDS = 0.05, 1.0, 15 * 60.0, 10.0


class CertificateError(Exception):
    """A certificate was denied, failed or did not come in time."""


class Kind(msgspec.Struct, frozen=True):
    """Type of a certificate, and the name of its file."""

    signer: str
    usage: str
    file: str


CLIENT = Kind(CLIENT_SIGNER, "client auth", "kubelet-client-current.pem")
SERVING = Kind(SERVING_SIGNER, "server auth", "kubelet-server-current.pem")
PROXY = Kind("kubernetes.io/kube-apiserver-client", "client auth", "kube-proxy-client-current.pem")
PROXY_USER = "system:kube-proxy"
"""User name of the service proxy, on every node."""


async def request(client: Client, kind: Kind, key: pki.PrivateKey, pem: bytes, *, clock: Clock) -> bytes:
    """Have a request signed; return the certificate's PEM. Raise CertificateError, StatusError."""
    made = await client.create(
        CertificateSigningRequest(
            metadata=meta_v1.ObjectMeta(generate_name="csr-"),
            spec=CertificateSigningRequestSpec(
                request=base64.b64encode(pem).decode(),
                signer_name=kind.signer,
                usages=["digital signature", kind.usage],
            ),
        )
    )
    name = made.metadata.name or ""
    log.info("requested a certificate from %s: %s", kind.signer, name)
    deadline, pause = clock.monotonic() + APPROVAL_SECONDS, FIRST_POLL_SECONDS
    while True:
        for condition in made.status.conditions:
            if condition.type in ("Denied", "Failed"):
                raise CertificateError(f"{name} was {condition.type.lower()}: {condition.message or condition.reason}")
        if made.status.certificate:
            return base64.b64decode(made.status.certificate)
        if clock.monotonic() > deadline:
            raise CertificateError(f"{name} was not signed within {APPROVAL_SECONDS:g} s")
        await clock.sleep(pause)
        pause = min(pause * 2, POLL_SECONDS)
        made = await client.get(CertificateSigningRequest, name)


def store(folder: Path, kind: Kind, certificate: bytes, key: pki.PrivateKey, now: datetime) -> Path:
    """Write certificate and key into a new file and make the current name lead to it; return that name."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    current = folder / kind.file
    fresh = folder / kind.file.replace("-current", now.strftime("-%Y-%m-%d-%H-%M-%S"))
    write_file(fresh, certificate + pki.encode_key(key), 0o600)
    temporary = folder / f".{kind.file}"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(fresh.name)
    old = current.resolve() if current.is_symlink() else None
    temporary.rename(current)
    if old is not None and old != fresh.resolve() and old.parent == folder.resolve():
        old.unlink(missing_ok=True)
    return current


async def bootstrap(bootstrap_file: Path, target: Path, folder: Path, node_name: str, *, clock: Clock) -> None:
    """Get a client certificate with the bootstrap kubeconfig's token and write the node's kubeconfig.

    Tries until the API server answers and the request is approved.
    """
    access = kubeconfig.load(bootstrap_file)
    from kube.transport import HttpsTransport  # the control plane reads names here and needs no HTTP client

    client = Client(HttpsTransport(access))
    try:
        while True:
            key = pki.new_key()
            try:
                pem = await request(client, CLIENT, key, pki.kubelet_client_request(key, node_name), clock=clock)
                break
            except (StatusError, CertificateError) as error:
                log.warning("bootstrap: %s", error)
                await clock.sleep(RETRY_SECONDS)
    finally:
        await client.close()
    current = await asyncio.to_thread(store, folder, CLIENT, pem, key, clock.now())
    own = Access(
        server=access.server,
        ca=access.ca,
        certificate_file=str(current),
        key_file=str(current),
        server_name=access.server_name,
    )
    text = kubeconfig.render(own, user=f"system:node:{node_name}")
    await asyncio.to_thread(kubeconfig.write, target, text)
    log.info("wrote %s", target)


class Rotation:
    """Renews one certificate; `renewed` is called when a new one is in place.

    A certificate that lacks one of `names` (DNS names, addresses) is due at once: the node has another address now.
    """

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        client: Client,
        make: Callable[[pki.PrivateKey], bytes],
        renewed: Callable[[], Awaitable[None]],
        *,
        names: Sequence[str] = (),
        clock: Clock,
    ) -> None:
        self._kind, self._folder, self._client = kind, folder, client
        self._make, self._renewed, self._clock, self._names = make, renewed, clock, names

    @property
    def file(self) -> Path:
        return self._folder / self._kind.file

    async def run(self) -> None:
        """Renew whenever it is due until cancelled; a certificate that is not there is due now."""
        while True:
            seconds = await asyncio.to_thread(self._seconds_until_renewal)
            if seconds > 0:
                await self._clock.sleep(min(seconds, 24 * 3600.0))
                continue
            try:
                key = pki.new_key()
                pem = await request(self._client, self._kind, key, self._make(key), clock=self._clock)
            except (StatusError, CertificateError) as error:
                log.warning("renewing %s: %s", self._kind.file, error)
                await self._clock.sleep(RETRY_SECONDS)
                continue
            await asyncio.to_thread(store, self._folder, self._kind, pem, key, self._clock.now())
            log.info("renewed %s", self._kind.file)
            await self._renewed()

    def _seconds_until_renewal(self) -> float:
        """Return the seconds until renewal."""
        try:
            certificate = pki.decode_certificate(self.file.read_bytes())
        except (OSError, pki.PKIError):
            return 0.0
        if not set(pki.general_names(self._names)) <= pki.names_of(certificate):
            return 0.0
        # The same file gives the same moment on every look.
        jitter = random.Random(certificate.serial_number).random()
        return (pki.rotation_time(certificate, jitter) - self._clock.now()).total_seconds()
