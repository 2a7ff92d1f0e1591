"""Accepts the names of a definition that no other definition of its group has, and sets the conditions.

Pure functions; the rules, reasons and messages are those of apiextensions-apiserver's naming and establishing controllers.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from kube.clock import format_time
from kube.json_object import Object, copy_json


def set_condition(status: Object, new: Object, now: datetime) -> None:
    """Enter a condition, its transition time moved only where the status changes."""
    conditions = status["conditions"] = status.get("conditions") or []  # upstream's server stores null before the first
    for old in conditions:
        if old.get("type") == new["type"]:
            if old.get("status") != new["status"]:
                old["lastTransitionTime"] = format_time(now)
            old.update(new)
            return
    conditions.append({**new, "lastTransitionTime": format_time(now)})


def plan(definition: Object, resources: Container[str], kinds: Container[str], now: datetime) -> Object:
    """Return the definition's status with names and conditions as they should be.

    The other definitions of the same group have accepted these names of resources and of kinds.
    """
    spec = definition["spec"]
    status: Object = copy_json(definition.get("status") or {})
    wanted, accepted = spec["names"], status.get("acceptedNames") or {}
    conflicts: list[tuple[str, str]] = []
    given = dict(accepted)
    for part, taken, reason in (
        ("plural", resources, "PluralConflict"),
        ("singular", resources, "SingularConflict"),
        ("shortNames", resources, "ShortNamesConflict"),
        ("kind", kinds, "KindConflict"),
        ("listKind", kinds, "ListKindConflict"),
    ):
        if part == "shortNames":
            present = accepted.get(part) or []
            used = [name for name in wanted.get(part) or () if name in taken and name not in present]
            message = _aggregate([f'"{name}" is already in use' for name in used])
        else:
            name = wanted.get(part) or ""
            clash = name != accepted.get(part, "") and name in taken
            message = f'"{name}" is already in use' if clash else ""
        if message:
            conflicts.append((reason, message))
        elif wanted.get(part):
            given[part] = wanted[part]
        else:
            given.pop(part, None)
    if wanted.get("categories"):
        given["categories"] = wanted["categories"]
    else:
        given.pop("categories", None)
    status["acceptedNames"] = given
    if conflicts:
        reason, message = conflicts[-1]
        accepted_condition = {"type": "NamesAccepted", "status": "False", "reason": reason, "message": message}
    else:
        accepted_condition = {
            "type": "NamesAccepted",
            "status": "True",
            "reason": "NoConflicts",
            "message": "no conflicts found",
        }
    set_condition(status, accepted_condition, now)
    established = next((c for c in status["conditions"] if c.get("type") == "Established"), None)
    if established is None or established.get("status") != "True":
        if conflicts:
            new = {"status": "False", "reason": "NotAccepted", "message": "not all names are accepted"}
        else:
            new = {
                "status": "True",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            }
        set_condition(status, {"type": "Established", **new}, now)
    return status


def _aggregate(messages: list[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]" if messages else ""
