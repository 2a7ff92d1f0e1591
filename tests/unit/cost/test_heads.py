"""Headers of a request's head, which may be a megabyte: the work for each before authentication is limited."""

from __future__ import annotations

import ast
import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import control
from control.auth.token_signer import TokenSigner
from control.auth.unverified_token import unverified
from control.http import encodings
from control.http.exchange import Request, wants_upgrade
from control.http.negotiate import aggregated_version, negotiate
from control.server.zpages import wanted_version
from kube import errors
from tests.support.cost import Case, peak, steps

LARGEST = 1 << 20
"""Bytes of a head (ServingLimits.head_bytes)."""
MOST_STEPS = 3000
MOST_MEMORY = 128 << 10
STATUS = errors.unauthorized().to_status()
SIGNER = TokenSigner(ec.generate_private_key(ec.SECP256R1()))


async def nothing(limit: int) -> bytes:
    return b""


def _part(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _token(header: str, claims: str) -> str:
    return f"{_part(header)}.{_part(claims)}.AAAA"


_MANY = ",".join(["[]"] * (LARGEST // 6))
ACCEPTS = {
    "semicolons": "yaml" + ";" * LARGEST,
    "commas": "," * LARGEST,
    "types": "a," * (LARGEST // 2),
    "both": ";," * (LARGEST // 2),
    "values": "yaml" + ";=" * (LARGEST // 2),
    "many parameters": ("yaml" + ";a=b" * 60 + ",") * (LARGEST // 250),
}
READERS: dict[str, Callable[[str], object]] = {
    "negotiate": negotiate,
    "aggregated discovery": aggregated_version,
    "zpages": lambda accept: wanted_version(accept, "Statusz"),
    "error": lambda accept: encodings.status_bytes(STATUS, accept),
    "connection": lambda value: wants_upgrade(Request("GET", "/", b"", {b"connection": value.encode()}, nothing)),
}
TOKENS = {
    "header": _token('{"alg":"ES256","a":[' + _MANY + "]}", '{"iss":"x"}'),
    "claims": _token('{"alg":"ES256"}', '{"iss":"x","a":[' + _MANY + "]}"),
    "brackets": _token('{"alg":"ES256"}', "[" * LARGEST),
    "dots": "." * LARGEST,
}


@pytest.mark.parametrize("value", ACCEPTS.values(), ids=ACCEPTS)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_more_than_a_part_of_a_header_is_split(value: str, read: Callable[[str], object]) -> None:
    case = Case("header", str, read)
    assert steps(case, value) < MOST_STEPS
    # A connection's header is bytes, which the test makes of the text.
    assert peak(case, value) < MOST_MEMORY + (2 * LARGEST if read is READERS["connection"] else 0)


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_that_is_too_long_is_not_decoded(token: str) -> None:
    case = Case("token", str, SIGNER.verify)
    assert steps(case, token) < 100 and peak(case, token) < MOST_MEMORY
    assert unverified(token) is None


def test_a_token_is_decoded_once_for_all_authenticators(monkeypatch: pytest.MonkeyPatch) -> None:
    token = SIGNER.sign({"iss": "https://another"})
    found = unverified(token)
    assert found is not None and (found.issuer, found.key_id) == ("https://another", next(iter(SIGNER._public)))
    assert unverified(token) is found


@pytest.mark.parametrize(
    "claims", ["[" * 20_000, "[" * 10_000 + "]" * 10_000, "1", '"a"', "", '{"iss":[]}', '{"iss":1}']
)
def test_what_is_no_token_of_this_issuer_is_none(claims: str) -> None:
    assert SIGNER.verify(_token('{"alg":"ES256"}', claims)) is None


def unbounded(source: str) -> list[int]:
    """Return the lines that split a header's value, and not only its beginning or at few places."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "split"
        and len(node.args) < 2
        and any(word in ast.unparse(node.func.value) for word in (".header(", "headers.get(", "accept", "offer"))
        and "[:LONGEST]" not in ast.unparse(node.func.value)
    ]


def test_no_header_is_split_without_a_limit() -> None:
    folder = Path(control.__file__).parent
    found = {
        str(file.relative_to(folder)): lines for file in folder.rglob("*.py") if (lines := unbounded(file.read_text()))
    }
    # Its value was bounded in the line before.
    assert found.keys() == {"server/resource_metrics.py"}


def test_a_header_that_is_split_is_seen() -> None:
    assert unbounded('a = request.header(b"x").split(",")\nb = request.header(b"x")[:LONGEST].split(",")') == [1]
