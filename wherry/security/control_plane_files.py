"""Section 1.1: files of the control plane."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wherry.security.facts import Facts
from wherry.security.files import below, mode, owner
from wherry.security.rows import Check, CheckResult, not_here

_ONE_PROCESS = "API server, scheduler and controllers run in one process, defined in one file"
_NOT_OURS = "etcd is run by its administrator; without etcd the API server stores objects in SQLite"
_NO_KUBECONFIG = "it runs in the API server's process and needs no kubeconfig"


def _definition(facts: Facts) -> Iterable[Path]:
    return facts.daemon_files


def _network(facts: Facts) -> Iterable[Path]:
    layout = facts.settings.layout
    return [*below(layout.cni_configuration, "*.conf", "*.conflist"), *below(layout.cni_state / "wherry", "*")]


def _data(facts: Facts) -> Iterable[Path]:
    return [facts.settings.layout.state / "control"] if facts.settings.store == "sqlite" else []


def _admin(facts: Facts) -> Iterable[Path]:
    return [facts.settings.layout.admin_kubeconfig]


def _pki(facts: Facts) -> Iterable[Path]:
    folder = facts.settings.layout.pki
    return [folder, *below(folder, "*")]


def _certificates(facts: Facts) -> Iterable[Path]:
    return below(facts.settings.layout.pki, "*.crt", "*.pub")


def _keys(facts: Facts) -> Iterable[Path]:
    return below(facts.settings.layout.pki, "*.key")


def _none(why: str) -> CheckResult:
    return not_here(why)


CHECKS = (
    Check(
        "1.1.1", "API server unit file: mode 600 or stricter", mode(_definition, 0o600), "passes; it is a systemd unit"
    ),
    Check("1.1.2", "API server unit file: owned by root", owner(_definition)),
    Check("1.1.3", "Controller manager unit file: mode 600", mode(_definition, 0o600), "passes; " + _ONE_PROCESS),
    Check("1.1.4", "Controller manager unit file: owned by root", owner(_definition)),
    Check("1.1.5", "Scheduler unit file: mode 600 or stricter", mode(_definition, 0o600), "passes; " + _ONE_PROCESS),
    Check("1.1.6", "Scheduler unit file: owned by root", owner(_definition)),
    Check("1.1.7", "etcd unit file: mode 600 or stricter", lambda _: _none(_NOT_OURS), "no such file: " + _NOT_OURS),
    Check("1.1.8", "etcd unit file: owned by root", lambda _: _none(_NOT_OURS), "no such file: " + _NOT_OURS),
    Check("1.1.9", "CNI files: mode 600 or stricter", mode(_network, 0o600), for_worker=True),
    Check("1.1.10", "CNI files: owned by root", owner(_network), for_worker=True),
    Check("1.1.11", "Data directory: mode 700", mode(_data, 0o700, _NOT_OURS), "passes with SQLite"),
    Check(
        "1.1.12",
        "Data directory: owned by the server's account",
        owner(_data, _NOT_OURS),
        "passes with SQLite: owned by account `wherry` under systemd, otherwise by root",
    ),
    Check("1.1.13", "Admin kubeconfig: mode 600", mode(_admin, 0o600)),
    Check("1.1.14", "Admin kubeconfig: owned by root", owner(_admin)),
    Check("1.1.15", "scheduler.conf: mode 600", lambda _: _none(_NO_KUBECONFIG), "no such file: " + _NO_KUBECONFIG),
    Check("1.1.16", "scheduler.conf: owned by root", lambda _: _none(_NO_KUBECONFIG), "no such file"),
    Check("1.1.17", "controller-manager.conf: mode 600", lambda _: _none(_NO_KUBECONFIG), "no such file"),
    Check("1.1.18", "controller-manager.conf: owned by root", lambda _: _none(_NO_KUBECONFIG), "no such file"),
    Check(
        "1.1.19",
        "Certificates and keys: owned by root",
        owner(_pki),
        "differs under systemd: owned by the account `wherry`, because the API server runs without root privileges",
    ),
    Check("1.1.20", "Certificates: mode 644 or stricter", mode(_certificates, 0o644)),
    Check("1.1.21", "Keys: mode 600", mode(_keys, 0o600)),
)
