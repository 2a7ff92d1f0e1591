"""AuthenticationConfiguration (apiserver.config.k8s.io): the issuers whose ID tokens are believed, and who may be anonymous.

Read once at start; a file that cannot be meant stops the server with the field's path, as nobody should find out later
that nobody, or everybody, gets in. Expressions (CEL) are refused, not passed over.
"""

from __future__ import annotations

import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any

import yaml

from control.auth.authenticators import AnonymousPolicy
from control.auth.oidc import ClaimMapping, Issuer

Object = dict[str, Any]
GROUP = "apiserver.config.k8s.io"
_EXPRESSIONS = "expressions are not supported"


class ConfigurationError(Exception):
    """The file cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """What the file says; `anonymous` None: nothing about it."""

    issuers: tuple[Issuer, ...] = ()
    anonymous: AnonymousPolicy | None = None


def parse(text: str | bytes) -> Authentication:
    """Read the file's text; raises ConfigurationError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"it is no YAML: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != "AuthenticationConfiguration":
        raise ConfigurationError("kind: must be AuthenticationConfiguration")
    if not str(document.get("apiVersion", "")).startswith(f"{GROUP}/v1"):
        raise ConfigurationError(f"apiVersion: must be {GROUP}/v1")
    _known(document, "", ("apiVersion", "kind", "jwt", "anonymous"))
    issuers: list[Issuer] = []
    for index, entry in enumerate(_list(document, "jwt", "")):
        issuer = _issuer(entry, f"jwt[{index}]")
        if any(other.url == issuer.url for other in issuers):
            raise ConfigurationError(f"jwt[{index}].issuer.url: Duplicate value: {issuer.url!r}")
        issuers.append(issuer)
    return Authentication(tuple(issuers), _anonymous(document))


def _issuer(entry: Object, path: str) -> Issuer:
    if entry.get("userValidationRules"):
        raise ConfigurationError(f"{path}.userValidationRules: {_EXPRESSIONS}")
    _known(entry, path, ("issuer", "claimValidationRules", "claimMappings", "userValidationRules"))
    where, issuer = f"{path}.issuer", _object(entry, "issuer", path)
    _known(issuer, where, ("url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy"))
    url, discovery = str(issuer.get("url") or ""), str(issuer.get("discoveryURL") or "")
    _check_url(url, f"{where}.url")
    if discovery:
        _check_url(discovery, f"{where}.discoveryURL")
        if discovery.rstrip("/") == url.rstrip("/"):
            raise ConfigurationError(f"{where}.discoveryURL: must be different from url")
    authority = str(issuer.get("certificateAuthority") or "")
    if authority:
        try:
            ssl.create_default_context(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"{where}.certificateAuthority: it is no PEM certificate: {error}") from error
    audiences = tuple(str(name) for name in _list(issuer, "audiences", where))
    if not audiences or not all(audiences):
        raise ConfigurationError(f"{where}.audiences: at least one is required")
    if len(audiences) > 1 and issuer.get("audienceMatchPolicy") != "MatchAny":
        raise ConfigurationError(f"{where}.audienceMatchPolicy: must be MatchAny for several audiences")
    mappings = _object(entry, "claimMappings", path)
    where = f"{path}.claimMappings"
    if mappings.get("extra"):
        raise ConfigurationError(f"{where}.extra: {_EXPRESSIONS}")
    _known(mappings, where, ("username", "groups", "uid", "extra"))
    username = _mapping(mappings, "username", where)
    if username is None:
        raise ConfigurationError(f"{where}.username: claim is required")
    uid = mappings.get("uid") or {}
    if uid.get("expression"):
        raise ConfigurationError(f"{where}.uid.expression: {_EXPRESSIONS}")
    return Issuer(
        url,
        audiences,
        username,
        _mapping(mappings, "groups", where),
        str(uid.get("claim") or ""),
        _required(entry, path),
        discovery,
        authority,
    )


def _mapping(mappings: Object, name: str, path: str) -> ClaimMapping | None:
    found, where = mappings.get(name) or {}, f"{path}.{name}"
    if found.get("expression"):
        raise ConfigurationError(f"{where}.expression: {_EXPRESSIONS}")
    if not found.get("claim"):
        return None
    if found.get("prefix") is None:
        raise ConfigurationError(f'{where}.prefix: is required with claim; it may be ""')
    return ClaimMapping(str(found["claim"]), str(found["prefix"]))


def _required(entry: Object, path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, rule in enumerate(_list(entry, "claimValidationRules", path)):
        where = f"{path}.claimValidationRules[{index}]"
        if rule.get("expression"):
            raise ConfigurationError(f"{where}.expression: {_EXPRESSIONS}")
        if not rule.get("claim"):
            raise ConfigurationError(f"{where}.claim: is required")
        found[str(rule["claim"])] = str(rule.get("requiredValue") or "")
    return found


def _anonymous(document: Object) -> AnonymousPolicy | None:
    if document.get("anonymous") is None:
        return None
    anonymous = _object(document, "anonymous", "")
    _known(anonymous, "anonymous", ("enabled", "conditions"))
    conditions = _list(anonymous, "conditions", "anonymous")
    if conditions and not anonymous.get("enabled"):
        raise ConfigurationError("anonymous.conditions: must not be set when anonymous is not enabled")
    paths = tuple(str(condition.get("path", "")) for condition in conditions)
    return AnonymousPolicy(bool(anonymous.get("enabled")), paths or None)


def _check_url(url: str, path: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" or not parts.netloc:
        raise ConfigurationError(f"{path}: must be an https URL, not {url!r}")
    if parts.username or parts.query or parts.fragment:
        raise ConfigurationError(f"{path}: must have no user, query or fragment")


def _object(holder: Object, name: str, path: str) -> Object:
    found = holder.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}.{name}: must be an object".lstrip("."))
    return found


def _list(holder: Object, name: str, path: str) -> list[Any]:
    found = holder.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ConfigurationError(f"{path}.{name}: must be a list".lstrip("."))
    return found


def _known(holder: Object, path: str, names: tuple[str, ...]) -> None:
    for name in holder:
        if name not in names:
            raise ConfigurationError(f"{path}.{name}: unknown field".lstrip("."))
