"""Answers of other programs that are no JSON, each an error of the call."""

from __future__ import annotations

from typing import Any

import pytest

from control.admission.webhooks import review
from control.auth.webhooks import client as auth_client
from control.custom.conversion import Versions
from control.schemas.schema import compile_root
from kube.client import error_of
from kube.errors import StatusError

NO_JSON = pytest.mark.parametrize(
    "answer", [b"{", b'{"kind": "\xff"}', b"[" * 100_000], ids=["cut off", "no UTF-8", "nested"]
)


@NO_JSON
def test_an_answer_of_an_admission_webhook_that_is_no_json_is_a_failed_call(answer: bytes) -> None:
    with pytest.raises(review.BadAnswer):
        review.read(answer, {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u"}}, mutating=True)


@NO_JSON
def test_an_answer_of_an_authorization_webhook_that_is_no_json_is_a_failed_call(answer: bytes) -> None:
    with pytest.raises(auth_client.ReviewFailed):
        auth_client._status(answer, {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"})


@NO_JSON
async def test_an_answer_of_a_conversion_webhook_that_is_no_json_is_a_failed_call(answer: bytes) -> None:
    class Webhook:
        async def call(self, *args: Any) -> bytes:
            return answer

    clients = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hook"}}
    conversion = {"strategy": "Webhook", "webhook": clients}
    names = [{"name": name, "storage": name == "v1"} for name in ("v1", "v2")]
    spec = {"group": "e.com", "names": {"kind": "Foo"}, "versions": names, "conversion": conversion}
    schema = compile_root({"type": "object"})
    versions = Versions({"spec": spec}, {"v1": schema, "v2": schema}, Webhook())
    with pytest.raises(StatusError, match=r"conversion webhook for e\.com/v1, Kind=Foo failed"):
        await versions.convert([{"apiVersion": "e.com/v1", "kind": "Foo"}], "v2", 1, lambda obj: obj)


@NO_JSON
def test_an_error_whose_body_is_no_json_is_a_status(answer: bytes) -> None:
    assert error_of(502, answer).code == 502
