"""Keys of an OpenID Connect issuer: only public ones of bounded length are read, whatever its document contains."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from control.auth.oidc import MOST_KEYS, read_keys

URL = "https://issuer.example.com"


def public(key: Any, **more: Any) -> dict[str, Any]:
    algorithm: Any = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    kind = next(found for base, found in algorithm.items() if isinstance(key, base))
    return {**json.loads(kind.to_jwk(key.public_key())), **more}


RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSA, "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
def test_a_token_is_verified_by_the_key_of_each_type(key: Any, algorithm: str) -> None:
    keys = read_keys({"keys": [public(key, kid="a", use="sig", alg=algorithm)]}, URL)
    token = jwt.encode({"sub": "me"}, key, algorithm)
    assert jwt.decode(token, keys["a"], algorithms=[algorithm]) == {"sub": "me"}


def test_the_private_part_of_a_key_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find the primes of a long key takes hours."""
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))
    given: list[dict[str, Any]] = []
    made = jwt.PyJWK

    def noted(data: dict[str, Any]) -> jwt.PyJWK:
        given.append(data)
        return made(data)

    monkeypatch.setattr(jwt, "PyJWK", noted)
    assert read_keys({"keys": [{**private, "kid": "a"}]}, URL).keys() == {"a"}
    assert given == [{"kty": "RSA", "kid": "a", "n": private["n"], "e": private["e"]}]


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA", "n": "A" * 5000, "e": "AQAB"},
        {"kty": "RSA", "n": "AQAB", "e": "A" * 5000},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": 5, "y": None},
        {"kty": ["RSA"]},
        {"kty": "none"},
        {},
        {"kty": "RSA", "use": "enc", "n": public(RSA)["n"], "e": "AQAB"},
        "no object",
        None,
    ],
)
def test_an_entry_that_is_no_key_for_signatures_is_left_out(entry: object) -> None:
    assert read_keys({"keys": [entry, public(RSA, kid="good")]}, URL).keys() == {"good"}


@pytest.mark.parametrize("keys", [None, "text", {"kid": {}}, 5])
def test_a_document_without_a_list_of_keys_has_none(keys: object) -> None:
    assert read_keys({"keys": keys}, URL) == {}


def test_so_many_keys_are_read_and_no_more() -> None:
    entry = public(RSA)
    assert len(read_keys({"keys": [{**entry, "kid": str(n)} for n in range(MOST_KEYS + 5)]}, URL)) == MOST_KEYS
