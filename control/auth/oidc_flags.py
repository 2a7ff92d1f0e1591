"""Converts kube-apiserver's --oidc-* flags to an AuthenticationConfiguration with one issuer.

The prefix of user names follows upstream's rule: by default the issuer's URL and #, but none for e-mail addresses; `-` means
no prefix.
"""

from __future__ import annotations

import yaml

from control.auth.configuration import Authentication, parse
from control.auth.fields import GROUP, ConfigurationError
from control.config import ControlConfig


def authentication(config: ControlConfig) -> Authentication:
    """Return the issuer of the flags, if any; raises ConfigurationError, OSError."""
    if not config.oidc_issuer_url and not config.oidc_client_id:
        return Authentication()
    if not config.oidc_issuer_url or not config.oidc_client_id:
        raise ConfigurationError("oidc-issuer-url and oidc-client-id must be specified together")
    if config.authentication_config_file is not None:
        raise ConfigurationError("authentication-config file and oidc-* flags are mutually exclusive")
    issuer = {"url": config.oidc_issuer_url, "audiences": [config.oidc_client_id]}
    if config.oidc_ca_file is not None:
        issuer["certificateAuthority"] = config.oidc_ca_file.read_text()
    mappings = {"username": {"claim": config.oidc_username_claim, "prefix": _prefix(config)}}
    if config.oidc_groups_claim:
        mappings["groups"] = {"claim": config.oidc_groups_claim, "prefix": config.oidc_groups_prefix}
    rules = [{"claim": claim, "requiredValue": value} for claim, value in config.oidc_required_claim.items()]
    entry = {"issuer": issuer, "claimMappings": mappings, "claimValidationRules": rules}
    document = {"apiVersion": f"{GROUP}/v1", "kind": "AuthenticationConfiguration", "jwt": [entry]}
    return parse(yaml.safe_dump(document))


def _prefix(config: ControlConfig) -> str:
    given = config.oidc_username_prefix
    if given == "-":
        return ""
    return given or ("" if config.oidc_username_claim == "email" else f"{config.oidc_issuer_url}#")
