"""route_localnet: the sysctl that makes the kernel route packets for 127.0.0.0/8, for node ports on 127.0.0.1.

While it is on, the chain KUBE-FIREWALL alone keeps neighbours and pods from servers on 127.0.0.0/8 (CVE-2020-8558). So it goes
on after that chain is in force, and off before the chain is removed. It outlives the process: a mark under /run says that this
role has set it, for what the machine's owner has set is not ours to change.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from pathlib import Path

from netproxy import sysctl
from netproxy.config import ProxyConfig

log = logging.getLogger(__name__)
SETTING = "net/ipv4/conf/all/route_localnet"
RUN = Path("/run")
MARK = "wherry-route-localnet-"
"""The mark's name, before the number of the network namespace."""


def is_wanted(config: ProxyConfig, mode: str) -> bool:
    """Return whether node ports are served on 127.0.0.1."""
    loopback = ipaddress.ip_address("127.0.0.1")
    ranges = [cidr for cidr in config.node_port_addresses if cidr != "primary"]
    served = not config.node_port_addresses or any(loopback in ipaddress.ip_network(cidr) for cidr in ranges)
    return mode == "iptables" and config.localhost_node_ports and served


def switch_on(root: Path = sysctl.ROOT, run: Path = RUN) -> None:
    """Switch it on. Blocking."""
    if sysctl.read(SETTING, root) != "0":
        return
    try:
        _mark(run).touch()
    except OSError as error:
        log.error("node ports are not served on 127.0.0.1: %s", error)
        return
    sysctl.ensure(SETTING, "1", root)


def switch_off(root: Path = sysctl.ROOT, run: Path = RUN) -> bool:
    """Switch it off where this role has switched it on; return whether the guard may go. Blocking."""
    mark = _mark(run)
    if mark.exists():
        if not sysctl.ensure(SETTING, "0", root):
            return False
        mark.unlink(missing_ok=True)
    elif sysctl.read(SETTING, root) == "1":
        log.warning(
            "sysctl %s is 1, and was not set by this role: neighbours and pods can reach programs that listen on "
            "127.0.0.0/8, because only the iptables and IPVS modes drop such packets",
            SETTING.replace("/", "."),
        )
    return True


def _mark(run: Path) -> Path:
    """Return the mark of this network namespace, to which the setting belongs."""
    return run / f"{MARK}{os.stat('/proc/thread-self/ns/net').st_ino}"
