"""Section 2: etcd, by the responses of its ports to clients without a certificate."""

from __future__ import annotations

from collections.abc import Callable

from wherry.security.facts import EtcdPort, Facts
from wherry.security.rows import Check, CheckResult, failed, judge, not_here, passed

_SQLITE = "the store is SQLite, a file of the API server's"
_YOURS = "N/A with SQLite; with etcd, which its administrator configures, the ports are probed"


def _ports(which: str, wrong: Callable[[EtcdPort], bool], what: str, fix: str) -> Callable[[Facts], CheckResult]:
    def look(facts: Facts) -> CheckResult:
        if facts.settings.store == "sqlite":
            return not_here(_SQLITE)
        ports = facts.etcd.clients if which == "client" else facts.etcd.peers
        if not ports:
            return judge(f"etcd reports no {which} addresses", "check etcd's options")
        if bad := [port.url for port in ports if wrong(port)]:
            return failed(f"{', '.join(bad)} {what}", fix)
        return passed(", ".join(port.url for port in ports))

    return look


def _own_authority(facts: Facts) -> CheckResult:
    if facts.settings.store == "sqlite":
        return not_here(_SQLITE)
    if facts.etcd.own_authority:
        return passed()
    return failed("etcd's CA is the cluster's: every client of the cluster is accepted", "give etcd a CA of its own")


def _plain(port: EtcdPort) -> bool:
    return not port.encrypted or not port.trusted


CHECKS = (
    Check(
        "2.1",
        "Client connections to etcd use TLS",
        _ports("client", _plain, "has no certificate of --etcd-cafile", "etcd's `--cert-file` and `--key-file`"),
        _YOURS,
    ),
    Check(
        "2.2",
        "etcd requires client certificates",
        _ports("client", lambda port: port.open_to_all, "answers without one", "etcd's `--client-cert-auth`"),
        _YOURS,
    ),
    Check(
        "2.3",
        "etcd's certificate is not self-signed",
        _ports("client", lambda port: port.self_signed, "has a self-signed certificate", "remove `--auto-tls`"),
        _YOURS,
    ),
    Check(
        "2.4",
        "Peer connections use TLS",
        _ports(
            "peer", lambda port: not port.encrypted, "has no TLS", "etcd's `--peer-cert-file` and `--peer-key-file`"
        ),
        _YOURS,
    ),
    Check(
        "2.5",
        "Peers require client certificates",
        _ports("peer", lambda port: port.open_to_all, "answers without one", "etcd's `--peer-client-cert-auth`"),
        _YOURS,
    ),
    Check(
        "2.6",
        "Peer certificates are not self-signed",
        _ports("peer", lambda port: port.self_signed, "has a self-signed certificate", "remove `--peer-auto-tls`"),
        _YOURS,
    ),
    Check("2.7", "etcd has a CA of its own", _own_authority, _YOURS),
)
