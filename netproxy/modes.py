"""Chooses the proxy mode: the configured one if this machine supports it, otherwise an error with the available modes.

`auto` selects nftables, the fastest mode, unless its command is missing, the kernel is older than upstream's minimum version,
or another table drops forwarded packets. Only rules of the iptables mode, in the same chains as Docker's and ufw's, can accept
packets before those drop them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from pathlib import Path

from kube.process import CommandError, run
from netproxy.config import ProxyConfig
from netproxy.errors import UnsupportedModeError

log = logging.getLogger(__name__)
IPVS_TABLE = "/proc/net/ip_vs"
LEAST_KERNEL = (5, 13)
"""Upstream's for its nftables mode."""


async def choose(config: ProxyConfig) -> str:
    """Return the mode to serve; raises UnsupportedModeError, with the reason, if the configured one is not available."""
    if config.mode == "auto":
        reason = await nftables_problem()
        mode = "iptables" if reason else "nftables"
        log.info("proxy mode auto: %s%s", mode, f", because {reason}" if reason else "")
        return mode
    if config.mode == "ipvs":
        await load_ipvs(config.ipvs.scheduler)
    check(config.mode, config.ipvs.scheduler)
    return config.mode


async def load_ipvs(scheduler: str) -> None:
    """Load the kernel's virtual servers where they come as a module; no error where they are not available."""
    for module in ("ip_vs", f"ip_vs_{scheduler}"):
        with contextlib.suppress(CommandError):
            await run(["modprobe", module], check=False, timeout=20)


def check(mode: str, scheduler: str = "rr") -> None:
    """Raise UnsupportedModeError if a mode cannot be served on this machine."""
    if mode == "nftables" and shutil.which("nft") is None:
        raise UnsupportedModeError("mode nftables: the command nft is not installed (Debian: package nftables)")
    if mode != "ipvs":
        return
    if not os.path.exists(IPVS_TABLE):
        raise UnsupportedModeError(
            "mode ipvs: this kernel has no IP virtual server (no /proc/net/ip_vs, and no module ip_vs to load): "
            "use mode iptables or nftables"
        )
    for command in ("ipvsadm", "ipset"):
        if shutil.which(command) is None:
            raise UnsupportedModeError(f"mode ipvs: the command {command} is not installed (Debian: package {command})")


async def nftables_problem(kernel: str | None = None) -> str:
    """Return why the nftables mode would not serve well here, "" where nothing speaks against it."""
    if shutil.which("nft") is None:
        return "the command nft is not installed"
    release = kernel or os.uname().release
    if _version(release) < LEAST_KERNEL:
        return f"kernel {release} is older than {LEAST_KERNEL[0]}.{LEAST_KERNEL[1]}"
    try:
        listed = await run(["nft", "-j", "list", "chains"], timeout=20)
    except CommandError as error:
        return f"nft cannot list chains: {error}"
    for item in json.loads(listed.stdout).get("nftables", ()):
        chain = item.get("chain", {})
        if chain.get("hook") == "forward" and (chain.get("policy") == "drop" or chain["table"] == "firewalld"):
            return f"the chain {chain['family']} {chain['table']} {chain['name']} drops what is forwarded"
    return await _legacy_drops()


async def _legacy_drops() -> str:
    """Return which legacy table drops forwarded packets, "" for none. The check creates no table that is not in use."""
    for family, program in (("ip", "iptables-legacy"), ("ip6", "ip6tables-legacy")):
        try:
            if "filter" in _legacy_tables(family):
                policy = (await run([program, "-S", "FORWARD"], timeout=20)).stdout
                if policy.startswith("-P FORWARD DROP"):
                    return f"the policy of FORWARD in {program}'s tables is DROP"
        except (OSError, CommandError):
            continue
    return ""


def _legacy_tables(family: str) -> list[str]:
    return Path(f"/proc/thread-self/net/{family}_tables_names").read_text().split()


def _version(release: str) -> tuple[int, ...]:
    digits = "".join(each if each.isdigit() or each == "." else " " for each in release).split()
    return tuple(int(part) for part in digits[0].split(".")[:2] if part) if digits else ()
