"""Commands for certificates: `wherry certs check` shows when they expire, `wherry certs renew` renews them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from cryptography import x509
from cryptography.x509.oid import NameOID

from kube.clock import SYSTEM, format_time
from wherry import expiry, options, output
from wherry.discovery import duration
from wherry.errors import WherryError
from wherry.expiry import Found
from wherry.membership import installed, root
from wherry.output import Column
from wherry.wrapping import wrapped

certs_app = typer.Typer(no_args_is_help=True, help="Show and renew this machine's certificates.")


def _subject(certificate: x509.Certificate | None) -> str:
    if certificate is None:
        return "-"
    return ", ".join(str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME))


def _left(found: Found) -> str:
    if found.end is None:
        return "<damaged>"
    seconds = (found.end - SYSTEM.now()).total_seconds()
    return duration(seconds) if seconds > 0 else "<expired>"


COLUMNS: Sequence[Column[Found]] = (
    Column("PATH", lambda found: str(found.path)),
    Column("EXPIRES", lambda found: f"{found.end:%F}" if found.end else "-"),
    Column("LEFT", _left),
    Column("SUBJECT", lambda found: _subject(found.certificate), wide=True),
)


def as_data(found: Found) -> dict[str, Any]:
    """Return a certificate as JSON data; one that is damaged has a problem instead of subject and end."""
    if found.end is None:
        return {"path": str(found.path), "problem": found.problem}
    return {
        "path": str(found.path),
        "subject": _subject(found.certificate),
        "expires": format_time(found.end),
    }


@certs_app.command("check")
def certs_check(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """Show when the certificates and CAs expire.

    Ends with status 1 if one expires within 30 days or is damaged.
    """
    output.check(format)
    root()
    settings, now = installed(prefix), SYSTEM.now()
    found = [*expiry.certificates(settings), *expiry.authorities(settings)]
    output.show(found, COLUMNS, format, as_data)
    ending = list(expiry.ending(settings, now))
    if format in ("table", "wide"):
        for one in ending:
            print("\n".join(wrapped(f"{one.what}: {one.fix}")))
    if ending:
        raise typer.Exit(1)


@certs_app.command("renew")
def certs_renew(
    prefix: options.Prefix = "/",
    *,
    every: Annotated[bool, typer.Option("--all", help="Renew all certificates, however long they are valid.")] = False,
) -> None:
    """Renew certificates of the control plane that end soon or are damaged.

    Soon is 90 days, and 30 for kubeconfigs. Agent and proxy are restarted if they need it; containers keep running.

    CAs are valid for ten years and not renewed: move the workloads to a new cluster before one ends.
    """
    from wherry import configuration, daemons, user_kubeconfig

    root()
    settings = installed(prefix)
    if settings.is_worker:
        raise WherryError("a worker's daemons renew their certificates themselves: `wherry certs check` shows them")
    before = {found.path: found.certificate for found in expiry.certificates(settings)}
    former = user_kubeconfig.present(settings)
    configuration.write_all(settings, renew_all=every)
    user_kubeconfig.update(settings, former)
    renewed = [found for found in expiry.certificates(settings) if before.get(found.path) != found.certificate]
    for found in renewed:
        if found.end is not None:
            print(f"renewed {found.path}: expires {format_time(found.end)}")
    if not renewed:
        print("no certificate ends soon: `wherry certs renew --all` renews all")
    for found in expiry.authorities(settings) if every else ():
        if found.end is not None:
            advice = f"; {expiry.NEW_CA}" if found.end - SYSTEM.now() < expiry.SOON else ""
            print(f"kept {found.path}: expires {format_time(found.end)}{advice}")
    if restarted := asyncio.run(daemons.restart_stale(settings)):
        print(f"restarted {', '.join(restarted)}")
