"""Objects out of their protobuf form, which typed Go clients (kubectl create, upstream's kubelet) send.

The wire form is read by the field numbers in wire.json, straight into JSON's shape: maps from repeated entries, times and
quantities as text, embedded structs flattened. A message does not say which fields were set, since
Go writes plain fields also when they are zero: empty strings, zeros and falses are left out, but for the fields that are
pointers in Go, where a zero means something (`replicas: 0`). Numbers that the table does not know are skipped;
`wire_encode.without_number` says which fields of the API those are. The other direction is `wire_encode`.
"""

from __future__ import annotations

import base64
import functools
import importlib.resources
import json
import struct
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube.clock import format_micro_time, format_time
from kube.nesting import DEEPEST, check_nesting, too_deep
from kube.value_count import MOST_VALUES, TooManyValues, marks, structure

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_EMBEDDED = frozenset(
    {
        "deviceConfiguration",
        "ephemeralContainerCommon",
        "handler",
        "ingressRuleValue",
        "localObjectReference",
        "persistentVolumeSource",
        "rule",
        "ruleWithOperations",
        "volumeSource",
    }
)
_RENAMED = {"uID": "uid", "Webhooks": "webhooks", "Expression": "expression", "Name": "name", "aPIGroup": "apiGroup"}
_FALSY_TYPES = frozenset({"apiextensions_v1.JSON", "apiextensions_v1.JSONSchemaPropsOrBool"})
"""Types whose false, zero or empty values are significant."""
_POINTERS = frozenset(
    """
    activeDeadlineSeconds adminAccess allNodes allocateLoadBalancerNodePorts allowMultipleAllocations
    allowPrivilegeEscalation allowVolumeExpansion attachRequired automountServiceAccountToken averageUtilization
    backoffLimit backoffLimitPerIndex bindsToNode blockOwnerDeletion bool borrowingLimitPercent completions controller
    currentCPUUtilizationPercentage defaultMode deletionGracePeriodSeconds enableServiceLinks expirationSeconds
    failedJobsHistoryLimit fsGroup gracePeriodSeconds hostnameOverride hostUsers immutable int leaseDurationSeconds
    leaseTransitions lendablePercent manualSelector maxExpirationSeconds maxFailedIndexes maximum maxItems maxLength
    maxProperties maxSurge maxUnavailable minAvailable minimum minItems minLength minProperties minReplicas mode
    multipleOf nominalConcurrencyShares observedGeneration optional optionalOldSelf ordinal orphanDependents
    parallelism partition perDeviceNodeSelection podInfoOnMount port preemptionPolicy priority privileged
    progressDeadlineSeconds readOnlyRootFilesystem ready replicas requiresRepublish revisionHistoryLimit runAsGroup
    runAsNonRoot runAsUser seLinuxMount serviceAccountTokenInSecrets serving setHostnameAsFQDN shareProcessNamespace
    stabilizationWindowSeconds started startingDeadlineSeconds storageCapacity storageClassName
    successfulJobsHistoryLimit suspend terminating terminatingReplicas terminationGracePeriodSeconds timeoutSeconds
    tolerationSeconds ttlSecondsAfterFinished volumeName
    """.split()
)


class WireError(ValueError):
    """Bytes that are not a valid message of their type."""


@functools.cache
def types() -> dict[str, dict[int, tuple[str, str]]]:
    """Return the fields of each type by number: JSON name and kind.

    A kind is a letter of a scalar or the name of a type, with "*" before it for a list, "%" for a map, and "&" for an embedded
    message, whose fields JSON shows among those of the type.
    """
    text = importlib.resources.files(__package__).joinpath("wire.json").read_bytes()
    raw: dict[str, dict[str, list[str]]] = json.loads(text)
    return {
        name: {int(n): (_RENAMED.get(field, field), _kind(name, field, kind)) for n, (field, kind) in fields.items()}
        for name, fields in raw.items()
    }


def _kind(type_name: str, field: str, kind: str) -> str:
    embedded = field in _EMBEDDED or (field == "source" and type_name == "core_v1.PodResourceClaim")
    return f"&{kind}" if embedded and "." in kind else kind


def known(module: str, name: str) -> bool:
    """Return whether a type has a protobuf form."""
    return f"{module}.{name}" in types()


def open_envelope(data: bytes) -> tuple[str, str, bytes]:
    """Return (apiVersion, kind, message) of an encoded object; raises WireError, TooManyValues."""
    if not data.startswith(MAGIC):
        raise WireError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version = kind = ""
    message = b""
    _begin()
    for number, value in _fields(data[len(MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            for part, text in _fields(value):
                if isinstance(text, bytes):
                    if part == 1:
                        api_version = text.decode()
                    elif part == 2:
                        kind = text.decode()
        elif number == 2 and isinstance(value, bytes):
            message = value
    return api_version, kind, message


def decode(message: bytes, module: str, name: str) -> dict[str, Any]:
    """Return a message of a type (module "core_v1", name "Pod") in JSON's shape; raises WireError, TooManyValues.

    Messages and the JSON within them may together nest as deep as a JSON body.
    """
    type_name = f"{module}.{name}"
    if type_name not in types():
        raise WireError(f"{name} has no protobuf form")
    _begin()
    try:
        found: dict[str, Any] = _message(message, type_name)
        if _budget.deep and too_deep(found):
            raise WireError(_TOO_DEEP)
        return found
    except (UnicodeDecodeError, struct.error, RecursionError, ValueError, OverflowError, OSError) as error:
        raise error if isinstance(error, WireError | TooManyValues) else WireError(str(error)) from error


def decode_list(message: bytes, module: str, name: str) -> dict[str, Any]:
    """Return a list's message, whose items are of a type, in JSON's shape; raises WireError."""
    if not known(module, name):
        raise WireError(f"{name} has no protobuf form")
    metadata: dict[str, Any] = {}
    items = []
    for number, value in _fields(message, len(message)):
        if number == 1 and isinstance(value, bytes):
            metadata = decode(value, "meta_v1", "ListMeta")
        elif number == 2 and isinstance(value, bytes):
            items.append(decode(value, module, name))
    return {"metadata": metadata, "items": items}


Value = int | bytes


class _Budget(threading.local):
    left, depth, deep = MOST_VALUES, 0, False


_budget = _Budget()
"""Number of values that the message which is being decoded may still have, the level of the present one, and whether it may
have more levels than DEEPEST. Each level of messages is up to two of JSON, a list's and an object's."""
_SHALLOW = DEEPEST // 4
"""Levels of messages, or of JSON within one, up to which the whole is not too deep."""
_TOO_DEEP = "exceeded max depth"


def _begin() -> None:
    _budget.left, _budget.depth, _budget.deep = MOST_VALUES, 0, False


def _fields(data: bytes, most: int = 0) -> list[tuple[int, Value]]:
    """Split a message into (field number, number or bytes); raises TooManyValues past `most`, or past those that are left."""
    found: list[tuple[int, Value]] = []
    at, end = 0, len(data)
    limit = most or _budget.left
    while at < end:
        if len(found) >= limit:
            raise TooManyValues
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            found.append((number, value))
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire == 1:
            size = 8
        elif wire == 5:
            size = 4
        else:
            raise WireError(f"wire type {wire} is not used")
        if at + size > end:
            raise WireError("unexpected EOF")
        found.append((number, data[at : at + size]))
        at += size
    if not most:
        _budget.left -= len(found)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("unexpected EOF")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def _message(data: bytes, type_name: str) -> Any:
    _budget.depth += 1
    if _budget.depth > _SHALLOW:
        _budget.deep = True
        if _budget.depth > 2 * DEEPEST:  # a level of a schema may be two messages
            raise WireError(_TOO_DEEP)
    found = _decoded(data, type_name)
    _budget.depth -= 1
    return found


def _decoded(data: bytes, type_name: str) -> Any:
    special = _SPECIAL.get(type_name)
    if special is not None:
        return special(data)
    table = types().get(type_name)
    if table is None:
        return {}
    result: dict[str, Any] = {}
    for number, value in _fields(data):
        known = table.get(number)
        if known is None:
            continue
        field, kind = known
        if kind[0] == "*":
            result.setdefault(field, []).append(_value(value, kind[1:]))
        elif kind[0] == "%":
            key, item = _entry(value, kind[1:])
            result.setdefault(field, {})[key] = item
        elif kind[0] == "&" and isinstance(value, bytes):
            result.update(_message(value, kind[1:]))
        else:
            single = _value(value, kind)
            if single is None or _unset(single, field, kind):
                continue
            else:
                result[field] = single
    return result


def _unset(value: Any, field: str, kind: str) -> bool:
    return not value and value != {} and field not in _POINTERS and kind not in _FALSY_TYPES


def _value(value: Value, kind: str) -> Any:
    if isinstance(value, int):
        if kind == "t":
            return bool(value)
        return value - (1 << 64) if value >= 1 << 63 else value
    if kind == "s":
        return value.decode()
    if kind == "b":
        return base64.b64encode(value).decode()
    if kind == "d":
        return struct.unpack("<d", value)[0]
    return _message(value, kind)


def _entry(value: Value, kind: str) -> tuple[str, Any]:
    if isinstance(value, int):
        raise WireError("a map entry is not a message")
    key, item = "", None
    _budget.depth += 1  # the map
    for number, part in _fields(value):
        if number == 1 and isinstance(part, bytes):
            key = part.decode()
        elif number == 2:
            item = _value(part, kind)
    _budget.depth -= 1
    return key, "" if item is None and kind in ("s", "b") else item


def _numbers(data: bytes) -> dict[int, Value]:
    return dict(_fields(data))


def _signed(value: Value | None) -> int:
    if not isinstance(value, int):
        return 0
    return value - (1 << 64) if value >= 1 << 63 else value


def _time(data: bytes) -> str | None:
    if not data:
        return None
    seconds = _signed(_numbers(data).get(1))
    return format_time(datetime.fromtimestamp(seconds, UTC))


def _micro_time(data: bytes) -> str | None:
    if not data:
        return None
    parts = _numbers(data)
    moment = datetime.fromtimestamp(_signed(parts.get(1)), UTC).replace(microsecond=_signed(parts.get(2)) // 1000)
    return format_micro_time(moment)


def _int_or_string(data: bytes) -> int | str:
    parts = _numbers(data)
    text = parts.get(3, b"")
    if parts.get(1):
        return text.decode() if isinstance(text, bytes) else ""
    number = _signed(parts.get(2))
    return number - (1 << 32) if 1 << 31 <= number < 1 << 32 else number


def _quantity(data: bytes) -> str:
    text = _numbers(data).get(1, b"")
    return text.decode() if isinstance(text, bytes) and text else "0"


def _raw_json(data: bytes) -> Any:
    raw = _numbers(data).get(1, b"")
    return _loaded(raw) if isinstance(raw, bytes) and raw else {}


def _json(data: bytes) -> Any:
    raw = _numbers(data).get(1, b"null")
    return _loaded(raw) if isinstance(raw, bytes) else None


def _loaded(text: bytes) -> Any:
    """Decode JSON within a message: its values and levels count as those of the message do."""
    values = marks(text)
    if values > _budget.left:
        values = marks(structure(text))
    if values > _budget.left:
        raise TooManyValues
    _budget.left -= values
    check_nesting(text)
    if text.count(b"{") + text.count(b"[") > _SHALLOW:
        _budget.deep = True
    return msgspec.json.decode(text)


_SCHEMA = "apiextensions_v1.JSONSchemaProps"


def _schema_or_array(data: bytes) -> Any:
    parts = _fields(data)
    for number, value in parts:
        if number == 1 and isinstance(value, bytes):
            return _message(value, _SCHEMA)
    return [_message(value, _SCHEMA) for _, value in parts if isinstance(value, bytes)]


def _schema_or_bool(data: bytes) -> Any:
    parts = _numbers(data)
    schema = parts.get(2)
    return _message(schema, _SCHEMA) if isinstance(schema, bytes) else bool(parts.get(1))


def _schema_or_strings(data: bytes) -> Any:
    parts = _fields(data)
    for number, value in parts:
        if number == 1 and isinstance(value, bytes):
            return _message(value, _SCHEMA)
    return [value.decode() for _, value in parts if isinstance(value, bytes)]


def _items(data: bytes) -> list[str]:
    return [value.decode() for number, value in _fields(data) if number == 1 and isinstance(value, bytes)]


_SPECIAL = {
    "meta_v1.Time": _time,
    "meta_v1.MicroTime": _micro_time,
    "meta_v1.FieldsV1": _raw_json,
    "meta_v1.Verbs": _items,
    "pkg_runtime.RawExtension": _raw_json,
    "apiextensions_v1.JSON": _json,
    "apiextensions_v1.JSONSchemaPropsOrArray": _schema_or_array,
    "apiextensions_v1.JSONSchemaPropsOrBool": _schema_or_bool,
    "apiextensions_v1.JSONSchemaPropsOrStringArray": _schema_or_strings,
    "util_intstr.IntOrString": _int_or_string,
    "api_resource.Quantity": _quantity,
    "authentication_v1.ExtraValue": _items,
    "authorization_v1.ExtraValue": _items,
    "certificates_v1.ExtraValue": _items,
}
