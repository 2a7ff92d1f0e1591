"""Modules of other packages that are imported when something of them is first used.

For features that most processes never use, whose package takes milliseconds to import. Type checkers see the ordinary import:

    if TYPE_CHECKING:
        import jwt
    else:
        jwt = LazyModule("jwt")
"""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module: its attributes are the module's, which the first use imports, in any thread."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
