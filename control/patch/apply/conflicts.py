"""The answer to an apply that would change what others own: 409 Conflict, a cause a field, in upstream's words."""

from __future__ import annotations

from control.patch.apply.fieldset import Set, paths
from control.patch.apply.managers import Manager
from kube.errors import StatusError


class ApplyConflict(StatusError):
    """`conflicts` holds who owns which of the fields, for those who can resolve it otherwise."""

    def __init__(self, conflicts: list[tuple[Manager, Set]]) -> None:
        self.conflicts = conflicts
        found = sorted((_show(manager), path) for manager, fields in conflicts for path in paths(fields))
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for who, path in found
        ]
        super().__init__(409, "Conflict", _message(found), {"causes": causes})


def _message(found: list[tuple[str, str]]) -> str:
    if len(found) == 1:
        return f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    lines: list[str] = []
    for who in sorted({who for who, _ in found}):
        lines.append(f"conflicts with {who}:")
        lines += [f"- {path}" for owner, path in found if owner == who]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)


def _show(manager: Manager) -> str:
    shown = f'"{manager.name}"'
    if manager.subresource:
        shown += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        shown += f" using {manager.api_version}"
    return shown
