"""Encoding of AdmissionReview requests and decoding of responses (admission.k8s.io/v1 and v1beta1).

An answer that is not one (another uid, no patch type, a patch that cannot be read) is a `BadAnswer`, which counts as a
failed call: whether that refuses the request is the webhook's failurePolicy.
"""

from __future__ import annotations

import base64
import uuid
from typing import Annotated, Any

import msgspec

from control.admission.matching import Invocation
from control.admission.request import describe
from control.decoding.numbers import normalized
from control.interfaces.admission import Attributes
from kube import base64_text
from kube.errors import StatusError
from kube.json_object import UNREADABLE, Object

_VERSIONS = ("v1", "v1beta1")


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Cause(msgspec.Struct, omit_defaults=True):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: list[_Cause] | None = None
    retryAfterSeconds: _Int32 | None = None


class _Status(msgspec.Struct, omit_defaults=True):
    code: _Int32 | None = None
    message: str | None = None
    reason: str | None = None
    details: _Details | None = None


class _Response(msgspec.Struct):
    """The types of an AdmissionResponse's fields."""

    uid: str | None = None
    allowed: bool | None = None
    status: _Status | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: list[str | None] | None = None
    auditAnnotations: dict[str, str | None] | None = None


class BadAnswer(Exception):
    """The webhook answered, but not with an AdmissionReview that can be used."""


class Verdict(msgspec.Struct, frozen=True):
    """Response of a webhook."""

    allowed: bool
    status: Object = msgspec.field(default_factory=dict)
    patch: list[Any] = msgspec.field(default_factory=list)
    warnings: tuple[str, ...] = ()
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    size: int = 0
    """Bytes of the answer."""


def version_of(hook: Object) -> str:
    """Return the version of AdmissionReview to send: the first of the webhook's that is known."""
    versions: list[str] = hook["admissionReviewVersions"]
    return next(version for version in versions if version in _VERSIONS)


async def request_for(invocation: Invocation, attributes: Attributes) -> Object:
    """Build the AdmissionReview."""
    request, new, old = await describe(invocation.resource, attributes)
    version = version_of(invocation.hook)
    return {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": {"uid": str(uuid.uuid4()), **request, "object": new, "oldObject": old},
    }


def read(answer: bytes, sent: Object, *, mutating: bool) -> Verdict:
    """Read the webhook's answer to a review; a patch of one that validates is not looked at."""
    try:
        review = msgspec.json.decode(answer)
    except UNREADABLE as error:
        raise BadAnswer(f"couldn't get version/kind; json parse error: {error}") from error
    version = sent["apiVersion"]
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview" or review.get("apiVersion") != version:
        seen = review if isinstance(review, dict) else {}
        raise BadAnswer(
            f"expected webhook response of {version}, Kind=AdmissionReview,"
            f" got {seen.get('apiVersion', '')}, Kind={seen.get('kind', '')}"
        )
    response = review.get("response")
    if not isinstance(response, dict):
        raise BadAnswer("webhook response was absent")
    try:
        typed = msgspec.convert(response, _Response)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"the response cannot be read: {error}") from error
    if version.endswith("/v1") and response.get("uid") != sent["request"]["uid"]:
        raise BadAnswer(f"expected response.uid={sent['request']['uid']!r}, got {response.get('uid')!r}")
    encoded = _encoded_patch(response, version) if mutating else ""
    return Verdict(
        bool(typed.allowed),
        msgspec.to_builtins(typed.status) if typed.status is not None else {},
        _decoded(encoded) if encoded and typed.allowed else [],
        tuple(text or "" for text in typed.warnings or ()),
        {key: value or "" for key, value in (typed.auditAnnotations or {}).items()},
        len(answer),
    )


def _encoded_patch(response: Object, version: str) -> str:
    encoded, kind = response.get("patch"), response.get("patchType")
    if not encoded:
        if kind and version.endswith("/v1"):
            raise BadAnswer("webhook returned response.patchType but not response.patch")
        return ""
    if kind != "JSONPatch" and (kind or version.endswith("/v1")):
        raise BadAnswer(f'webhook returned response.patch, but response.patchType must be "JSONPatch", not {kind!r}')
    try:
        return base64_text.canonical(encoded)
    except (ValueError, TypeError) as error:
        raise BadAnswer(f"the response cannot be read: response.patch: {error}") from error


def _decoded(encoded: str) -> list[Any]:
    """Return the operations of a patch; raises BadAnswer. Only of an allowed request's: a denial stays one (upstream alike)."""
    try:
        patch = normalized(msgspec.json.decode(base64.b64decode(encoded)))
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(patch, list) or not all(isinstance(operation, dict | None) for operation in patch):
        raise BadAnswer("received undecodable patch in webhook response: it is not an array of operations")
    return patch


def refusal(name: str, status: Object) -> StatusError:
    """Make the error of a request that a webhook denied: its own code and reason, at least 400."""
    code = status.get("code")
    message, reason = status.get("message"), status.get("reason")
    text = f'admission webhook "{name}" denied the request'
    if message:
        text += f": {message}"
    elif reason:
        text += f": {reason}"
    else:
        text += " without explanation"
    if not isinstance(code, int) or code < 400:
        code = 400
    error = StatusError(code, str(reason or ""), text, status.get("details"))
    error.refused_by = f"admission webhook {name}"
    return error
