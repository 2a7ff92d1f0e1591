"""Bundles of authorities that users name: cheap members alone are given to OpenSSL."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import pytest

from kube import ca_bundles, pki
from tests.support import hostile_certificates
from tests.support.hostile_certificates import pem

AUTHORITY = pki.new_ca("test", datetime.now(UTC)).cert_pem
SLOW = pem(hostile_certificates.certificate(hostile_certificates.slow_key()))


def encoded(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


def trusted(bundle: str) -> list[str]:
    found = ca_bundles.verifying(bundle).get_ca_certs()
    return [dict(pair[0] for pair in each["subject"])["commonName"] for each in found]  # type: ignore[misc, union-attr]


def test_a_bundle_s_authorities_are_trusted() -> None:
    other = pki.new_ca("other", datetime.now(UTC)).cert_pem
    assert trusted(encoded(b"# a comment\n", AUTHORITY, other, AUTHORITY)) == ["test", "other"]


def test_members_with_expensive_keys_are_skipped() -> None:
    start = time.process_time()
    assert trusted(encoded(SLOW * 5, AUTHORITY)) == ["test"]
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    "skipped",
    [
        b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n",
        pem(b"\x30\x00"),
        pem(b"\x30\x83\x01\x00\x00" + b"\0" * 65536),
        b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ],
    ids=["no base64", "no certificate", "a long one", "a key"],
)
def test_members_that_cannot_be_parsed_are_skipped(skipped: bytes) -> None:
    assert trusted(encoded(skipped, AUTHORITY)) == ["test"]


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        (encoded(b"nothing"), "unable to load root certificates: unable to parse bytes as PEM block"),
        ("AAA", "unable to load root certificates: unable to parse bytes as PEM block"),
        (encoded(SLOW), "unable to load root certificates: no valid certificate authority data seen"),
        (encoded(AUTHORITY[:100]), "unable to load root certificates: no valid certificate authority data seen"),
        (encoded(AUTHORITY * 1001), "the CA bundle has more than 1000 certificates: remove some"),
    ],
    ids=["no PEM", "no base64", "expensive", "cut off", "too many"],
)
def test_a_bundle_without_a_usable_certificate_is_an_error(bundle: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ca_bundles.verifying(bundle)
