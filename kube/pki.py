"""Certificates and keys: authorities, serving and client certificates, signing requests, the service-account key pair.

They are created with `cryptography`, without an openssl process. Keys are ECDSA P-256: creating one takes 0.1 ms, an
RSA 2048 key 100 ms, and Go's TLS and upstream's token verifier accept both. Private keys are PEM in the traditional form (EC
PRIVATE KEY), as kubeadm writes them. The folder layout of a cluster is in `kube.pki_layout`; the signers
(control.auth.certificates) decide who gets a certificate.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube.files import write_file
from kube.node_names import NODE_PREFIX, NODES_GROUP

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

CA_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=365)
BACKDATE = timedelta(minutes=5)
"""Distance of NotBefore into the past, for clocks that are not quite right (upstream's signer does the same)."""

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


class PKIError(Exception):
    """A key, certificate or request cannot be read or is not what it has to be."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return encode_key(self.key)

    def save(self, directory: Path, name: str) -> None:
        """Write `name`.crt (0644) and `name`.key (0600). Those that root replaces keep their owner: the control plane runs
        as an account of its own, and reads renewed files while it runs.
        """
        write_file(directory / f"{name}.key", self.key_pem, 0o600, keep_owner=True)
        write_file(directory / f"{name}.crt", self.cert_pem, 0o644, keep_owner=True)

    @classmethod
    def load(cls, directory: Path, name: str) -> KeyPair:
        """Read what `save` wrote; OSError where it is not there, PKIError where it does not fit together."""
        certificate = decode_certificate((directory / f"{name}.crt").read_bytes())
        key = decode_key((directory / f"{name}.key").read_bytes())
        if encode_public_key(key.public_key()) != _spki(certificate.public_key(), serialization.Encoding.PEM):
            raise PKIError(f"{directory / name}.key is not the key of {name}.crt")
        return cls(certificate, key)


# -- making -----------------------------------------------------------------------------------------------------------
def new_key() -> PrivateKey:
    """Make an ECDSA P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def new_ca(
    common_name: str, now: datetime, lifetime: timedelta = CA_LIFETIME, key: PrivateKey | None = None
) -> KeyPair:
    """Make a self-signed authority, with its common name as a DNS name too, as kubeadm's."""
    key = key or new_key()
    name = _name(common_name, ())
    builder = _builder(name, name, key.public_key(), now, now + lifetime)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(
    ca: KeyPair,
    common_name: str,
    organizations: Sequence[str] = (),
    *,
    usages: Sequence[x509.ObjectIdentifier] = (CLIENT,),
    sans: Iterable[str] = (),
    now: datetime,
    lifetime: timedelta = LEAF_LIFETIME,
) -> KeyPair:
    """Make a key and its certificate; `sans` are DNS names and IP addresses in text."""
    key = new_key()
    subject = _name(common_name, organizations)
    certificate = sign(ca, subject, key.public_key(), general_names(sans), usages, now, now + lifetime)
    return KeyPair(certificate, key)


def sign(
    ca: KeyPair,
    subject: x509.Name,
    public_key: PublicKey,
    names: Sequence[x509.GeneralName],
    usages: Sequence[x509.ObjectIdentifier],
    now: datetime,
    not_after: datetime,
    *,
    key_encipherment: bool = False,
) -> x509.Certificate:
    """Make a leaf certificate for a key; it never outlives its authority."""
    not_after = min(not_after, ca.certificate.not_valid_after_utc)
    builder = _builder(subject, ca.certificate.subject, public_key, now, not_after)
    key_encipherment = key_encipherment or isinstance(public_key, rsa.RSAPublicKey)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(encipher_keys=key_encipherment), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(ca.key, hashes.SHA256())


def new_request(
    key: PrivateKey, common_name: str, organizations: Sequence[str] = (), sans: Iterable[str] = ()
) -> bytes:
    """Make a PKCS#10 signing request (PEM)."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(common_name, organizations))
    names = general_names(sans)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def kubelet_client_request(key: PrivateKey, node: str) -> bytes:
    """Make the request for a node's client certificate (signer kubernetes.io/kube-apiserver-client-kubelet)."""
    return new_request(key, NODE_PREFIX + node, (NODES_GROUP,))


def kubelet_serving_request(key: PrivateKey, node: str, sans: Iterable[str]) -> bytes:
    """Make the request for a node's serving certificate (signer kubernetes.io/kubelet-serving)."""
    return new_request(key, NODE_PREFIX + node, (NODES_GROUP,), sans)


def general_names(sans: Iterable[str]) -> list[x509.GeneralName]:
    """Turn DNS names and addresses in text into SANs, DNS names first, each once."""
    dns: list[x509.GeneralName] = []
    addresses: list[x509.GeneralName] = []
    for san in dict.fromkeys(sans):
        try:
            addresses.append(x509.IPAddress(ipaddress.ip_address(san)))
        except ValueError:
            dns.append(x509.DNSName(san))
    return dns + addresses


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: datetime, not_after: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(not_after)
    )


def _name(common_name: str, organizations: Iterable[str]) -> x509.Name:
    """Build a subject. X.520 ends a common name at 64 bytes, Kubernetes does not: node names may have 253."""
    parts = [(NameOID.ORGANIZATION_NAME, o) for o in organizations] + [(NameOID.COMMON_NAME, common_name)]
    return x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in parts])


def _key_usage(*, sign_certificates: bool = False, encipher_keys: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=encipher_keys or sign_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


# -- reading and writing ----------------------------------------------------------------------------------------------
def encode_key(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def decode_key(pem: bytes) -> PrivateKey:
    """Read an unencrypted RSA or EC private key."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise PKIError(f"not a private key: {error}") from error
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise PKIError(f"neither an RSA nor an EC key: {type(key).__name__}")
    return key


def encode_public_key(key: PublicKey) -> bytes:
    return _spki(key, serialization.Encoding.PEM)


def decode_public_keys(pem: bytes) -> list[PublicKey]:
    """Read the public keys in a PEM file: public keys, or private keys whose public half is meant."""
    found: list[PublicKey] = []
    for block in pem.split(b"-----END ")[:-1]:
        start = block.index(b"-----BEGIN ")
        label = block[start + 11 : block.index(b"-----", start + 11)]
        text = block[start:] + b"-----END " + label + b"-----\n"
        try:
            key = decode_key(text).public_key() if b"PRIVATE" in label else serialization.load_pem_public_key(text)
        except ValueError as error:
            raise PKIError(f"not a public key: {error}") from error
        if isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)):
            found.append(key)
    return found


def decode_certificate(pem: bytes) -> x509.Certificate:
    """Read the first certificate of a PEM text."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise PKIError(f"not a certificate: {error}") from error


# -- requests ---------------------------------------------------------------------------------------------------------
def rotation_time(certificate: x509.Certificate, jitter: float) -> datetime:
    """Return when to replace a certificate: at 70 % to 90 % of its life for a `jitter` of 0 to 1 (client-go's rule)."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return start + (end - start) * (0.7 + 0.2 * jitter)


def names_of(certificate: x509.Certificate) -> set[x509.GeneralName]:
    """Return the DNS names and addresses that a certificate is for."""
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def ca_hash(certificate: x509.Certificate) -> str:
    """Return `sha256:<hex>` of the subject public key info, what kubeadm's discovery pins."""
    return "sha256:" + hashlib.sha256(_spki(certificate.public_key(), serialization.Encoding.DER)).hexdigest()


def key_id(key: PublicKey) -> str:
    """Return the `kid` of a token signing key: base64url of the SHA-256 of its DER form, unpadded."""
    digest = hashlib.sha256(_spki(key, serialization.Encoding.DER)).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _spki(key: object, encoding: serialization.Encoding) -> bytes:
    if not isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)):
        raise PKIError(f"neither an RSA nor an EC key: {type(key).__name__}")
    return key.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
