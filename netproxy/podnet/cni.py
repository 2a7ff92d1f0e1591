"""The CNI network list that the container runtime builds pod interfaces from.

The chain is short, because each plugin is an exec for each pod: `bridge` with `host-local` addresses from the node's pod
range, and `portmap` for host ports. The bridge plugin's own masquerade stays off: it adds rules for each pod, Wherry has one
rule for each node. The file is replaced atomically by a rename, so the runtime never loads half of it, and its name sorts
before files of distributions.

The list survives a reboot and the rules do not. host-local assigns no address while the file that `resolvConf` names is
missing, so that file is in a folder that a boot empties, and is written after the rules for this node's pods: until then
sandboxes fail, and the agent retries (flannel's plugin waits for /run/flannel/subnet.env likewise). The file is empty,
because the agent configures pods' resolvers.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILE_NAME = "10-wherry.conflist"
NETWORK = "wherry"
"""The network's name, and so the folder of host-local's reservations."""
CNI_VERSION = "0.4.0"
"""The newest that containerd 1.6 with Debian 12's plugins 1.1 reads is 1.0.0; older runtimes read this one too."""


def network_list(
    pod_cidrs: Sequence[str], *, bridge: str, mtu: int, host_ports: bool, data_dir: str, ready_file: Path
) -> dict[str, Any]:
    """Return the network list for a node whose pods get addresses from `pod_cidrs` (one a family); `mtu` in bytes.

    No pod starts without the file `ready_file`.
    """
    default = {True: "::/0", False: "0.0.0.0/0"}
    plugins: list[dict[str, Any]] = [
        {
            "type": "bridge",
            "bridge": bridge,
            "isGateway": True,
            "isDefaultGateway": False,
            "ipMasq": False,
            "hairpinMode": True,
            "mtu": mtu,
            "ipam": {
                "type": "host-local",
                "dataDir": data_dir,
                "resolvConf": str(ready_file),
                "ranges": [[{"subnet": cidr}] for cidr in pod_cidrs],
                "routes": [{"dst": default[":" in cidr]} for cidr in pod_cidrs],
            },
        }
    ]
    if host_ports:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}, "snat": True})
    return {"cniVersion": CNI_VERSION, "name": NETWORK, "plugins": plugins}


def configured_ranges(folder: str) -> tuple[str, ...]:
    """Return the pod ranges in the list that an earlier process wrote; empty where there is none to read. Blocking."""
    try:
        document = json.loads((Path(folder) / FILE_NAME).read_text())
        ranges = document["plugins"][0]["ipam"]["ranges"]
        return tuple(str(ipaddress.ip_network(each["subnet"])) for (each,) in ranges)
    except (OSError, ValueError, LookupError, TypeError):
        return ()


def ready_file(run_dir: str, conf_dir: str) -> Path:
    """Return the file that allows pods to start: one for each folder of configurations."""
    return Path(run_dir) / f"{hashlib.sha256(conf_dir.encode()).hexdigest()[:12]}.conf"


def allow_pods(ready_file: Path) -> None:
    """Let pods start. Blocking."""
    ready_file.parent.mkdir(parents=True, exist_ok=True)
    ready_file.touch(0o644)


def write(folder: str, document: dict[str, Any]) -> bool:
    """Write the list into the runtime's folder; return whether that changed anything. Blocking."""
    target = Path(folder) / FILE_NAME
    data = json.dumps(document, indent=2).encode() + b"\n"
    try:
        if target.read_bytes() == data:
            return False
    except OSError:
        pass
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".wherry-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o600)
        os.rename(name, target)
    except OSError:
        os.unlink(name)
        raise
    return True


def remove(folder: str, ready_file: Path) -> None:
    """Remove the list, and what lets pods start; no error where there is none."""
    for path in (Path(folder) / FILE_NAME, ready_file):
        path.unlink(missing_ok=True)
