"""The folder of a cluster's certificates, with kubeadm's file names, so that kubeadm, upstream's servers and people find
what they expect:

    ca.crt ca.key                        signs the API server, nodes and users
    front-proxy-ca.crt front-proxy-ca.key, front-proxy-client.*   for extension API servers behind the aggregation layer
    apiserver.*                          what the API server shows
    apiserver-kubelet-client.*           what it shows to kubelets
    sa.key sa.pub                        signs service-account tokens

`ensure` makes what is missing and renews what runs out or has the wrong names; it never touches an authority that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kube import pki
from kube.files import write_file

RENEW_BEFORE = timedelta(days=90)


class ClusterPKI(msgspec.Struct, frozen=True):
    """All of a cluster's keys and certificates, in memory."""

    directory: Path
    ca: pki.KeyPair
    front_proxy_ca: pki.KeyPair
    apiserver: pki.KeyPair
    kubelet_client: pki.KeyPair
    front_proxy_client: pki.KeyPair
    service_account_key: pki.PrivateKey

    def client(self, name: str, groups: Sequence[str], now: datetime) -> pki.KeyPair:
        """Make a client certificate for a user (CN) with groups (O)."""
        return pki.issue(self.ca, name, groups, now=now)


def serving_names(domain: str, service_address: str, hosts: Sequence[str]) -> list[str]:
    """Return the names and addresses the API server's certificate must carry."""
    service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{domain}"]
    return list(dict.fromkeys([*service, "localhost", *hosts, service_address, "127.0.0.1", "::1"]))


def ensure(
    directory: Path,
    *,
    now: datetime,
    hosts: Sequence[str] = (),
    domain: str = "cluster.local",
    service_address: str = "10.96.0.1",
    renew_before: timedelta = RENEW_BEFORE,
) -> ClusterPKI:
    """Load a cluster's certificates, making and saving what is missing, ends within `renew_before` or lacks a name."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca = _authority(directory, "ca", "kubernetes", now)
    front_proxy_ca = _authority(directory, "front-proxy-ca", "front-proxy-ca", now)
    names = serving_names(domain, service_address, hosts)
    at, left = now, renew_before
    return ClusterPKI(
        directory,
        ca,
        front_proxy_ca,
        _leaf(directory, "apiserver", ca, "kube-apiserver", (), names, at, left),
        _leaf(directory, "apiserver-kubelet-client", ca, "kube-apiserver-kubelet-client", _ADMINS, (), at, left),
        _leaf(directory, "front-proxy-client", front_proxy_ca, "front-proxy-client", (), (), at, left),
        _token_key(directory),
    )


_ADMINS = ("system:masters",)


def _authority(directory: Path, name: str, common_name: str, now: datetime) -> pki.KeyPair:
    path = directory / f"{name}.crt"
    if path.exists():
        try:
            return pki.KeyPair.load(directory, name)
        except pki.PKIError as error:
            raise pki.PKIError(
                f"the CA in {path} is damaged: {error}; restore {path} and its key from a backup"
            ) from error
    made = pki.new_ca(common_name, now)
    made.save(directory, name)
    return made


def _leaf(
    directory: Path,
    name: str,
    ca: pki.KeyPair,
    common_name: str,
    organizations: Sequence[str],
    sans: Sequence[str],
    now: datetime,
    renew_before: timedelta,
) -> pki.KeyPair:
    try:
        found = pki.KeyPair.load(directory, name)
        if usable(found.certificate, ca, sans, now, renew_before):
            return found
    except (OSError, pki.PKIError):
        pass  # missing or half-written: recreated below
    usage = pki.SERVER if sans else pki.CLIENT
    made = pki.issue(ca, common_name, organizations, usages=(usage,), sans=sans, now=now)
    made.save(directory, name)
    return made


def usable(
    certificate: x509.Certificate,
    ca: pki.KeyPair,
    sans: Sequence[str],
    now: datetime,
    renew_before: timedelta = RENEW_BEFORE,
) -> bool:
    """True for a certificate of this authority that has these names and does not end within `renew_before`."""
    if certificate.not_valid_after_utc - now < renew_before:
        return False
    try:
        certificate.verify_directly_issued_by(ca.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return set(pki.general_names(sans)) <= pki.names_of(certificate)


def _token_key(directory: Path) -> pki.PrivateKey:
    path = directory / "sa.key"
    if path.exists():
        key = pki.decode_key(path.read_bytes())
    else:
        key = pki.new_key()
        write_file(path, pki.encode_key(key), 0o600)
    if not (directory / "sa.pub").exists():
        write_file(directory / "sa.pub", pki.encode_public_key(key.public_key()), 0o644)
    return key
