"""A finding of `wherry check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `fix` is the command to run if `level` is not ok."""

    level: Literal["ok", "warning", "error"]
    what: str
    fix: str = ""
