"""Message classes of pyroute2 (rtnetlink), loaded without the package's own `__init__`.

The package imports every protocol it knows: 8.5 MiB and 80 ms of CPU time whichever submodule is wanted; these take 1 MiB and
13 ms. While they are imported an empty module stands in for `multiprocessing` too, which pyroute2's configuration imports for
processes of its own. A later `import pyroute2` works, but for what it would run in other processes.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from kube.partial_packages import without_init


def load(*names: str) -> list[ModuleType]:
    """Import submodules of pyroute2, by their names within it."""
    absent = "multiprocessing" not in sys.modules
    if absent:
        processes = sys.modules["multiprocessing"] = ModuleType("multiprocessing")
        vars(processes).update(Pipe=None, Queue=None, Process=None)
    try:
        without_init("pyroute2", "config")
        return [importlib.import_module(f"pyroute2.{name}") for name in names]
    finally:
        if absent:
            del sys.modules["multiprocessing"]


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
