"""Checks of the options that only `wherry join` has: the cluster's address, the token, the hash of the CA, and the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kube import bootstrap_tokens
from wherry import certificate_bundle, discovery
from wherry.errors import Problem, WherryError

_COPY = "copy the line that `wherry up` printed"


def problems(arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the options whose value has a wrong form; empty ones are not checked."""
    forms: dict[str, Callable[[str], object]] = {
        "server": discovery.server_url,
        "token": bootstrap_tokens.parse,
        "discovery_token_ca_cert_hash": discovery.ca_pin,
        "certificate_key": certificate_bundle.read_key,
    }
    for name, read in forms.items():
        if not (text := arguments.get(name)):
            continue
        try:
            read(text)
        except bootstrap_tokens.TokenError as error:
            yield Problem(name, f"--token: {error}")
        except WherryError as error:
            yield Problem(name.replace("_", "-"), str(error))


def missing(arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the options that a machine cannot join without, and those that are nothing without another."""
    token, pin, key = "token", "discovery-token-ca-cert-hash", "certificate-key"
    if not arguments.get("server"):
        yield Problem("server", f"the API server's address is missing: {_COPY}")
    elif not (arguments.get("token") and arguments.get("discovery_token_ca_cert_hash")):
        yield Problem(token, f"--token and --discovery-token-ca-cert-hash are needed: {_COPY}", (pin,))
    if bool(arguments.get("control_plane")) != bool(arguments.get("certificate_key")):
        text = (
            "--control-plane and --certificate-key go together: copy the line that `wherry token create --control-plane` "
            "printed"
        )
        yield Problem("control-plane", text, (key,))
