"""Certificates on this machine that expire soon, and how to renew them.

A worker's daemons renew theirs by themselves; one that is near its end all the same has met trouble. Those of the control plane
are renewed by `wherry up` and `wherry certs renew`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from kube import kubeconfig
from wherry.settings import Settings

SOON = timedelta(days=30)
_NEW_CA = "nothing renews a CA: move the workloads to a new cluster before it ends"


@dataclass(frozen=True, slots=True)
class Ending:
    """A certificate that ends soon or has ended; `fix` is the command to run."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Found:
    """A certificate, and the file or kubeconfig that contains it."""

    path: Path
    certificate: x509.Certificate


def ending(settings: Settings, now: datetime) -> Iterator[Ending]:
    """Find the certificates of this machine, and of its CAs, that end within a month."""
    for found in certificates(settings):
        path, left = found.path, found.certificate.not_valid_after_utc - now
        if left > SOON:
            continue
        if not settings.is_worker:
            fix = "`wherry certs renew` renews it"
        elif left > timedelta():
            fix = "the daemon that has it should have renewed it: see its log, and `kubectl get csr`"
        else:
            fix = "`wherry reset` and join again: the cluster does not know this machine any more"
        yield Ending(f"the certificate in {path} {_when(found, now)}", fix)
    for found in authorities(settings):
        if found.certificate.not_valid_after_utc - now <= SOON:
            yield Ending(f"the CA in {found.path} {_when(found, now)}", _NEW_CA)


def _when(found: Found, now: datetime) -> str:
    end = found.certificate.not_valid_after_utc
    return f"ends in {(end - now).days} days" if end > now else f"ended on {end:%F}"


def authorities(settings: Settings) -> Iterator[Found]:
    """Return the CAs whose certificates or keys are on this machine. Nothing renews them."""
    for path in sorted(settings.layout.pki.glob("*ca.crt")):
        try:
            yield Found(path, x509.load_pem_x509_certificate(path.read_bytes()))
        except (OSError, ValueError):
            continue


def certificates(settings: Settings) -> Iterator[Found]:
    """Return the certificates of this machine, without those of CAs and those that cannot be read."""
    layout = settings.layout
    files = [p for p in sorted(layout.pki.glob("*.crt")) if not p.name.endswith("ca.crt")]
    files += sorted((layout.kubelet / "pki").glob("kubelet.crt"))
    files += sorted((layout.kubelet / "pki").glob("*-current.pem")) + sorted(layout.proxy_pki.glob("*-current.pem"))
    for path in files:
        try:
            yield Found(path, x509.load_pem_x509_certificate(path.read_bytes()))
        except (OSError, ValueError):
            continue
    for path in (layout.admin_kubeconfig, layout.agent_kubeconfig, layout.netproxy_kubeconfig):
        try:
            inside = kubeconfig.load(path).certificate
            if inside:
                yield Found(path, x509.load_pem_x509_certificate(inside))
        except (kubeconfig.KubeconfigError, ValueError):
            continue
