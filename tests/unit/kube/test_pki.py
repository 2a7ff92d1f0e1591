from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube import pki, pki_layout
from kube.files import write_file

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def test_a_serving_certificate_verifies_for_every_name_the_api_server_goes_by(tmp_path: Path) -> None:
    made = pki_layout.ensure(tmp_path, now=NOW, hosts=("host1", "192.0.2.7"))
    store = verification.Store([made.ca.certificate])
    verifier = verification.PolicyBuilder().store(store).time(NOW)
    names = ["kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", "host1"]
    for name in names:
        verifier.build_server_verifier(x509.DNSName(name)).verify(made.apiserver.certificate, [])
    san = made.apiserver.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(a) for a in san.get_values_for_type(x509.IPAddress)} == {"192.0.2.7", "10.96.0.1", "127.0.0.1", "::1"}


def test_the_folder_has_kubeadms_files_and_keys_only_their_owner_reads(tmp_path: Path) -> None:
    pki_layout.ensure(tmp_path / "pki", now=NOW)
    found = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "pki").iterdir()}
    pairs = ("ca", "front-proxy-ca", "apiserver", "apiserver-kubelet-client", "front-proxy-client")
    keys = {f"{name}.key" for name in pairs} | {"sa.key"}
    assert set(found) == keys | {f"{name}.crt" for name in pairs} | {"sa.pub"}
    assert {found[name] for name in keys} == {0o600}


def test_certificates_stay_until_they_run_out_or_lack_a_name(tmp_path: Path) -> None:
    first = pki_layout.ensure(tmp_path, now=NOW)
    again = pki_layout.ensure(tmp_path, now=NOW + timedelta(days=100))
    assert again.apiserver.cert_pem == first.apiserver.cert_pem
    renamed = pki_layout.ensure(tmp_path, now=NOW, hosts=("new-name",))
    assert renamed.apiserver.cert_pem != first.apiserver.cert_pem
    assert renamed.ca.cert_pem == first.ca.cert_pem
    later = pki_layout.ensure(tmp_path, now=NOW + timedelta(days=300), hosts=("new-name",))
    assert later.apiserver.cert_pem != renamed.apiserver.cert_pem
    assert later.kubelet_client.cert_pem != renamed.kubelet_client.cert_pem
    assert later.ca.cert_pem == first.ca.cert_pem


def test_a_half_written_certificate_is_made_anew(tmp_path: Path) -> None:
    pki_layout.ensure(tmp_path, now=NOW)
    (tmp_path / "apiserver.key").write_bytes(b"")
    made = pki_layout.ensure(tmp_path, now=NOW)
    assert pki.KeyPair.load(tmp_path, "apiserver").certificate == made.apiserver.certificate


def test_a_key_that_is_not_the_certificates_is_not_loaded(tmp_path: Path) -> None:
    ca = pki.new_ca("kubernetes", NOW)
    ca.save(tmp_path, "ca")
    write_file(tmp_path / "ca.key", pki.encode_key(pki.new_key()), 0o600)
    with pytest.raises(pki.PKIError, match="is not the key of"):
        pki.KeyPair.load(tmp_path, "ca")


def test_a_leaf_never_outlives_its_authority() -> None:
    ca = pki.new_ca("kubernetes", NOW, timedelta(days=10))
    leaf = pki.issue(ca, "jane", ("dev",), now=NOW)
    assert leaf.certificate.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_a_client_certificate_names_its_user_and_groups() -> None:
    leaf = pki.issue(pki.new_ca("kubernetes", NOW), "jane", ("dev", "ops"), now=NOW).certificate
    assert [a.value for a in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["jane"]
    assert [a.value for a in leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["dev", "ops"]
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_rsa_and_ec_keys_are_read_back_and_others_refused() -> None:
    for key in (pki.new_key(), rsa.generate_private_key(65537, 2048)):
        assert pki.encode_key(pki.decode_key(pki.encode_key(key))) == pki.encode_key(key)
        assert len(pki.decode_public_keys(pki.encode_public_key(key.public_key()) + pki.encode_key(key))) == 2
    with pytest.raises(pki.PKIError):
        pki.decode_key(b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")


def test_the_discovery_hash_is_that_of_the_public_key_info() -> None:
    import hashlib

    ca = pki.new_ca("kubernetes", NOW)
    spki = ca.key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert pki.ca_hash(ca.certificate) == "sha256:" + hashlib.sha256(spki).hexdigest()


def test_rotation_is_due_between_seven_and_nine_tenths_of_a_life() -> None:
    leaf = pki.issue(pki.new_ca("k", NOW), "n", now=NOW, lifetime=timedelta(days=100)).certificate
    first, last = pki.rotation_time(leaf, 0), pki.rotation_time(leaf, 1)
    assert timedelta(days=69) < first - NOW < timedelta(days=71)
    assert timedelta(days=89) < last - NOW < timedelta(days=91)


def test_kubelet_requests_carry_what_their_signers_want() -> None:
    key = pki.new_key()
    client = x509.load_pem_x509_csr(pki.kubelet_client_request(key, "n1"))
    assert client.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    serving = x509.load_pem_x509_csr(pki.kubelet_serving_request(key, "n1", ["n1", "192.0.2.1"]))
    san = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert san.get_values_for_type(x509.DNSName) == ["n1"] and serving.is_signature_valid


def test_a_node_with_a_long_name_gets_its_certificates() -> None:
    node = "n" * 60 + "." + "x" * 60
    request = x509.load_pem_x509_csr(pki.kubelet_client_request(pki.new_key(), node))
    assert request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == f"system:node:{node}"
