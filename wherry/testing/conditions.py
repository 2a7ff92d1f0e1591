"""Conditions that a test waits for: `Available`, `Ready=False`, `deleted`, `status.phase=Running`, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kube.json_object import Object
from wherry.testing.errors import ClusterError

Check: TypeAlias = Callable[[Object], Any]
Condition: TypeAlias = "str | Check"
STATUSES = ("True", "False", "Unknown")
"""Status of a condition in an object."""


def compiled(condition: Condition, api_version: str = "", kind: str = "") -> Check:
    """Return a function of the object, or of {} while there is none.

    The function of a coroutine function returns a coroutine. Raise ClusterError if the text is no condition, or one that no
    object of the kind can meet.
    """
    if callable(condition):
        return lambda obj: condition(obj) if obj else False
    if condition == "deleted":
        return lambda obj: not obj
    if condition == "exists":
        return bool
    field, equals, value = condition.partition("=")
    if not field:
        raise ClusterError(f"no condition: {condition!r}")
    if "." in field:
        path = _path(field)
        _check_field(path, api_version, kind)
        if not equals:
            return lambda obj: _at(obj, path) not in (None, "", [], {}, False)
        return lambda obj: _text(_at(obj, path)) == value
    wanted = value if equals else "True"
    if wanted not in STATUSES:
        raise ClusterError(
            f"no condition: {condition!r}: the status of {field} is True, False or Unknown; fields are written with a dot "
            "(status.phase=Running)"
        )
    return lambda obj: _condition(obj, field) == wanted


def named(condition: Condition) -> str:
    """Return the name of a condition for messages."""
    name = condition if isinstance(condition, str) else getattr(condition, "__name__", "<lambda>")
    return "what the function wants" if name == "<lambda>" else name


def seen(obj: Object, condition: Condition) -> str:
    """Describe an object's state in one line, for a wait that failed; the field of the condition comes first."""
    field = condition.partition("=")[0] if isinstance(condition, str) else ""
    if not obj or "." not in field:
        return described(obj)
    value = _at(obj, _path(field))
    return f"{field}={_text(value)}, {described(obj)}" if value is not None else f"no {field}, {described(obj)}"


def described(obj: Object) -> str:
    """Describe an object's state in one line."""
    if not obj:
        return "it does not exist"
    status = obj.get("status") or {}
    parts = [f"{key}={status[key]}" for key in ("phase", "replicas", "readyReplicas", "reason") if key in status]
    for each in status.get("conditions") or []:
        why = ": ".join(str(each[key]) for key in ("reason", "message") if each.get(key))
        parts.append(
            f"{each.get('type')}={each.get('status')}" + (f" ({why})" if why and each.get("status") != "True" else "")
        )
    for each in status.get("containerStatuses") or []:
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            parts.append(
                f"container {each.get('name')}: {waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")
            )
    return ", ".join(parts) or "it has no status"


def _path(field: str) -> list[str]:
    return field.removeprefix(".").split(".")


def _check_field(path: list[str], api_version: str, kind: str) -> None:
    from wherry.testing.fields import unknown_part

    if (unknown := unknown_part(api_version, kind, path)) is not None:
        part, known = unknown
        raise ClusterError(
            f"no condition: {kind} has no field {'.'.join(path)}: not {part}, but one of {', '.join(known)}"
        )


def _at(obj: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(obj, list) and part.isdigit() and int(part) < len(obj):
            obj = obj[int(part)]
        elif isinstance(obj, dict):
            obj = obj.get(part)
        else:
            return None
    return obj


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _condition(obj: Object, type: str) -> str:
    for each in (obj.get("status") or {}).get("conditions") or []:
        if str(each.get("type", "")).lower() == type.lower():
            return str(each.get("status"))
    return ""
