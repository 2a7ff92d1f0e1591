"""Packages of others whose `__init__` runs when something of it is first used, and not when a submodule is imported.

Some import all that they have there, whichever submodule is wanted. Type checkers see the ordinary import:

    without_init("uvicorn")
    from uvicorn.config import Config
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_USED = ("__all__", "__version__")
"""Attributes of a package that programs read. Python itself reads other attributes with underscores of all modules."""
_lock = threading.RLock()


class _Package(ModuleType):
    """A package before its `__init__` has run; then it is a module like others."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") or name in _USED:
            with _lock:
                if type(self) is _Package:
                    _initialize(self)
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)


def without_init(package: str, *submodules: str) -> ModuleType:
    """Return a package whose submodules can be imported; the package itself if it is imported already.

    `submodules` are those that others import as attributes of the package (`from . import values`).
    """
    if package in sys.modules:
        return sys.modules[package]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Package
    sys.modules[package] = module
    for name in submodules:
        importlib.import_module(f"{package}.{name}")
    return module


def _initialize(package: ModuleType) -> None:
    """Run the `__init__`; raises what it raises, and then the next use runs it again."""
    package.__class__ = ModuleType
    spec = package.__spec__
    assert spec is not None and spec.loader is not None
    try:
        spec.loader.exec_module(package)
    except BaseException:
        package.__class__ = _Package
        raise
