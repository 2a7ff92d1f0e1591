"""Certificates that have expired or soon will: of Secrets that serve TLS, and of a node's kubelet."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.x509.oid import NameOID

from kube import pki
from kube.api import certificates_v1, core_v1
from kube.object_names import name_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference
from wherry.why.times import ago, duration

SOON = timedelta(days=7)
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
CERTIFICATE, KEY = "tls.crt", "tls.key"


async def of_secret(
    diagnosis: Diagnosis, namespace: str, name: str, whose: str, hosts: Sequence[str] = ()
) -> Sequence[Cause]:
    """Return what is wrong with the Secret of a serving certificate; `whose` names its user in a sentence."""
    about = Reference("Secret", name, namespace)
    secret = await diagnosis.reader.get(core_v1.Secret, name, namespace)
    if secret is None:
        if not diagnosis.reader.missing(core_v1.Secret, name, namespace):
            return ()
        text = f"the certificate of {whose} is in the Secret {name} of {namespace}, which does not exist"
        return [Cause(text, commands.create_certificate(about), about)]
    if missing := [key for key in (CERTIFICATE, KEY) if not secret.data.get(key)]:
        text = f"the Secret {name} of the certificate of {whose} has no {' and no '.join(missing)}"
        return [Cause(text, commands.edit(about), about)]
    certificate = _decoded(secret.data[CERTIFICATE])
    if certificate is None:
        return [Cause(f"the {CERTIFICATE} of Secret {name} is no certificate", commands.edit(about), about)]
    renew = commands.replace_certificate(about)
    if text := _expiry(certificate, diagnosis.reader.now):
        return [Cause(f"the certificate of {whose} (Secret {name}) {text}", renew, about, partial="expires" in text)]
    covered = _names(certificate)
    for host in hosts:
        if not any(_covers(pattern, host) for pattern in covered):
            shown = ", ".join(sorted(covered)) or "no name"
            text = f"the certificate of {whose} (Secret {name}) is for {shown}, not for {host}"
            return [Cause(text, renew, about)]
    return ()


async def of_kubelet(diagnosis: Diagnosis, node: core_v1.Node, look: str) -> Sequence[Cause]:
    """Return a cause if the last client certificate that a node's kubelet got has expired.

    The API has certificates only in requests, which are removed an hour after they were issued.
    """
    newest: tuple[datetime, certificates_v1.CertificateSigningRequest, x509.Certificate] | None = None
    for request in await diagnosis.reader.all(certificates_v1.CertificateSigningRequest):
        spec, status = request.spec, request.status
        if spec is None or status is None or spec.signer_name != CLIENT_SIGNER or not status.certificate:
            continue
        certificate = _decoded(status.certificate)
        if certificate is None or f"system:node:{name_of(node)}" not in _subjects(certificate):
            continue
        if newest is None or certificate.not_valid_after_utc > newest[0]:
            newest = certificate.not_valid_after_utc, request, certificate
    if newest is None or newest[0] > diagnosis.reader.now:
        return ()
    text = f"the client certificate of node {name_of(node)}'s kubelet {_expiry(newest[2], diagnosis.reader.now)}"
    return [Cause(text, look, reference(node))]


def _subjects(certificate: x509.Certificate) -> list[str]:
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _decoded(data: str) -> x509.Certificate | None:
    """Return the first certificate of PEM text in base64, as the API has it; None if it is none."""
    try:
        return pki.decode_certificate(base64.b64decode(data))
    except (ValueError, pki.PKIError):
        return None


def _expiry(certificate: x509.Certificate, now: datetime) -> str:
    """Return when a certificate expired, expires soon or begins to be valid; "" if it is valid for longer."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if ends <= now:
        return f"expired {ago(ends, now)}, at {ends.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if begins > now:
        return f"is not valid for another {duration((begins - now).total_seconds())}: is a clock wrong?"
    return f"expires in {duration((ends - now).total_seconds())}" if ends - now < SOON else ""


def _names(certificate: x509.Certificate) -> set[str]:
    return {str(each.value) for each in pki.names_of(certificate)}


def _covers(pattern: str, host: str) -> bool:
    """Return whether a name of a certificate covers a host; an asterisk stands for one label."""
    if pattern.startswith("*.") and not host.startswith("*."):
        return host.partition(".")[2].lower() == pattern[2:].lower()
    return pattern.lower() == host.lower()
