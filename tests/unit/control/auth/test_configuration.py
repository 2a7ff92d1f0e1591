"""AuthenticationConfiguration: its effects, and errors with the field's path."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from control.auth.configuration import ConfigurationError, parse

GOOD: dict[str, Any] = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "jwt": [
        {
            "issuer": {"url": "https://id.example.com", "audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny"},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }
    ],
}


def changed(path: str, value: Any) -> str:
    """Return the good file with one place set ("jwt.0.issuer.url") or removed (None)."""
    document = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    node: Any = document
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    if value is None:
        del node[last]
    else:
        node[last] = value
    return yaml.safe_dump(document)


def test_a_good_file_is_understood() -> None:
    found = parse(yaml.safe_dump(GOOD))
    [issuer] = found.issuers
    assert (issuer.url, issuer.audiences, issuer.username.claim) == ("https://id.example.com", ("a", "b"), "sub")
    assert found.anonymous is None
    assert parse(changed("anonymous", {"enabled": False})).anonymous is not None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kind", "Pod", "kind: must be AuthenticationConfiguration"),
        ("apiVersion", "v1", "apiVersion: must be apiserver.config.k8s.io/v1"),
        ("jwts", [], "jwts: unknown field"),
        ("jwt", {}, "jwt: must be a list"),
        (
            "jwt.0.issuer.url",
            "http://id.example.com",
            "jwt[0].issuer.url: must be an https URL, not 'http://id.example.com'",
        ),
        ("jwt.0.issuer.url", "https://u@id.example.com", "jwt[0].issuer.url: must have no user, query or fragment"),
        (
            "jwt.0.issuer.discoveryURL",
            "https://id.example.com/",
            "jwt[0].issuer.discoveryURL: must be different from url",
        ),
        ("jwt.0.issuer.audiences", None, "jwt[0].issuer.audiences: at least one is required"),
        (
            "jwt.0.issuer.audienceMatchPolicy",
            None,
            "jwt[0].issuer.audienceMatchPolicy: must be MatchAny for several audiences",
        ),
        ("jwt.0.claimMappings.username", None, "jwt[0].claimMappings.username: claim or expression is required"),
        (
            "jwt.0.claimMappings.username",
            {"expression": "claims.("},
            "jwt[0].claimMappings.username.expression: compilation failed: ERROR",
        ),
        (
            "jwt.0.claimMappings.username",
            {"expression": "claims.sub", "claim": "sub"},
            "jwt[0].claimMappings.username: claim and expression exclude one another",
        ),
        (
            "jwt.0.claimMappings.username",
            {"expression": "claims.email"},
            "jwt[0].claimMappings.username.expression: claims.email must be used with claims.email_verified",
        ),
        (
            "jwt.0.claimMappings.extra",
            [{"key": "plain", "valueExpression": "'x'"}],
            "jwt[0].claimMappings.extra[0].key: must be a lower-case name with a domain before it",
        ),
        (
            "jwt.0.claimMappings.groups",
            {"claim": "g"},
            'jwt[0].claimMappings.groups.prefix: is required with claim; it may be ""',
        ),
        (
            "jwt.0.userValidationRules",
            [{"expression": "user.nothing"}],
            "jwt[0].userValidationRules[0].expression: compilation failed: ERROR",
        ),
        (
            "jwt.0.claimValidationRules",
            [{}],
            "jwt[0].claimValidationRules[0].claim: either it or expression is required",
        ),
        (
            "jwt.0.issuer.certificateAuthority",
            "nonsense",
            "jwt[0].issuer.certificateAuthority: it is no PEM certificate",
        ),
        (
            "anonymous",
            {"enabled": False, "conditions": [{"path": "/livez"}]},
            "anonymous.conditions: must not be set when anonymous is not enabled",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(changed(path, value))
    assert str(caught.value).startswith(message)


def test_an_issuer_may_be_named_once() -> None:
    with pytest.raises(ConfigurationError, match="Duplicate value"):
        parse(yaml.safe_dump(GOOD | {"jwt": GOOD["jwt"] * 2}))
