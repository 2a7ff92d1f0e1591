"""Reading of a conversion webhook's response: the review, and each object in the requested version.

Objects are decoded one by one, so that the interpreter's lock is free between them, and none is larger than any other answer
of a webhook may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from control.admission.webhooks.caller import ANSWER_LIMIT
from control.decoding.numbers import NumberError, normalized
from control.registry.checks import labels
from control.registry.metadata import validate_annotations
from kube.errors import StatusError
from kube.json_object import Object, go_type
from kube.nesting import TooDeep, check_nesting

T = TypeVar("T")
REVIEWS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")
"""Supported review versions; the first one that a definition names is used."""
MOST_PROBLEMS = 8
"""Errors of labels or annotations that are reported."""


class BadConversion(Exception):
    """A webhook returned an invalid response."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A review that was sent, as far as its response has to match it."""

    review: str
    """The apiVersion of the review."""
    uid: str
    kind: str
    wanted: str
    """The apiVersion of the converted objects."""
    source: str
    """The version and kind that were sent, in error messages."""


def read(answer: bytes, expected: Expected, sent: Sequence[Object], finish: Callable[[Object], T]) -> list[T]:
    """Return what `finish` makes of each converted object.

    Of metadata a webhook may change only labels and annotations. Raises BadConversion, msgspec.DecodeError, StatusError.
    """
    converted = _converted(answer, expected)
    if len(converted) != len(sent):
        why = f"returned {len(converted)} objects, expected {len(sent)}"
        raise StatusError(500, "", f"conversion webhook for {expected.source} {why}")
    return [
        finish(_checked(data, index, old, expected))
        for index, (data, old) in enumerate(zip(converted, sent, strict=True))
    ]


def _fields(data: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """Return the undecoded fields of a JSON object, None for another value."""
    try:
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return None
    except RecursionError as error:
        raise BadConversion(f"invalid response: {error}") from error


def _converted(answer: bytes, expected: Expected) -> list[msgspec.Raw]:
    """Return the undecoded objects of a response."""
    review = _fields(answer) or {}
    version, kind = (_decoded(review.get(name)) for name in ("apiVersion", "kind"))
    older = expected.review != REVIEWS[0]
    if older:
        # A webhook that answers in the older form need name neither that nor the request.
        version, kind = version if "apiVersion" in review else expected.review, kind if "kind" in review else _REVIEW
    if (version, kind) != (expected.review, _REVIEW):
        raise BadConversion(f"invalid response: expected {expected.review}, Kind={_REVIEW}")
    response = _fields(review["response"]) if "response" in review else None
    if response is None:
        raise BadConversion("invalid response: no response provided")
    uid = _decoded(response.get("uid"))
    if not older and uid != expected.uid:
        raise BadConversion(f'invalid response: expected response.uid="{expected.uid}", got "{uid}"')
    result = _decoded(response.get("result")) or {}
    if not isinstance(result, dict) or result.get("status") != "Success":
        result = result if isinstance(result, dict) else {}
        raise BadConversion(result.get("message") or f"response.result.status was '{result.get('status', '')}'")
    if "convertedObjects" not in response:
        return []
    try:
        return msgspec.json.decode(response["convertedObjects"], type=list[msgspec.Raw] | None) or []
    except msgspec.ValidationError as error:
        raise BadConversion(f"invalid response: response.convertedObjects: {error}") from error


_REVIEW = "ConversionReview"


def _decoded(data: msgspec.Raw | None) -> Any:
    return None if data is None else msgspec.json.decode(data)


def _object(data: msgspec.Raw) -> Any:
    try:
        check_nesting(bytes(data))
        return normalized(msgspec.json.decode(data))
    except (NumberError, TooDeep) as error:
        raise BadConversion(f"invalid response: response.convertedObjects: {error}") from error


def _checked(data: msgspec.Raw, index: int, old: Object, expected: Expected) -> Object:
    """Decode and check the converted form of an object."""
    size = len(memoryview(data))
    if size > ANSWER_LIMIT:
        raise BadConversion(f"the converted object at index {index} has {size} bytes, more than {ANSWER_LIMIT}")
    new, webhook, why = _object(data), f"conversion webhook for {expected.source}", ""
    if not isinstance(new, dict) or not isinstance(new.get("metadata", {}), dict):
        raise BadConversion(f"invalid converted object at index {index}")
    if new.get("apiVersion") != expected.wanted:
        why = f"invalid groupVersion (expected {expected.wanted}, received {new.get('apiVersion')})"
    elif new.get("kind") != expected.kind:
        why = f"invalid kind (expected {expected.kind}, received {new.get('kind')})"
    if why:
        raise StatusError(500, "", f"{webhook} returned invalid converted object at index {index}: {why}")
    given, metadata = new.get("metadata") or {}, dict(old["metadata"])
    if given.get("uid", metadata.get("uid")) != metadata.get("uid") or given.get("name") != metadata.get("name"):
        why = f"returned invalid metadata in object at index {index}: must have the same name and UID"
        raise StatusError(500, "", f"{webhook} {why}")
    try:
        _restore_texts(given, metadata)
    except ValueError as error:
        raise StatusError(
            500, "", f"{webhook} returned invalid metadata in object at index {index}: {error}"
        ) from error
    return {**new, "metadata": metadata}


def _restore_texts(given: Object, metadata: Object) -> None:
    """Take over a webhook's labels and annotations, checked where they changed; raises ValueError with upstream's text."""
    for part in ("labels", "annotations"):
        value, before = given.get(part), metadata.pop(part, None)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise ValueError(f"invalid metadata.{part} of type {go_type(value)} in converted object")
        for key, text in value.items():
            if not isinstance(text, str):
                raise ValueError(f"metadata.{part}[{key}] must be a string, but is {go_type(text)} in converted object")
        if value and value != before:
            problems = labels(value, "metadata.labels") if part == "labels" else validate_annotations(value)
            texts = [str(problem) for problem in problems[:MOST_PROBLEMS]]
            if texts:
                raise ValueError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        if value:
            metadata[part] = value
