"""A finding of `wherry check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `fix` is what to do if `level` is not ok; with `is_command`, a line of shell that is never broken."""

    level: Literal["ok", "warning", "error"]
    what: str
    fix: str = ""
    is_command: bool = False
