"""The CNI network list that the container runtime builds pod interfaces from.

The chain is short, for each plugin is an exec a pod: `bridge` with `host-local` addresses from the node's pod range, and
`portmap` for host ports. The bridge plugin's own masquerade stays off: it adds rules a pod, where ours is one
rule a node. The file is written whole under its name in one rename, so the runtime never loads half of it, and the name
sorts before what distributions leave in the folder.

The list outlives a boot and the rules do not. host-local gives no address while the file that `resolvConf` names is not
there, so that file is in a folder that a boot empties, and it is written once this node's pods are guarded: until then
sandboxes fail, and the agent tries again (flannel's plugin waits for /run/flannel/subnet.env likewise). The file is empty,
for pods' resolvers are the agent's to say.
"""

from __future__ import annotations

import hashlib
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


def ready_file(run_dir: str, conf_dir: str) -> Path:
    """Return which file says that pods may start: one for each folder of configurations."""
    return Path(run_dir) / f"{hashlib.sha256(conf_dir.encode()).hexdigest()[:12]}.conf"


def allow_pods(ready_file: Path) -> None:
    """Let pods start. Blocking."""
    ready_file.parent.mkdir(parents=True, exist_ok=True)
    ready_file.touch(0o644)


def write(folder: str, document: dict[str, Any]) -> bool:
    """Write the list into the runtime's folder; return whether that changed anything. Blocking."""
    target = Path(folder) / FILE_NAME
    data = json.dumps(document, indent=2) + "\n"
    try:
        if target.read_text() == data:
            return False
    except OSError:
        pass
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".wherry-")
    try:
        with os.fdopen(handle, "w") as file:
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
