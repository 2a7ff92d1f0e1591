"""The pod network that a node is configured for, compared with the one that the container runtime has loaded.

libcni uses the first configuration by name, whoever wrote it: of another container engine, or of a network plugin that was
removed. Pods that start before the expected plugin has written its own would keep that network. So a node with a required
network has none until the runtime reports a network of that name. containerd reports its networks in the verbose status;
of a runtime that does not, only the condition NetworkReady is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cri.texts import NAME, shortened

_LOOPBACK = "cni-loopback"
"""Network that containerd adds for each pod's own loopback device."""
UNREADY = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:"
"""Beginning of the condition's message, as for a runtime without any network."""


def loaded(info: Mapping[str, str]) -> list[str] | None:
    """Return the names of the runtime's pod networks by its verbose status; None if it does not report them."""
    try:
        networks = json.loads(info["cniconfig"])["Networks"] or []
        names = [_name(each) for each in networks]
    except (LookupError, TypeError, ValueError):
        return None
    return [name for name in names if name and name != _LOOPBACK]


def _name(network: Any) -> str:
    found = network["Config"]["Name"]
    return found if isinstance(found, str) else ""


def problem(required: str, info: Mapping[str, str]) -> str:
    """Return why a node that requires a network is not Ready, although its runtime has one; "" if it is the required one."""
    names = loaded(info) if required else None
    if names is None or required in names:
        return ""
    others = ", ".join(shortened(name, NAME) for name in names) or "none"
    return f"{UNREADY}the node requires the pod network {required}, and the container runtime has loaded {others}"
