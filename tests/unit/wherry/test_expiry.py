from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from kube import certificates, kubeconfig, pki
from kube.kubeconfig import Access
from wherry import expiry
from wherry.settings import Settings

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def pair(days: float) -> pki.KeyPair:
    ca = pki.new_ca("kubernetes", NOW - timedelta(days=400))
    return pki.issue(ca, "user", now=NOW - timedelta(days=300), lifetime=timedelta(days=300 + days))


def test_a_members_certificates_near_their_end_are_renewed_by_up(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path))
    pair(29).save(settings.layout.pki, "apiserver")
    pair(31).save(settings.layout.pki, "front-proxy-client")
    pair(400).save(settings.layout.pki, "front-proxy-ca")
    old = pair(-1)
    access = Access(server="https://192.0.2.1:6443", certificate=old.cert_pem, key=old.key_pem)
    kubeconfig.write(settings.layout.admin_kubeconfig, kubeconfig.render(access))
    found = {
        Path(end.what.split()[3]).name: (end.what.split(" ", 4)[4], end.fix) for end in expiry.ending(settings, NOW)
    }
    assert found == {
        "apiserver.crt": ("ends in 29 days", "`wherry certs renew` renews it"),
        "admin.kubeconfig": ("ended on 2026-04-30", "`wherry certs renew` renews it"),
    }


def test_a_workers_are_renewed_by_its_daemons_and_past_their_end_it_joins_again(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), role="worker", joined="https://192.0.2.1:6443")
    for kind, folder, days in (
        (certificates.CLIENT, settings.layout.kubelet / "pki", -2.0),
        (certificates.PROXY, settings.layout.proxy_pki, 5.5),
        (certificates.SERVING, settings.layout.kubelet / "pki", 100),
    ):
        made = pair(days)
        certificates.store(folder, kind, made.cert_pem, made.key, NOW)
    ended, ending = expiry.ending(settings, NOW)
    assert "kubelet-client-current.pem ended on" in ended.what and "join again" in ended.fix
    assert "kube-proxy-client-current.pem ends in 5 days" in ending.what and "should have renewed it" in ending.fix


def test_authorities_that_end_are_found_though_nothing_renews_them(tmp_path: Path) -> None:
    for role in ("", "worker"):
        settings = Settings(prefix=str(tmp_path / role), role=role or "control-plane")
        for name, days in (("ca", 9.5), ("front-proxy-ca", -1.0), ("etcd-ca", 31.0)):
            pair(days).save(settings.layout.pki, name)
        found = [end for end in expiry.ending(settings, NOW) if ".crt" in end.what]
        assert [(end.what.split("/")[-1], end.fix.partition(":")[0]) for end in found] == [
            ("ca.crt ends in 9 days", "nothing renews a CA"),
            ("front-proxy-ca.crt ended on 2026-04-30", "nothing renews a CA"),
        ]
