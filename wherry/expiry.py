"""Certificates on this machine that expire soon, and how to renew them.

A worker's daemons renew theirs by themselves; one that is near its end all the same has met trouble. Those of the control plane
are renewed by `wherry up`.
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


@dataclass(frozen=True, slots=True)
class Ending:
    """A certificate that ends soon or has ended; `fix` is the command to run."""

    what: str
    fix: str


def ending(settings: Settings, now: datetime) -> Iterator[Ending]:
    """Find the certificates of this machine that end within a month."""
    for path, certificate in _certificates(settings):
        left = certificate.not_valid_after_utc - now
        if left > SOON:
            continue
        when = f"ends in {left.days} days" if left > timedelta() else f"ended on {certificate.not_valid_after_utc:%F}"
        if not settings.is_worker:
            fix = "`wherry up` renews it"
        elif left > timedelta():
            fix = "the daemon that has it should have renewed it: see its log, and `kubectl get csr`"
        else:
            fix = "`wherry reset` and join again: the cluster does not know this machine any more"
        yield Ending(f"the certificate in {path} {when}", fix)


def _certificates(settings: Settings) -> Iterator[tuple[Path, x509.Certificate]]:
    layout = settings.layout
    files = [p for p in sorted(layout.pki.glob("*.crt")) if not p.name.endswith("ca.crt")]
    files += sorted((layout.kubelet / "pki").glob("kubelet.crt"))
    files += sorted((layout.kubelet / "pki").glob("*-current.pem")) + sorted(layout.proxy_pki.glob("*-current.pem"))
    for path in files:
        try:
            yield path, x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError):
            continue
    for path in (layout.admin_kubeconfig, layout.agent_kubeconfig, layout.netproxy_kubeconfig):
        try:
            inside = kubeconfig.load(path).certificate
            if inside:
                yield path, x509.load_pem_x509_certificate(inside)
        except (kubeconfig.KubeconfigError, ValueError):
            continue
