"""Heads of responses: texts of other servers cannot end a header."""

from __future__ import annotations

from typing import Any

import pytest

from control.http.exchange import error_response
from kube.errors import StatusError

SPLIT = "1\r\nX-Injected: yes"


@pytest.mark.parametrize("seconds", [SPLIT, "5", True, 1.5, [1], -1, 0, 1 << 31, None])
def test_only_a_positive_integer_becomes_retry_after(seconds: Any) -> None:
    assert error_response(StatusError(429, "TooManyRequests", "no", {"retryAfterSeconds": seconds})).headers == []


@pytest.mark.parametrize("seconds", [1, (1 << 31) - 1])
def test_an_integer_becomes_retry_after(seconds: int) -> None:
    found = error_response(StatusError(429, "TooManyRequests", "no", {"retryAfterSeconds": seconds}))
    assert found.headers == [(b"retry-after", str(seconds).encode())]


@pytest.mark.parametrize("code", [0, 99, 600, 1000, 1 << 30])
def test_a_code_that_http_does_not_have_is_500(code: int) -> None:
    assert error_response(StatusError(code, "", "no")).status == 500


def test_fields_of_another_servers_status_with_other_types_are_ignored() -> None:
    status = {
        "code": "1",
        "reason": 2,
        "message": [],
        "details": {"retryAfterSeconds": SPLIT, "causes": 1, "name": "a"},
    }
    found = StatusError.from_status(status, 503)
    assert (found.code, found.reason, found.message, found.details) == (503, "", "", {"name": "a"})
    assert StatusError.from_status({"code": 999, "details": "x"}, 503).code == 503
    assert StatusError.from_status({"details": {"causes": [1]}}).details == {}
    details = {"retryAfterSeconds": 2, "causes": [{"reason": "a"}]}
    assert StatusError.from_status({"code": 429, "details": details}).details == details
