"""CertificateSigningRequests: who asks is written down by the server, never by the asker."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.strategy import Context, Finish, Object, Strategy, keep
from control.registry.tables import age, human_duration

_REQUESTER = ("username", "uid", "groups", "extra")


class CertificateSigningRequestStrategy(Strategy):
    columns = (
        NAME,
        AGE,
        Column("SignerName", description="Who shall sign."),
        Column("Requestor", description="Who asks."),
        Column("RequestedDuration", description="How long it shall be valid."),
        Column("Condition", description="How the request stands."),
    )
    has_generation = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}
        for key in _REQUESTER:
            obj.setdefault("spec", {}).pop(key, None)

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish | None:
        if old is None:
            user, spec = context.user, obj.setdefault("spec", {})
            spec["username"] = user.name
            if user.uid:
                spec["uid"] = user.uid
            if user.groups:
                spec["groups"] = list(user.groups)
            if user.extra:
                spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        return None

    def prepare_update(self, obj: Object, old: Object) -> None:
        keep(obj, old, "spec")
        keep(obj, old, "status")

    def fields(self, obj: Object) -> dict[str, str]:
        return {"spec.signerName": (obj.get("spec") or {}).get("signerName") or ""}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        return [
            name_of(obj),
            age(created(obj), now),
            spec.get("signerName") or NONE,
            spec.get("username") or "",
            NONE if seconds is None else human_duration(seconds),
            _condition(obj.get("status") or {}),
        ]


def _condition(status: Object) -> str:
    found = {c.get("type") for c in status.get("conditions") or ()}
    shown = "Denied" if "Denied" in found else "Approved" if "Approved" in found else "Pending"
    if "Failed" in found:
        shown += ",Failed"
    return shown + (",Issued" if status.get("certificate") else "")
