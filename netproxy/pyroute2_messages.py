"""Message classes of pyroute2 (rtnetlink), loaded without the package's own `__init__`.

The package imports every protocol it knows: 8.5 MiB and 80 ms of CPU time whichever submodule is wanted. So while these
modules are imported, an empty package of the name stands in for it, with the same path, and an empty module for
`multiprocessing`, which pyroute2's configuration imports for processes of its own: 1 MiB and 13 ms. They are removed at once.
A later `import pyroute2` works, but for what it would run in other processes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "pyroute2"


def _stand_ins() -> list[ModuleType]:
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
    package = ModuleType(_NAME)
    package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations)
    processes = ModuleType("multiprocessing")
    vars(processes).update(Pipe=None, Queue=None, Process=None)
    return [package, processes]


def load(*names: str) -> list[ModuleType]:
    """Import submodules of pyroute2, by their names within it."""
    stand_ins = [each for each in _stand_ins() if each.__name__ not in sys.modules]
    sys.modules.update({each.__name__: each for each in stand_ins})
    try:
        return [importlib.import_module(f"{_NAME}.{name}") for name in names]
    finally:
        for each in stand_ins:
            del sys.modules[each.__name__]


_rtmsg, _ndmsg, _ifaddrmsg, _ifinfmsg = load(
    "netlink.rtnl.rtmsg", "netlink.rtnl.ndmsg", "netlink.rtnl.ifaddrmsg", "netlink.rtnl.ifinfmsg"
)
rtmsg: Any = _rtmsg.rtmsg
ndmsg: Any = _ndmsg.ndmsg
ifaddrmsg: Any = _ifaddrmsg.ifaddrmsg
ifinfmsg: Any = _ifinfmsg.ifinfmsg


def _add_bridge_attributes() -> None:
    """Add the attributes 45 and 46 of bridges: pyroute2's list ends with 44 (0.9.7)."""
    known = ifinfmsg.ifinfo.data_map["bridge"]
    if "IFLA_BR_MULTI_BOOLOPT" not in [each[0] for each in known.nla_map]:
        more = (("IFLA_BR_VLAN_STATS_PER_PORT", "uint8"), ("IFLA_BR_MULTI_BOOLOPT", "cdata"))
        ifinfmsg.ifinfo.data_map["bridge"] = type("bridge_data", (known,), {"nla_map": (*known.nla_map, *more)})


_add_bridge_attributes()
