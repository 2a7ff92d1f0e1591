"""OpenID Connect: ID tokens of an issuer outside the cluster.

An issuer's keys are fetched from its discovery document when its first token comes, and again (at most every ten seconds) when
a token names a key that is not known: issuers rotate their keys. Only asymmetric algorithms are taken, so that nobody can
sign with a public key. Which claim is the name and what is put before it follow AuthenticationConfiguration
(apiserver.config.k8s.io/v1).
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from control.auth.token_claims import Claims
from control.auth.unverified_token import unverified
from control.auth.user import Credentials, UserInfo, user_info
from control.cel import EvaluationError, Program
from control.event_loop import offload
from kube import bounded_answer, tls_settings
from kube.clock import Clock
from kube.errors import unauthorized
from kube.lazy_module import LazyModule
from kube.nesting import check_nesting

if TYPE_CHECKING:
    import aiohttp
    import jwt
else:
    jwt = LazyModule("jwt")

log = logging.getLogger(__name__)
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Signature algorithms by the type of key (RFC 7518). The token names one, and may name one that the key is not for."""
FETCH_SECONDS = 10.0
"""Seconds between two looks at an issuer's keys, at least, and for one of them at most."""
DOCUMENT_LIMIT = 1024 * 1024
NOT_BEFORE_LEEWAY = 60.0
"""Seconds that the issuer's clock may be ahead (go-oidc's verify.go)."""


class IssuerAway(Exception):
    """The issuer's discovery document or keys could not be fetched."""


class ClaimMapping(msgspec.Struct, frozen=True):
    """Claim with a name, and its prefix; or an expression that returns the whole name."""

    claim: str = ""
    prefix: str = ""
    expression: Program | None = None


class Rule(msgspec.Struct, frozen=True):
    """An expression over the claims or the user that must be true, and what is parsed (in the log) where it is not."""

    expression: Program
    message: str


class Issuer(msgspec.Struct, frozen=True):
    """One entry of AuthenticationConfiguration's `jwt`."""

    url: str
    audiences: tuple[str, ...]
    username: ClaimMapping
    groups: ClaimMapping | None = None
    uid: ClaimMapping | None = None
    required: dict[str, str] = msgspec.field(default_factory=dict)
    """Claims that must be there with these values."""
    claim_rules: tuple[Rule, ...] = ()
    user_rules: tuple[Rule, ...] = ()
    extra: tuple[tuple[str, Program], ...] = ()
    discovery_url: str = ""
    authority: str = ""
    """PEM of the CA of the issuer's server; empty: the machine's."""


class KeySet:
    """An issuer's public keys by key ID."""

    def __init__(self, issuer: Issuer, clock: Clock) -> None:
        self._issuer, self._clock = issuer, clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key, None if the issuer has no such key; raises IssuerAway."""
        if key_id not in self._keys:
            async with self._lock:
                if key_id not in self._keys and self._clock.monotonic() - self._fetched >= FETCH_SECONDS:
                    self._fetched = self._clock.monotonic()
                    self._keys = await self._fetch()
        return self._keys.get(key_id)

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        import aiohttp  # where no issuer is believed, its 150 ms of start-up are for nothing

        from kube.http_connector import Connector

        issuer = self._issuer
        context = await asyncio.to_thread(tls_settings.verifying, cadata=issuer.authority or None)
        where = issuer.discovery_url or issuer.url.rstrip("/") + "/.well-known/openid-configuration"
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        try:
            async with aiohttp.ClientSession(connector=Connector(ssl=context), timeout=timeout) as session:
                document = await _json(session, where)
                if document.get("issuer") != issuer.url:
                    raise IssuerAway(f"{where} is of issuer {document.get('issuer')!r}")
                found = await _json(session, str(document.get("jwks_uri")))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise IssuerAway(f"cannot fetch the keys of {issuer.url}: {error or type(error).__name__}") from error
        return await asyncio.to_thread(read_keys, found, issuer.url)


PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Members of a public key by its type (RFC 7518, RFC 8037). Of a private key, the others are not read: PyJWT would look for its
primes, which takes hours for a long one."""
MOST_KEYS, LONGEST_NUMBER = 128, 4096
"""Keys of an issuer that are read, and characters of a number of one: an RSA key of 16 384 bits has 2 731."""


def read_keys(document: dict[str, Any], url: str) -> dict[str, jwt.PyJWK]:
    """Return the public keys of a JSON Web Key Set by ID, without those that are not for signatures or cannot be read."""
    keys: dict[str, jwt.PyJWK] = {}
    found = document.get("keys")
    for entry in found[:MOST_KEYS] if isinstance(found, list) else ():
        if not isinstance(entry, dict) or entry.get("use") not in (None, "sig"):
            continue
        kind = entry.get("kty")
        members = PUBLIC.get(kind, ()) if isinstance(kind, str) else ()
        public = {key: entry[key] for key in ("kty", "kid", "use", "alg", *members) if key in entry}
        try:
            if not members or any(len(str(public.get(member, ""))) > LONGEST_NUMBER for member in members):
                raise jwt.PyJWTError(f"its type {kind!r} or its length is not supported")
            keys[str(entry.get("kid", ""))] = jwt.PyJWK(public)
        except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError) as error:
            log.info("ignoring a key of %s: %s", url, error)
    return keys


async def _json(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    if not url.startswith("https://"):
        raise ValueError(f"{url!r} is not an https URL")
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"{url} answered {answer.status}")
        text = await bounded_answer.read(answer, DOCUMENT_LIMIT)
        check_nesting(text)
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"{url} is no JSON object")
        return document


class OIDCAuthenticator:
    """Believes ID tokens of one issuer."""

    def __init__(self, issuer: Issuer, clock: Clock) -> None:
        self.issuer, self._clock = issuer, clock
        self._keys = KeySet(issuer, clock)

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user of a token of this issuer; None for other tokens, 401 for a bad one."""
        token = credentials.token
        parsed = unverified(token) if token is not None else None
        if token is None or parsed is None or parsed.issuer != self.issuer.url:
            return None
        algorithm = parsed.header.get("alg")
        try:
            key = await self._keys.find(parsed.key_id)
            if key is None or algorithm not in ALGORITHMS.get(key.key_type or "", ()):
                raise unauthorized()
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[str(algorithm)],
                audience=self.issuer.audiences,
                issuer=self.issuer.url,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            # Expressions of the configuration, on what the issuer wrote. Only one user waits for one's own.
            who = f"{self.issuer.url}#{claims.get('sub', '')}"
            return await offload.evaluate(who, len(token), self._user, claims)
        except (jwt.PyJWTError, IssuerAway) as error:
            log.info("a token of %s is invalid: %s", self.issuer.url, error)
            raise unauthorized() from error

    def _user(self, claims: Claims) -> UserInfo:
        now = self._clock.now().timestamp()
        if not _number(claims, "nbf", now) - NOT_BEFORE_LEEWAY <= now < _number(claims, "exp", 0.0):
            raise jwt.InvalidTokenError("it is past its time, or before it")
        for claim, value in self.issuer.required.items():
            if claims.get(claim) != value:
                raise jwt.InvalidTokenError(f"claim {claim} is not {value!r}")
        _require(self.issuer.claim_rules, {"claims": claims})
        mapping = self.issuer.username
        # An address that the issuer did not check could be anybody's. (Expressions that use one must ask, by the file's rules.)
        if mapping.claim == "email" and claims.get("email_verified", True) is not True:
            raise jwt.InvalidTokenError("the e-mail address is not verified")
        name = _text(mapping, claims)
        if not name:
            raise jwt.InvalidTokenError(f"there is no claim {mapping.claim} to be the user's name")
        uid = _text(self.issuer.uid, claims) if self.issuer.uid else ""
        extra = {key: tuple(_names(_evaluate(program, {"claims": claims}), key)) for key, program in self.issuer.extra}
        user = UserInfo(name, uid, self._groups(claims), {key: found for key, found in extra.items() if found})
        _require(self.issuer.user_rules, {"user": user_info(user)})
        return user

    def _groups(self, claims: Claims) -> tuple[str, ...]:
        mapping = self.issuer.groups
        if mapping is None:
            return ()
        found = claims.get(mapping.claim)
        if mapping.expression is not None:
            found = _evaluate(mapping.expression, {"claims": claims})
        return tuple(mapping.prefix + name for name in _names(found, mapping.claim or "groups"))


def _text(mapping: ClaimMapping, claims: Claims) -> str:
    if mapping.expression is None:
        found = claims.get(mapping.claim)
        return mapping.prefix + found if isinstance(found, str) and found else ""
    found = _evaluate(mapping.expression, {"claims": claims})
    return found if isinstance(found, str) else ""


def _names(found: Any, what: str) -> list[str]:
    names = [] if found is None or found == "" else [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise jwt.InvalidTokenError(f"{what} is no list of strings")
    return names


def _require(rules: tuple[Rule, ...], variables: dict[str, Any]) -> None:
    for rule in rules:
        if _evaluate(rule.expression, variables) is not True:
            raise jwt.InvalidTokenError(rule.message or f"not so: {rule.expression.source}")


def _evaluate(program: Program, variables: dict[str, Any]) -> Any:
    try:
        return program.evaluate(variables).value
    except EvaluationError as error:
        raise jwt.InvalidTokenError(f"{program.source}: {error}") from error


def _number(claims: Claims, name: str, missing: float) -> float:
    value = claims.get(name, missing)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise jwt.InvalidTokenError(f"claim {name} is no number")
    return float(value)
