"""Section 2: etcd, by what its ports answer to those who show no certificate."""

from __future__ import annotations

from collections.abc import Callable

from wherry.security.facts import EtcdPort, Facts
from wherry.security.rows import Check, Found, failed, judge, not_here, passed

_SQLITE = "the store is SQLite, a file of the API server's"
_YOURS = "N/A with SQLite; etcd is set up by its administrator, and its ports are looked at"


def _ports(which: str, wrong: Callable[[EtcdPort], bool], what: str, fix: str) -> Callable[[Facts], Found]:
    def look(facts: Facts) -> Found:
        if facts.settings.store == "sqlite":
            return not_here(_SQLITE)
        ports = facts.etcd.clients if which == "client" else facts.etcd.peers
        if not ports:
            return judge(f"etcd told of no {which} addresses", "look at etcd's own options")
        if bad := [port.url for port in ports if wrong(port)]:
            return failed(f"{', '.join(bad)} {what}", fix)
        return passed(", ".join(port.url for port in ports))

    return look


def _own_authority(facts: Facts) -> Found:
    if facts.settings.store == "sqlite":
        return not_here(_SQLITE)
    if facts.etcd.own_authority:
        return passed()
    return failed("etcd's CA is the cluster's: every client of the cluster passes", "give etcd a CA of its own")


def _plain(port: EtcdPort) -> bool:
    return not port.encrypted or not port.trusted


CHECKS = (
    Check(
        "2.1",
        "Clients reach etcd over TLS",
        _ports("client", _plain, "has no certificate of --etcd-cafile", "etcd's `--cert-file` and `--key-file`"),
        _YOURS,
    ),
    Check(
        "2.2",
        "etcd asks clients for certificates",
        _ports("client", lambda port: port.open_to_all, "answers without one", "etcd's `--client-cert-auth`"),
        _YOURS,
    ),
    Check(
        "2.3",
        "etcd's certificate is not one it made itself",
        _ports("client", lambda port: port.self_signed, "made its own certificate", "take `--auto-tls` away"),
        _YOURS,
    ),
    Check(
        "2.4",
        "Members reach each other over TLS",
        _ports(
            "peer", lambda port: not port.encrypted, "has no TLS", "etcd's `--peer-cert-file` and `--peer-key-file`"
        ),
        _YOURS,
    ),
    Check(
        "2.5",
        "Members ask each other for certificates",
        _ports("peer", lambda port: port.open_to_all, "answers without one", "etcd's `--peer-client-cert-auth`"),
        _YOURS,
    ),
    Check(
        "2.6",
        "Members' certificates are not made by themselves",
        _ports("peer", lambda port: port.self_signed, "made its own certificate", "take `--peer-auto-tls` away"),
        _YOURS,
    ),
    Check("2.7", "etcd has a CA of its own", _own_authority, _YOURS),
)
