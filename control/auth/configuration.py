"""AuthenticationConfiguration (apiserver.config.k8s.io): trusted issuers of ID tokens, and anonymous requests.

The file is read at the start. An invalid file stops the server with the field's path, because otherwise wrong authentication
settings would be noticed late. Expressions (CEL) see the token's `claims`, or in userValidationRules the `user`.
"""

from __future__ import annotations

import ssl

import msgspec

from control.auth.authenticators import AnonymousPolicy
from control.auth.fields import GROUP, ConfigurationError, known, list_at, object_at, read
from control.auth.oidc import ClaimMapping, Issuer, Rule
from control.cel import CompileError, Declarations, Program
from control.cel import compile as compile_cel
from control.cel.types import DYN, STRING, list_of, map_of, object_of
from kube import urls
from kube.json_object import Object

__all__ = ["GROUP", "Authentication", "ConfigurationError", "parse"]
_CLAIMS = Declarations({"claims": map_of(STRING, DYN)})
_USER = Declarations(
    {
        "user": object_of(
            {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
            "kubernetes.UserInfo",
        )
    }
)


class Authentication(msgspec.Struct, frozen=True):
    """Content of the file; `anonymous` None: not configured."""

    issuers: tuple[Issuer, ...] = ()
    anonymous: AnonymousPolicy | None = None


def parse(text: str | bytes) -> Authentication:
    """Read the file's text; raises ConfigurationError."""
    document = read(text, "AuthenticationConfiguration")
    known(document, "", ("apiVersion", "kind", "jwt", "anonymous"))
    issuers: list[Issuer] = []
    for index, entry in enumerate(list_at(document, "jwt", "")):
        issuer = _issuer(entry, f"jwt[{index}]")
        if any(other.url == issuer.url for other in issuers):
            raise ConfigurationError(f"jwt[{index}].issuer.url: Duplicate value: {issuer.url!r}")
        issuers.append(issuer)
    return Authentication(tuple(issuers), _anonymous(document))


def _issuer(entry: Object, path: str) -> Issuer:
    known(entry, path, ("issuer", "claimValidationRules", "claimMappings", "userValidationRules"))
    where, issuer = f"{path}.issuer", object_at(entry, "issuer", path)
    known(issuer, where, ("url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy"))
    url, discovery = str(issuer.get("url") or ""), str(issuer.get("discoveryURL") or "")
    _check_url(url, f"{where}.url")
    if discovery:
        _check_url(discovery, f"{where}.discoveryURL")
        if discovery.rstrip("/") == url.rstrip("/"):
            raise ConfigurationError(f"{where}.discoveryURL: must be different from url")
    audiences = tuple(str(name) for name in list_at(issuer, "audiences", where))
    if not audiences or not all(audiences):
        raise ConfigurationError(f"{where}.audiences: at least one is required")
    if len(audiences) > 1 and issuer.get("audienceMatchPolicy") != "MatchAny":
        raise ConfigurationError(f"{where}.audienceMatchPolicy: must be MatchAny for several audiences")
    mappings = object_at(entry, "claimMappings", path)
    where = f"{path}.claimMappings"
    known(mappings, where, ("username", "groups", "uid", "extra"))
    username = _mapping(mappings, "username", where)
    if username is None:
        raise ConfigurationError(f"{where}.username: claim or expression is required")
    required, claim_rules = _claim_rules(entry, path)
    _check_email(username, claim_rules, f"{where}.username.expression")
    return Issuer(
        url,
        audiences,
        username,
        _mapping(mappings, "groups", where),
        _mapping(mappings, "uid", where, prefixed=False),
        required,
        claim_rules,
        _rules(entry, "userValidationRules", path, _USER),
        _extra(mappings, where),
        discovery,
        _authority(issuer, f"{path}.issuer"),
    )


def _authority(issuer: Object, path: str) -> str:
    authority = str(issuer.get("certificateAuthority") or "")
    if authority:
        try:
            ssl.create_default_context(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"{path}.certificateAuthority: it is no PEM certificate: {error}") from error
    return authority


def _mapping(mappings: Object, name: str, path: str, *, prefixed: bool = True) -> ClaimMapping | None:
    found, where = mappings.get(name) or {}, f"{path}.{name}"
    claim, expression = found.get("claim"), found.get("expression")
    if claim and expression:
        raise ConfigurationError(f"{where}: claim and expression exclude one another")
    if expression:
        if found.get("prefix") is not None:
            raise ConfigurationError(f"{where}.prefix: expression gives the whole name")
        return ClaimMapping(expression=_compiled(expression, f"{where}.expression", _CLAIMS))
    if not claim:
        return None
    if prefixed and found.get("prefix") is None:
        raise ConfigurationError(f'{where}.prefix: is required with claim; it may be ""')
    return ClaimMapping(str(claim), str(found.get("prefix") or ""))


def _extra(mappings: Object, path: str) -> tuple[tuple[str, Program], ...]:
    found: dict[str, Program] = {}
    for index, entry in enumerate(list_at(mappings, "extra", path)):
        where, key = f"{path}.extra[{index}]", str(entry.get("key") or "")
        if "/" not in key or key != key.lower():
            raise ConfigurationError(
                f"{where}.key: must be a lower-case name with a domain before it, as example.com/x"
            )
        if key in found:
            raise ConfigurationError(f"{where}.key: Duplicate value: {key!r}")
        found[key] = _compiled(str(entry.get("valueExpression") or ""), f"{where}.valueExpression", _CLAIMS)
    return tuple(found.items())


def _claim_rules(entry: Object, path: str) -> tuple[dict[str, str], tuple[Rule, ...]]:
    """Read claimValidationRules: claims with their values, and expressions."""
    required: dict[str, str] = {}
    for index, rule in enumerate(list_at(entry, "claimValidationRules", path)):
        where = f"{path}.claimValidationRules[{index}]"
        if bool(rule.get("claim")) == bool(rule.get("expression")):
            raise ConfigurationError(f"{where}.claim: either it or expression is required")
        if rule.get("claim"):
            required[str(rule["claim"])] = str(rule.get("requiredValue") or "")
    return required, _rules(entry, "claimValidationRules", path, _CLAIMS)


def _rules(entry: Object, name: str, path: str, declared: Declarations) -> tuple[Rule, ...]:
    found = []
    for index, rule in enumerate(list_at(entry, name, path)):
        where = f"{path}.{name}[{index}].expression"
        if rule.get("claim"):
            continue
        program = _compiled(str(rule.get("expression") or ""), where, declared)
        if program.result.kind not in ("bool", "dyn"):
            raise ConfigurationError(f"{where}: must evaluate to bool")
        found.append(Rule(program, str(rule.get("message") or "")))
    return tuple(found)


def _compiled(expression: str, path: str, declared: Declarations) -> Program:
    if not expression.strip():
        raise ConfigurationError(f"{path}: is required")
    try:
        return compile_cel(expression, declared)
    except CompileError as error:
        raise ConfigurationError(f"{path}: compilation failed: {error}") from error


def _check_email(username: ClaimMapping, rules: tuple[Rule, ...], path: str) -> None:
    """Require a check of email_verified if the user name is an email address, as upstream does."""
    if username.expression is None or "claims.email" not in username.expression.source:
        return
    texts = [username.expression.source, *(rule.expression.source for rule in rules)]
    if not any("claims.email_verified" in text for text in texts):
        raise ConfigurationError(
            f"{path}: claims.email must be used with claims.email_verified here or in claimValidationRules[].expression"
        )


def _anonymous(document: Object) -> AnonymousPolicy | None:
    if document.get("anonymous") is None:
        return None
    anonymous = object_at(document, "anonymous", "")
    known(anonymous, "anonymous", ("enabled", "conditions"))
    conditions = list_at(anonymous, "conditions", "anonymous")
    if conditions and not anonymous.get("enabled"):
        raise ConfigurationError("anonymous.conditions: must not be set when anonymous is not enabled")
    paths = tuple(str(condition.get("path", "")) for condition in conditions)
    return AnonymousPolicy(bool(anonymous.get("enabled")), paths or None)


def _check_url(url: str, path: str) -> None:
    parts = urls.split(url)
    if parts.scheme != "https" or not parts.netloc:
        raise ConfigurationError(f"{path}: must be an https URL, not {url!r}")
    if parts.username or parts.query or parts.fragment:
        raise ConfigurationError(f"{path}: must have no user, query or fragment")
