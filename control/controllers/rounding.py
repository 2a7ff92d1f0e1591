"""Numbers that may be percentages: maxSurge, maxUnavailable, minAvailable (apimachinery's IntOrString)."""

from __future__ import annotations


def scaled(value: int | str | None, total: int, *, round_up: bool) -> int:
    """Return an absolute number from 3 or "25%"; None is 0; ValueError where the text is no percentage."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"invalid value for IntOrString: invalid type: string is not a percentage: {value!r}")
    percent = int(value[:-1])
    return -(-percent * total // 100) if round_up else percent * total // 100
