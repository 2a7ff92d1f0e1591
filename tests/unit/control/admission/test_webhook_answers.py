"""Answers of webhooks that are no AdmissionReview: failed calls, whatever their fields hold."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from control.admission.webhooks.review import BadAnswer, read

SENT = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1"}}


def answer(**response: Any) -> bytes:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "1", **response}}
    return msgspec.json.encode(review)


@pytest.mark.parametrize(
    "response",
    [
        {"allowed": False, "status": {"code": "never"}},
        {"allowed": False, "status": {"code": [1]}},
        {"allowed": False, "status": {"code": 403.5}},
        {"allowed": False, "status": {"code": 1 << 40}},
        {"allowed": False, "status": {"code": True}},
        {"allowed": False, "status": {"message": 7}},
        {"allowed": False, "status": {"reason": {}}},
        {"allowed": False, "status": {"details": "x"}},
        {"allowed": False, "status": {"details": {"retryAfterSeconds": "1\r\nSet-Cookie: a=b"}}},
        {"allowed": False, "status": {"details": {"retryAfterSeconds": True}}},
        {"allowed": False, "status": {"details": {"retryAfterSeconds": 1 << 31}}},
        {"allowed": False, "status": {"details": {"name": ["x"]}}},
        {"allowed": False, "status": {"details": {"causes": {"reason": "x"}}}},
        {"allowed": False, "status": {"details": {"causes": [{"reason": 1}]}}},
        {"allowed": False, "status": "no"},
        {"allowed": "false"},
        {"allowed": True, "warnings": 7},
        {"allowed": True, "warnings": [{}]},
        {"allowed": True, "auditAnnotations": ["a"]},
        {"allowed": True, "auditAnnotations": {"a": 1}},
        {"allowed": True, "patchType": "JSONPatch", "patch": 7},
        {"allowed": True, "patchType": "JSONPatch", "patch": "é"},
    ],
)
def test_a_field_of_another_type_is_a_bad_answer(response: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        read(answer(**response), SENT, mutating=True)


def test_an_answer_nested_without_end_is_a_bad_one() -> None:
    with pytest.raises(BadAnswer):
        read(b"[" * 100_000, SENT, mutating=True)


def test_fields_that_are_null_are_absent() -> None:
    nothing = dict.fromkeys(("status", "warnings", "auditAnnotations", "patch", "patchType"))
    found = read(answer(allowed=True, **nothing), SENT, mutating=True)
    assert (found.allowed, found.status, found.patch, found.warnings, found.annotations) == (True, {}, [], (), {})
    assert read(answer(allowed=False, status={"code": None}), SENT, mutating=True).status == {}
    assert not read(answer(), SENT, mutating=True).allowed


def test_details_of_a_refusal_are_those_of_a_status() -> None:
    details = {"name": "a", "causes": [{"reason": "b", "message": "c", "field": "d"}], "retryAfterSeconds": 3}
    status = {"code": 429, "details": {**details, "unknown": 1}}
    assert read(answer(allowed=False, status=status), SENT, mutating=True).status == {"code": 429, "details": details}


@pytest.mark.parametrize("patch", [b"nonsense", b"{}", b"[" * 100_000, b"5", b"[5]"])
def test_a_denial_stays_one_whatever_patch_it_has(patch: bytes) -> None:
    """Else the webhook's failurePolicy would decide, and with Ignore let the request pass."""
    response = {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    assert not read(answer(allowed=False, **response), SENT, mutating=True).allowed
    with pytest.raises(BadAnswer, match="undecodable patch"):
        read(answer(allowed=True, **response), SENT, mutating=True)


@pytest.mark.parametrize("response", [{"patch": "é"}, {"patchType": "JSONPatch"}, {"patch": "e30="}])
def test_the_patch_of_a_webhook_that_validates_is_not_looked_at(response: dict[str, Any]) -> None:
    assert read(answer(allowed=True, **response), SENT, mutating=False).allowed
    with pytest.raises(BadAnswer):
        read(answer(allowed=True, **response), SENT, mutating=True)
