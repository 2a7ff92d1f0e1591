"""Builds the 409 Conflict of a server-side apply, with a cause for each field of other managers, in upstream's words.

Conflicts are grouped by manager once. Whoever writes an object chooses how many managers it lists, so causes and text are
limited as those of invalid objects are; the number of conflicts in the message is the real one.
"""

from __future__ import annotations

from control.patch.apply.fieldset import Set, count, paths
from control.patch.apply.managers import Manager
from kube.errors import MOST_CAUSES, MOST_SHOWN, MOST_TEXT, StatusError


class ApplyConflict(StatusError):
    """`conflicts` holds who owns which of the fields, for those who can resolve it otherwise."""

    def __init__(self, conflicts: list[tuple[Manager, Set]]) -> None:
        self.conflicts = conflicts
        total = sum(count(fields) for _, fields in conflicts)
        found = _shown(conflicts)
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path}
            for who, fields in found
            for path in fields
        ]
        super().__init__(409, "Conflict", _message(found, total, total - len(causes)), {"causes": causes})


def _shown(conflicts: list[tuple[Manager, Set]]) -> list[tuple[str, list[str]]]:
    """Return managers as they are shown, each with its fields, as many as the limits allow."""
    found, number, room = list[tuple[str, list[str]]](), MOST_CAUSES, MOST_TEXT
    for who, fields in sorted(((_show(manager), fields) for manager, fields in conflicts), key=lambda each: each[0]):
        shown: list[str] = []
        for path in sorted(paths(fields)):
            room -= len(who) + len(path)
            number -= 1
            if room < 0 or number < 0:
                break
            shown.append(path)
        if shown:
            found.append((who, shown))
        if room < 0 or number < 0:
            break
    return found


def _message(found: list[tuple[str, list[str]]], total: int, left_out: int) -> str:
    if total == 1:
        return f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1][0]}"
    lines: list[str] = []
    for who, fields in found:
        lines.append(f"conflicts with {who}:")
        lines += [f"- {path}" for path in fields]
    if left_out:
        lines.append(f"and {left_out} more")
    return f"Apply failed with {total} conflicts: " + "\n".join(lines)


def _show(manager: Manager) -> str:
    shown = f'"{manager.name[:MOST_SHOWN]}"'
    if manager.subresource:
        shown += f' with subresource "{manager.subresource[:MOST_SHOWN]}"'
    if manager.operation == "Update":
        shown += f" using {manager.api_version[:MOST_SHOWN]}"
    return shown
