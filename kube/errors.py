"""The API's errors: a `Status` as an exception, and field errors in upstream's words.

The server raises `StatusError` and its edge writes it as a `Status` object; the client reads a `Status` and raises the
same class, so that code on either side distinguishes errors by `reason`. Codes, reasons and message forms are those of
apimachinery's pkg/api/errors and pkg/util/validation/field.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_LARGEST_INT32 = (1 << 31) - 1
_TOO_LARGE = ("etcdserver: request is too large", "trying to send message larger than max")
"""Parts of messages of a server that etcd, or its client, refuses an object; the code is 500."""


class StatusError(Exception):
    """An API request failed: HTTP `code`, machine-readable `reason`, and `details` as in meta.k8s.io/v1 Status."""

    refused_by = ""
    """Admission plugin, webhook or policy that refused the request; clients do not get it."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details or {}

    @property
    def not_found(self) -> bool:
        return self.reason == "NotFound"

    @property
    def already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        return self.reason == "Conflict"

    @property
    def replaced(self) -> bool:
        """The object has changed, or another one has its name: a conflict, or a patch with a UID that is not the object's."""
        return self.conflict or (
            self.reason == "Invalid"
            and any(cause.get("field") == "metadata.uid" for cause in self.details.get("causes") or ())
        )

    @property
    def expired(self) -> bool:
        """The requested resource version has been compacted: list again (410, reasons Expired and Gone)."""
        return self.reason in ("Expired", "Gone")

    @property
    def revision_too_large(self) -> bool:
        """The server has not reached the requested resource version (504, cause ResourceVersionTooLarge)."""
        causes = self.details.get("causes") or ()
        return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)

    @property
    def too_large(self) -> bool:
        """The body is too large to be received, or the object to be stored: the same request will be refused again."""
        return self.code == 413 or any(text in self.message for text in _TOO_LARGE)

    @property
    def retry_after(self) -> int:
        """Seconds after which the client may repeat the request, 0 if the details have no positive 32-bit integer."""
        seconds = self.details.get("retryAfterSeconds")
        return seconds if seconds.__class__ is int and 0 < seconds <= _LARGEST_INT32 else 0

    def to_status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @classmethod
    def from_status(cls, status: dict[str, Any], code: int = 500) -> StatusError:
        """Read another server's Status; what has another type than in meta.k8s.io/v1 is ignored."""
        given, reason, message = status.get("code"), status.get("reason"), status.get("message")
        details = status.get("details")
        if isinstance(details, dict):
            causes = details.get("causes")
            wrong = {"retryAfterSeconds"} if details.get("retryAfterSeconds").__class__ is not int else set()
            if not isinstance(causes, list) or not all(isinstance(cause, dict) for cause in causes):
                wrong.add("causes")
            details = {key: value for key, value in details.items() if key not in wrong}
        return cls(
            given if given.__class__ is int and 100 <= given < 600 else code,
            reason if isinstance(reason, str) else "",
            message if isinstance(message, str) else "",
            details if isinstance(details, dict) else None,
        )


class Unreachable(StatusError):
    """No server answered: the client's own error, in the form of one of the API."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "ServiceUnavailable", message)


MOST_SHOWN = 10 * 1024
"""Characters of a value that an error shows: clients choose how long it is, and how many errors show it."""
OMITTED: Any = object()
"""As a field error's value: the value is omitted, because it is large or meaningless."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field, e.g. `spec.replicas: Invalid value: -1: must be greater than or equal to 0`."""

    path: str
    type: str
    """Required value | Invalid value | Unsupported value | Duplicate value | Forbidden | Too long | Too many | ..."""
    detail: str = ""
    value: Any = field(default=None)

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"

    @property
    def body(self) -> str:
        """The message without the path, as it stands in a Status cause."""
        if self.value is OMITTED or self.type in ("Required value", "Forbidden", "Too long", "Internal error"):
            text = self.type
        else:
            text = f"{self.type}: {_show(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    @property
    def cause(self) -> str:
        """The Status cause's reason."""
        return "FieldValue" + {
            "Required value": "Required",
            "Invalid value": "Invalid",
            "Unsupported value": "NotSupported",
            "Duplicate value": "Duplicate",
            "Forbidden": "Forbidden",
            "Too long": "TooLong",
            "Too many": "TooMany",
            "Not found": "NotFound",
            "Internal error": "InternalError",
        }.get(self.type, "Invalid")


class Unsigned(int):
    """A number of one of Go's unsigned types, which its field errors print in hexadecimal."""


def _show(value: Any) -> str:
    """Print a value as Go's %v or %q would in a field error: strings in quotes, the rest as JSON."""
    if value is None:
        return "null"
    if isinstance(value, Unsigned):
        return hex(value)
    room = [MOST_SHOWN]
    shown = json.dumps(_pruned(value, room), separators=(",", ":"), ensure_ascii=False)
    return shown if room[0] > 0 else f"{shown[:MOST_SHOWN]}..."


def _pruned(value: Any, room: list[int]) -> Any:
    """Return as much of a JSON value as there is room for, in characters."""
    if isinstance(value, str):
        cut = value[: max(room[0], 0)]
        room[0] -= len(value) + 2
        return cut
    if isinstance(value, dict):
        return {_pruned(key, room): _pruned(each, room) for key, each in value.items() if room[0] > 0}
    if isinstance(value, list | tuple):
        return [_pruned(each, room) for each in value if room[0] > 0]
    room[0] -= 8
    return value


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "Required value", detail)


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "Invalid value", detail, value)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Name what would be supported, in the order given; a set is sorted."""
    ordered = tuple(sorted(supported) if isinstance(supported, set | frozenset) else supported)
    return FieldError(path, "Unsupported value", _supported(ordered), value)


@functools.lru_cache(256)
def _supported(values: tuple[str, ...]) -> str:
    return "supported values: " + ", ".join(json.dumps(value) for value in values)


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "Duplicate value", "", value)


def too_many(path: str, found: int, most: int) -> FieldError:
    return FieldError(path, "Too many", f"must have at most {most} items", found)


def too_long(path: str, most: int) -> FieldError:
    return FieldError(path, "Too long", f"may not be more than {most} bytes")


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError(path, "Forbidden", detail)


def _target(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _details(group: str, resource: str, name: str, **more: Any) -> dict[str, Any]:
    found = {"name": name, "group": group, "kind": resource, **more}
    return {k: v for k, v in found.items() if v}


def not_found(group: str, resource: str, name: str) -> StatusError:
    message = f'{_target(group, resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, resource, name))


def path_not_found() -> StatusError:
    """No such path, group or resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, resource: str, name: str) -> StatusError:
    message = f'{_target(group, resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {_target(group, resource)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, resource, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


MOST_CAUSES = 500
"""Causes of a Status: a body may have a hundred thousand wrong fields."""
MOST_TEXT = 64 * 1024
"""Characters of all causes of a Status."""


def invalid(group: str, kind: str, name: str, errors: list[FieldError]) -> StatusError:
    """422 with one cause a field error, as many as the bounds allow. `kind` is Deployment and such here, as upstream has it."""
    causes, texts, room = list[dict[str, str]](), list[str](), MOST_TEXT
    for error in errors[:MOST_CAUSES]:
        path, body = error.path[:MOST_SHOWN], error.body[: 2 * MOST_SHOWN]
        room -= len(path) + len(body)
        if room < 0:
            break
        causes.append({"reason": error.cause, "message": body, "field": path})
        texts.append(f"{path}: {body}")
    if len(errors) > len(causes):
        texts.append(f"and {len(errors) - len(causes)} more")
    shown = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    message = f'{_target(group, kind)} "{name}" is invalid: {shown}'
    return StatusError(422, "Invalid", message, _details(group, kind, name, causes=causes))


def forbidden(group: str, resource: str, name: str, why: str) -> StatusError:
    target = _target(group, resource)
    message = f'{target} "{name}" is forbidden: {why}' if name else f"{target} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, _details(group, resource, name))


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> StatusError:
    return StatusError(405, "MethodNotAllowed", message)


def not_acceptable(accepted: str) -> StatusError:
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


def too_large(limit: int) -> StatusError:
    return too_much(f"limit is {limit}")


def too_much(why: str) -> StatusError:
    """413 for a body that requests too much work."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def unsupported_media_type(accepted: str) -> StatusError:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after: int = 1) -> StatusError:
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after})


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> StatusError:
    return StatusError(410, "Expired", message)


def timeout(message: str, retry_after: int = 0) -> StatusError:
    return StatusError(504, "Timeout", message, {"retryAfterSeconds": retry_after} if retry_after else None)


class AnswerTooLong(StatusError):
    """An answer of another server has more bytes or values than are read."""


def long_answer(what: str, limit: int) -> AnswerTooLong:
    """Return the error for an answer of another server of which no more than `limit` bytes are read."""
    return AnswerTooLong(502, "", f"{what} is longer than {limit} bytes")


def internal(message: str) -> StatusError:
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
