"""The built-in certificate signers: accepted requests, automatic approval, and signing.

A request names its signer, which limits its subject, names and usages (pkg/apis/certificates/helpers.go and
pkg/controller/certificates/signer). Requests for a node's client certificate are approved automatically if the requestor
may create certificatesigningrequests/nodeclient, or /selfnodeclient for their own.
"""

from __future__ import annotations

import base64
import binascii
import functools
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as EKU

from control.auth.user import UserInfo
from control.auth.x509 import subject_user
from kube import pki, subjects
from kube.json_object import Object
from kube.node_names import NODES_GROUP

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN = "kubernetes.io/legacy-unknown"
SIGNERS = (CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN)

AMBIGUOUS = "the subject has more than one common name"
LONGEST_REQUEST = 32 * 1024
"""Characters of a request for the built-in signers, in base64. A kubelet's has 1 500, with the longest key and ten names; a
request of 12 000 has a certificate of more bytes than servers read of a client (`kube/peer_certificates.py`). Each part of a
subject takes 10 µs to decode."""
LIFETIME = timedelta(days=365)
MIN_LIFETIME = timedelta(minutes=10)


_EXTENDED = {
    "any": EKU.ANY_EXTENDED_KEY_USAGE,
    "server auth": EKU.SERVER_AUTH,
    "client auth": EKU.CLIENT_AUTH,
    "code signing": EKU.CODE_SIGNING,
    "email protection": EKU.EMAIL_PROTECTION,
    "s/mime": EKU.EMAIL_PROTECTION,
    "timestamping": EKU.TIME_STAMPING,
    "ocsp signing": EKU.OCSP_SIGNING,
}
_SIGNED = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)
"""The kinds of names that are looked at, and so may be signed."""
_UNREADABLE = (
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Exceptions of cryptography for invalid requests, besides ValueError."""
_BASIC = {"digital signature", "key encipherment"}


def parse_request(text: str) -> x509.CertificateSigningRequest:
    """Read spec.request (base64 of PEM), with its key and extensions; ValueError if it is too long or no PKCS#10 request."""
    if len(text) > LONGEST_REQUEST:
        raise ValueError(f"the request has more than {LONGEST_REQUEST} characters")
    try:
        pem = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("request is not base64") from error
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(pem)
        request.public_key()
        _ = request.extensions  # kept by the request once they are read
    except _UNREADABLE as error:
        raise ValueError(str(error)) from error
    return request


def decode_request(text: str) -> x509.CertificateSigningRequest:
    """Read a request as `parse_request` does; ValueError also where its signature is not that of its key."""
    request = parse_request(text)
    try:
        valid = request.is_signature_valid
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if not valid:
        raise ValueError("the request's signature is not that of its key")
    return request


@functools.lru_cache(maxsize=8)
def requested_user(text: str) -> UserInfo:
    """Return the user that a request's subject names; ValueError where it names none, or is invalid.

    Several admission plugins need it for each request, some of them twice.
    """
    return subject_user(decode_request(text).subject)


def refusal(signer: str, request: x509.CertificateSigningRequest, usages: set[str]) -> str:
    """Return why a signer does not sign a request, "" where it does."""
    if subjects.ambiguous(request.subject):
        return AMBIGUOUS
    try:
        subject = subject_user(request.subject)
    except subjects.SubjectError as error:
        return str(error)
    names = _names(request)
    if signer == LEGACY_UNKNOWN:
        return ""
    if signer == CLIENT:
        return "" if "client auth" in usages and usages <= _BASIC | {"client auth"} else "usages did not match"
    if signer not in (KUBELET_CLIENT, KUBELET_SERVING):
        return f"unrecognized signerName: {signer}"
    wanted = "client auth" if signer == KUBELET_CLIENT else "server auth"
    if subject.groups != (NODES_GROUP,):
        return "organization is not system:nodes"
    if names["email"]:
        return "email addresses are not allowed"
    if names["uri"]:
        return "URI SANs are not allowed"
    if signer == KUBELET_CLIENT and names["dns"]:
        return "DNS names are not allowed"
    if signer == KUBELET_CLIENT and names["ip"]:
        return "IP addresses are not allowed"
    if signer == KUBELET_SERVING and not names["dns"] and not names["ip"]:
        return "at least one DNS name or IP address is required"
    if not subject.name.startswith("system:node:"):
        return "subject common name does not begin with system:node: "
    if usages - {"key encipherment"} != {"digital signature", wanted}:
        return "usages did not match " + str(sorted({"digital signature", wanted}))
    return ""


def _names(request: x509.CertificateSigningRequest) -> dict[str, list[Any]]:
    try:
        san = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return {"dns": [], "ip": [], "email": [], "uri": []}
    return {
        "dns": san.get_values_for_type(x509.DNSName),
        "ip": san.get_values_for_type(x509.IPAddress),
        "email": san.get_values_for_type(x509.RFC822Name),
        "uri": san.get_values_for_type(x509.UniformResourceIdentifier),
    }


def has_condition(csr: Object, kind: str) -> bool:
    """Return whether a request is Approved, Denied or Failed."""
    return any(c.get("type") == kind for c in csr.get("status", {}).get("conditions") or ())


def sign_request(ca: pki.KeyPair, spec: Object, now: datetime) -> bytes:
    """Sign an approved request and return the certificate (PEM); ValueError where its signer does not.

    The subject and names are the request's, the usages the spec's; expirationSeconds counts within 10 minutes to a year.
    """
    request = decode_request(spec.get("request", ""))
    usages = set(spec.get("usages") or ())
    why = refusal(spec.get("signerName", ""), request, usages)
    if why:
        raise ValueError(why)
    key = request.public_key()
    if not isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)):
        raise ValueError("the request's key is neither RSA nor EC")
    life = LIFETIME
    if spec.get("expirationSeconds"):
        life = min(max(timedelta(seconds=spec["expirationSeconds"]), MIN_LIFETIME), LIFETIME)
    try:
        every = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [name for name in every if isinstance(name, _SIGNED)]
    except x509.ExtensionNotFound:
        names = []
    extended = [_EXTENDED[u] for u in sorted(usages & _EXTENDED.keys())]
    encipher = "key encipherment" in usages
    signed = pki.sign(ca, request.subject, key, names, extended, now, now + life, key_encipherment=encipher)
    return signed.public_bytes(serialization.Encoding.PEM)
