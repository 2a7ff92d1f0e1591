"""Table cells of volumes and claims: short access modes, and Terminating after deletion has started."""

from __future__ import annotations

from kube.json_object import Object

_SHORT = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def access_modes(modes: list[str] | None) -> str:
    """Print access modes in upstream's order, without repetition: `RWO,ROX`."""
    return ",".join(short for mode, short in _SHORT.items() if mode in (modes or ()))


def phase(obj: Object) -> str:
    if obj.get("metadata", {}).get("deletionTimestamp"):
        return "Terminating"
    found: str = (obj.get("status") or {}).get("phase") or ""
    return found
