"""Certificates on this machine that expire soon or are damaged, and how to renew them.

A worker's daemons renew theirs by themselves; one that is near its end all the same has met trouble. Those of the control plane
are renewed by `wherry up` and `wherry certs renew`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from kube import kubeconfig
from wherry.settings import Settings

SOON = timedelta(days=30)
NEW_CA = "nothing renews a CA: move the workloads to a new cluster before it ends"
_ISSUED = ("apiserver.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "kubelet.crt")
"""Files that the control plane's command issues, besides kubeconfigs."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A certificate that ends soon, has ended or is damaged; `fix` is the command to run."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Found:
    """A certificate, and the file or kubeconfig that contains it; None with the problem if it cannot be read."""

    path: Path
    certificate: x509.Certificate | None
    problem: str = ""

    @property
    def end(self) -> datetime | None:
        return self.certificate.not_valid_after_utc if self.certificate else None


def ending(settings: Settings, now: datetime) -> Iterator[Ending]:
    """Find the certificates of this machine, and of its CAs, that end within a month or are damaged."""
    for found in certificates(settings):
        if found.end is None:
            yield Ending(f"the certificate in {found.path} is damaged ({found.problem})", _repair(settings, found.path))
        elif found.end - now <= SOON:
            yield Ending(
                f"the certificate in {found.path} {_when(found.end, now)}", _renewal(settings, valid=found.end > now)
            )
    for found in authorities(settings):
        if found.end is None:
            fix = "restore it from a backup: it is needed to issue and to verify certificates"
            yield Ending(f"the CA in {found.path} is damaged ({found.problem})", fix)
        elif found.end - now <= SOON:
            yield Ending(f"the CA in {found.path} {_when(found.end, now)}", NEW_CA)


def _when(end: datetime, now: datetime) -> str:
    return f"ends in {(end - now).days} days" if end > now else f"ended on {end:%F}"


def _renewal(settings: Settings, *, valid: bool) -> str:
    if not settings.is_worker:
        return "`wherry certs renew` renews it"
    if valid:
        return "the daemon that has it should have renewed it: see its log, and `kubectl get csr`"
    return "`wherry reset` and join again: the cluster does not know this machine any more"


def _repair(settings: Settings, path: Path) -> str:
    if path.is_dir():
        return f"remove the folder, then {_repair(settings, path / path.name)}"
    if settings.is_worker:
        return "`wherry reset` and join again"
    if path.name in _ISSUED or path.suffix == ".kubeconfig":
        return "`wherry certs renew` issues it again"
    return "restore it from a backup, or remove it if nothing uses it"


def authorities(settings: Settings) -> Iterator[Found]:
    """Return the CAs whose certificates or keys are on this machine. Nothing renews them."""
    return _read(sorted(settings.layout.pki.glob("*ca.crt")))


def certificates(settings: Settings) -> Iterator[Found]:
    """Return the certificates of this machine, without those of CAs and those that this account may not read."""
    layout = settings.layout
    files = [p for p in sorted(layout.pki.glob("*.crt")) if not p.name.endswith("ca.crt")]
    files += sorted((layout.kubelet / "pki").glob("kubelet.crt"))
    files += sorted((layout.kubelet / "pki").glob("*-current.pem")) + sorted(layout.proxy_pki.glob("*-current.pem"))
    yield from _read(files)
    for path in (layout.admin_kubeconfig, layout.agent_kubeconfig, layout.netproxy_kubeconfig):
        if _missing(settings, path):
            yield Found(path, None, "it is missing")
        if not os.access(path, os.R_OK):
            continue
        try:
            inside = kubeconfig.load(path).certificate
        except kubeconfig.KubeconfigError as error:
            yield Found(path, None, str(error).removeprefix(f"{path}: "))
            continue
        if inside:
            yield _decoded(path, inside)


def _missing(settings: Settings, path: Path) -> bool:
    """Return whether the administrator's kubeconfig is not there, on a machine of which the control plane's files are."""
    written = (
        not settings.is_worker
        and path == settings.layout.admin_kubeconfig
        and (settings.layout.pki / "ca.crt").exists()
    )
    return written and not path.exists()


def _read(paths: Iterable[Path]) -> Iterator[Found]:
    for path in paths:
        try:
            yield _decoded(path, path.read_bytes())
        except (FileNotFoundError, PermissionError):
            continue
        except OSError as error:
            yield Found(path, None, (error.strerror or str(error)).lower())


def _decoded(path: Path, data: bytes) -> Found:
    try:
        return Found(path, x509.load_pem_x509_certificate(data))
    except ValueError:
        return Found(path, None, "it is no certificate in PEM")
