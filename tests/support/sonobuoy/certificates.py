"""The CA of one run of an aggregator, with the certificates of its server and of its plugins' workers. Runs in pods."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_VALID = datetime.timedelta(days=1)


class Authority:
    """A CA whose key exists in memory only; `pem` is its certificate."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("sonobuoy-ca")
        certificate = self._sign(self._name, self._key.public_key(), x509.BasicConstraints(True, 0), [])
        self.pem = _text(certificate)

    def issue(self, name: str, address: str = "") -> dict[str, str]:
        """Return certificate and key as the data of a Secret, with an address for a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if address:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        certificate = self._sign(_name(name), key.public_key(), x509.BasicConstraints(False, None), names)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return {"tls.crt": _text(certificate), "tls.key": key.private_bytes(*form).decode()}

    def files(self, folder: Path, address: str) -> list[str]:
        """Write the certificate and key of the server and return their paths."""
        for name, text in self.issue("sonobuoy-aggregator", address).items():
            (folder / name).write_text(text)
        return [str(folder / name) for name in ("tls.crt", "tls.key")]

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        constraints: x509.BasicConstraints,
        names: list[x509.GeneralName],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALID)
            .not_valid_after(now + _VALID)
            .add_extension(constraints, critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
