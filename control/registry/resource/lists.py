"""Lists in resource.k8s.io, all of which have a maximum length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.registry.checks import Errors
from kube.errors import too_many


def at_most(most: int, items: list[Any], path: str, check: Callable[[Any, str], Errors] | None = None) -> Errors:
    """Check each item, or, without reading them, that there are not too many."""
    if len(items) > most:
        return [too_many(path, len(items), most)]
    return [error for index, item in enumerate(items) for error in check(item, f"{path}[{index}]")] if check else []
