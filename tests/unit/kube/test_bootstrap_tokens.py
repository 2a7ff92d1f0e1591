from __future__ import annotations

import pytest

from kube import bootstrap_tokens
from kube.bootstrap_tokens import Token, TokenError, parse, sign, verify


def test_a_token_has_two_halves_and_shows_one() -> None:
    token = parse(" abcdef.0123456789abcdef\n")
    assert (token.id, token.secret) == ("abcdef", "0123456789abcdef")
    assert str(token) == "abcdef.0123456789abcdef"
    assert "0123456789abcdef" not in repr(token)
    assert token.secret_name == "bootstrap-token-abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abcdef",
        "abcdef.",
        "abcde.0123456789abcdef",
        "abcdef.0123456789abcde",
        "ABCDEF.0123456789abcdef",
        "abcdef-0123456789abcdef",
        "abcdef.0123456789abcdef0",
    ],
)
def test_what_is_not_a_token_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(TokenError, match=r"as in abcdef\.0123456789abcdef"):
        parse(text)


def test_new_tokens_differ_and_can_be_read() -> None:
    made = {str(bootstrap_tokens.new()) for _ in range(100)}
    assert len(made) == 100
    assert all(str(parse(text)) == text for text in made)


def test_the_signature_is_the_one_that_others_compute() -> None:
    # RFC 7515 by hand: HMAC-SHA256 over header "." payload, both base64url without padding, payload left out of the result.
    import base64
    import hashlib
    import hmac
    import json

    token = Token("joshua", "my voice is my passcode")
    header, payload, signature = sign("Hello", token).split(".")
    assert payload == ""
    padded = header + "=" * (-len(header) % 4)
    assert json.loads(base64.urlsafe_b64decode(padded)) == {"alg": "HS256", "kid": "joshua"}
    mac = hmac.new(b"my voice is my passcode", f"{header}.SGVsbG8".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + "=") == mac
    # What kubeadm computes for this text and token.
    text = "Hello from the other side. I must have called a thousand times."
    expected = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
    assert sign(text, token) == expected


def test_a_signature_holds_for_its_text_and_token_alone() -> None:
    token = Token("abcdef", "0123456789abcdef")
    signature = sign("text", token)
    assert verify("text", signature, token)
    assert not verify("texT", signature, token)
    assert not verify("text", signature, Token("abcdef", "0123456789abcdee"))
    assert not verify("text", signature, Token("abcdeg", "0123456789abcdef"))
    assert not verify("text", signature[:-1], token)
