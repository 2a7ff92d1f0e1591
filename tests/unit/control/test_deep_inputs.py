"""Readers of texts from outside refuse, or cut, what nests too deep: at every depth, and with whatever calls above them.

Where a reader calls itself for each level, the depth at which Python ends it depends on the calls above. At the depths next to
that one, a first reader passes and a second one fails.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec
import pytest

from control.auth.unverified_token import unverified
from control.custom import conversion_response
from control.custom.conversion_response import REVIEWS, BadConversion, Expected
from control.http.exchange import Response
from control.server import audit_bodies
from control.storage.listing import decode_token
from kube import serialize
from kube.api import core_v1
from kube.errors import StatusError
from kube.nesting import DEEPEST, FRAMES

DEPTHS = (DEEPEST + 10, 1000, *range(FRAMES - 80, FRAMES + 5, 7), 5000, 100_000)


def nested(levels: int) -> bytes:
    return b'{"a":' * (levels // 2) + b"[" * (levels // 2) + b"]" * (levels // 2) + b"}" * (levels // 2)


def in_base64(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def token(header: bytes, claims: bytes) -> str:
    signed = f"{in_base64(header)}.{in_base64(claims)}"
    return f"{signed}.{in_base64(hmac.digest(b'k' * 32, signed.encode(), hashlib.sha256))}"


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_token_for_the_next_page_is_refused(levels: int) -> None:
    text = b'{"v":"meta.k8s.io/v1","rv":1,"start":"a","x":%b}' % nested(levels)
    with pytest.raises(StatusError) as refused:
        decode_token(in_base64(text))
    assert refused.value.code == 400


@pytest.mark.parametrize("levels", [levels for levels in DEPTHS if levels < 10_000])
def test_a_bearer_token_is_none_that_is_verified(levels: int) -> None:
    assert unverified(token(b'{"alg":"HS256","x":%b}' % nested(levels), b"{}")) is None
    assert unverified(token(b'{"alg":"HS256"}', b'{"iss":"a","x":%b}' % nested(levels))) is None
    assert unverified(token(b'{"alg":"HS256","kid":"k"}', b'{"iss":"a"}')) is not None


@pytest.mark.parametrize("levels", DEPTHS)
def test_the_audit_log_leaves_out_bodies(levels: int) -> None:
    body = b'{"kind":"ConfigMap","metadata":{"name":"a"},"x":%b}' % nested(levels)
    assert audit_bodies.answered(Response(200, body, b"application/json")) is None


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_conversion_of_a_webhook_is_refused(levels: int) -> None:
    head = b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"'
    converted = b'{"apiVersion":"a/v2","kind":"A","metadata":{"name":"a"},"spec":%b}' % nested(levels)
    body = b'%b,"response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[%b]}}' % (head, converted)
    expected = Expected(REVIEWS[0], "u", "A", "a/v2", "a/v1, Kind=A")
    with pytest.raises(BadConversion):
        conversion_response.read(body, expected, [{"metadata": {"name": "a"}}], lambda obj: obj)


class _Services(msgspec.Struct):
    items: list[core_v1.Service]


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_client_reads_an_object_of_another_server_without_its_deepest_levels(levels: int) -> None:
    fields = b'{"manager":"m","fieldsV1":%b}' % nested(levels)
    text = b'{"items":[{"metadata":{"name":"a","managedFields":[%b]}},{"metadata":{"name":"b"}}]}' % fields
    found = serialize.decode(text, _Services)
    assert [item.metadata.name for item in found.items] == ["a", "b"]
