from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from kube import pki_layout
from wherry import certificate_bundle as bundles
from wherry.errors import WherryError
from wherry.settings import Settings

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_bundle_decrypts_only_with_its_key_and_name() -> None:
    key, other = bundles.read_key(bundles.new_key()), bundles.read_key(bundles.new_key())
    encrypted = bundles.encrypt(b"secret", key, "ca.key")
    assert b"secret" not in encrypted
    assert bundles.encrypt(b"secret", key, "ca.key") != encrypted
    assert bundles.decrypt(encrypted, key, "ca.key") == b"secret"
    for wrong_key, name in ((other, "ca.key"), (key, "sa.key")):
        with pytest.raises(WherryError, match="--certificate-key does not open"):
            bundles.decrypt(encrypted, wrong_key, name)
    with pytest.raises(WherryError, match="--certificate-key does not open"):
        bundles.decrypt(encrypted[:-1], key, "ca.key")


@pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 31, "ab" * 33])
def test_what_is_not_a_key_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(WherryError, match="64 hexadecimal digits"):
        bundles.read_key(text)


def test_a_control_plane_on_sqlite_has_no_bundle_and_names_the_migration() -> None:
    with pytest.raises(WherryError, match="`wherry store migrate"):
        bundles.collect(Settings())


def test_another_member_gets_the_authorities_and_etcds_files(tmp_path: Path) -> None:
    etcd = {f"etcd_{name}": str(tmp_path / name) for name in ("cafile", "certfile", "keyfile")}
    for path in etcd.values():
        Path(path).write_text(path)
    first = Settings(prefix=str(tmp_path / "1"), store="etcd", etcd_servers="https://10.0.0.1:2379", **etcd)  # type: ignore[arg-type]
    pki_layout.ensure(first.layout.pki, now=NOW)
    first.layout.etc.mkdir(parents=True)
    (first.layout.etc / "encryption.yaml").write_text("kind: EncryptionConfiguration")

    bundle = bundles.collect(first)
    second = msgspec.structs.replace(Settings(prefix=str(tmp_path / "2"), store="etcd"), **bundle.settings)
    second = msgspec.structs.replace(second, **bundles.install(bundle, second.layout))

    assert second.etcd_servers == first.etcd_servers
    assert {Path(path).parent for path in (second.etcd_cafile, second.etcd_certfile, second.etcd_keyfile)} == {
        second.layout.pki
    }
    assert Path(second.etcd_keyfile).read_text() == etcd["etcd_keyfile"]
    assert Path(second.etcd_keyfile).stat().st_mode & 0o777 == 0o600
    assert (second.layout.etc / "encryption.yaml").read_text() == "kind: EncryptionConfiguration"
    assert second.layout.pki.stat().st_mode & 0o777 == 0o700
    ours = pki_layout.ensure(second.layout.pki, now=NOW)
    theirs = pki_layout.ensure(first.layout.pki, now=NOW)
    assert ours.ca.cert_pem == theirs.ca.cert_pem and ours.ca.key_pem == theirs.ca.key_pem
    assert (second.layout.pki / "sa.key").read_bytes() == (first.layout.pki / "sa.key").read_bytes()
    assert ours.apiserver.cert_pem != theirs.apiserver.cert_pem, "each member has a certificate of its own"
